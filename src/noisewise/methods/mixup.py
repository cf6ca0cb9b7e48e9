from collections.abc import Sequence

import torch
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._mix import mix, mixed_pull, partners, symmetric_beta
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class Mixup(Method, name="mixup"):
    """Train on mixtures of two examples and of their labels.

    Formula:
        x = λ · xᵢ + (1 − λ) · xⱼ,    L = λ · loss(yᵢ) + (1 − λ) · loss(yⱼ),    λ ~ Beta(alpha, alpha) in every step

    The partner j of every example is from the same batch. With the loss ``ce`` this is the cross-entropy with the mixed label. The record
    is from a pass without mixing after every epoch.

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

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {"lam": torch.ones((), device=device), "partner": torch.zeros(len(data), dtype=torch.int64, device=device)}

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        state["lam"].copy_(symmetric_beta(self.alpha, batch.generator, batch.index.device))
        state["partner"][batch.index] = partners(batch)
        return (networks[0](mix(batch, batch.view(), state["partner"][batch.index], state["lam"])),)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (mixed_pull(loss, batch, scores[0], state["partner"][batch.index], state["lam"]),)
