from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._entropy import entropy_of
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class BootstrapHard(Method, name="bootstrap_hard"):
    """Hard bootstrapping: the target is a mixture of the given label and the class that the network predicts.

    Formula:
        L = beta · loss(y) + (1 − beta) · loss(argmax p)

    With the loss ``ce`` this is the cross-entropy with the target of the paper.

    Args:
        beta: the weight of the given label.

    Example:
        >>> BootstrapHard()
        bootstrap_hard(beta=0.8)

    Reference:
        Reed et al., Training deep neural networks on noisy labels with bootstrapping, ICLR 2015 workshop.
    """

    examples = ("bootstrap_hard(beta=0.8)",)
    relabels = True

    beta: float = setting(default=0.8, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (bootstrapped(loss, scores[0], batch.labels, self.beta),)


class BootstrapSoft(Method, name="bootstrap_soft"):
    """Soft bootstrapping: the target is a mixture of the given label and the predicted probabilities.

    Formula:
        L = beta · loss(y) − (1 − beta) · Σ_c p_c log p_c

    The gradient also flows through the target, as in the paper: the second term is the entropy of the prediction, so training makes
    predictions more confident. With the loss ``ce`` this is the cross-entropy with the target of the paper.

    Args:
        beta: the weight of the given label.

    Example:
        >>> BootstrapSoft()
        bootstrap_soft(beta=0.95)

    Reference:
        Reed et al., Training deep neural networks on noisy labels with bootstrapping, ICLR 2015 workshop.
    """

    examples = ("bootstrap_soft(beta=0.95)",)
    relabels = True

    beta: float = setting(default=0.95, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        given = loss.rows(scores[0], batch.labels)
        entropy = entropy_of(scores[0])
        assert given.value is not None
        gradient = self.beta * given.gradient + (1 - self.beta) * entropy.gradient
        return (Pull(gradient, self.beta * given.value + (1 - self.beta) * entropy.value.squeeze(1)),)


def bootstrapped(loss: LossPull, scores: Tensor, labels: Tensor, share: float | Tensor) -> Pull:
    """The pull of a mixture: a share of the given labels, and the rest of the predicted ones."""
    given, predicted = (loss.rows(scores, each) for each in (labels, scores.argmax(1)))
    assert given.value is not None and predicted.value is not None
    gradient = share * given.gradient + (1 - share) * predicted.gradient
    return Pull(gradient, share * given.value + (1 - share) * predicted.value)
