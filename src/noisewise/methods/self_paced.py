from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, smallest, weighted
from noisewise.spec import setting


class SelfPaced(Method, name="self_paced"):
    """Train on easy examples first: those with a loss below a threshold that grows during training.

    Formula:
        learn the q · n examples of a batch with the smallest loss;  q = initial + (1 − initial) · min(progress / until, 1)

    The threshold is a quantile of the losses in the batch, because a suitable absolute threshold depends on the loss and the model.

    Args:
        initial: the share of examples at the start of training.
        until: the share of the training after which all examples are used.

    Example:
        >>> SelfPaced(initial=0.3)
        self_paced(initial=0.3, until=0.5)

    Reference:
        Kumar et al., Self-paced learning for latent variable models, NeurIPS 2010.
    """

    examples = ("self_paced(initial=0.5, until=0.75)",)
    needs_whole_batch = True

    initial: float = setting(default=0.5, bounds="(0, 1]")
    until: float = setting(default=0.5, bounds="(0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        pull = loss.rows(scores[0], batch.labels)
        share = self.initial + (1 - self.initial) * (batch.progress / self.until).clamp(max=1)
        assert pull.value is not None
        return (weighted(pull, average(batch, smallest(batch, pull.value, share))),)
