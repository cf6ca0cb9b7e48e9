import math

from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._entropy import entropy_of
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class ProSelfLC(Method, name="proselflc"):
    """Progressive self label correction: trust a prediction more, the later in training and the more confident it is.

    Formula:
        L = (1 − ε) · loss(y) − ε · Σ_c p_c log p_c
        ε = sigmoid(B · (t − 0.5)) · (1 − H(p) / log C)    for the share t of training that is done, the entropy H and C classes

    With the loss ``ce`` this is the cross-entropy with the target (1 − ε) · y + ε · p. The gradient also flows through p in the
    target, but not through ε, as in the authors' code.

    Args:
        B: how fast trust rises in the middle of training.

    Example:
        >>> ProSelfLC()
        proselflc(B=16.0)

    Reference:
        Wang et al., ProSelfLC: progressive self label correction for training robust deep neural networks, CVPR 2021.
    """

    examples = ("proselflc(B=16)",)
    relabels = True

    B: float = setting(default=16.0, bounds="[0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        given = loss.rows(scores[0], batch.labels)
        entropy = entropy_of(scores[0])
        confidence = 1 - entropy.value / math.log(scores[0].shape[1])
        trust = (self.B * (batch.progress - 0.5)).sigmoid() * confidence.clamp(0, 1)
        assert given.value is not None
        value = (1 - trust) * given.value.unsqueeze(1) + trust * entropy.value
        return (Pull((1 - trust) * given.gradient + trust * entropy.gradient, value.squeeze(1)),)
