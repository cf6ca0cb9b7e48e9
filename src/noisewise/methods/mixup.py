from collections.abc import Sequence

from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._mix import draw_mixture
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class Mixup(Method, name="mixup"):
    """Train on mixtures of two examples and of their labels.

    Formula:
        x = λ · xᵢ + (1 − λ) · xⱼ,    L = λ · loss(yᵢ) + (1 − λ) · loss(yⱼ),    λ ~ Beta(alpha, alpha) in every step

    The partner j of every example is from the same batch. With the loss ``ce`` this is the cross-entropy with the mixed label; other losses
    are mixed in the same way. The record is from a pass without mixing after every epoch.

    Args:
        alpha: how evenly examples are mixed; near 0 one of the two dominates.

    Example:
        >>> Mixup(alpha=0.2)
        mixup(alpha=0.2)

    Reference:
        Zhang et al., mixup: beyond empirical risk minimization, ICLR 2018.
    """

    examples = ("mixup(alpha=1)", "mixup(alpha=8)")
    needs_whole_batch = True
    mixes = True
    relabels = True

    alpha: float = setting(default=1.0, bounds="(0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        mixture = batch.notes["mixture"] = draw_mixture(batch, self.alpha)
        return tuple(networks[0](inputs) for inputs in mixture(batch, batch.view()))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (batch.notes["mixture"].pull(loss, batch, scores[0]),)
