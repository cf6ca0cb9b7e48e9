import math

import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss, MarginLoss
from noisewise.margin import margin
from noisewise.methods._base import Method, Scored, State
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._transition import refuse_other_than_margin
from noisewise.spec import setting


class TruncatedGCE(Method, name="truncated_gce"):
    """Truncated GCE by alternating search: every few epochs, drop the examples whose label has a probability of at most kappa.

    Formula:
        L = v · loss(p) + (1 − v) · loss(kappa)
        v = 1 if p > kappa, else 0,    by the network before epochs warm_up + 1, warm_up + 1 + every, …;  v = 1 before

    Use it with the loss ``gce(q=0.7)`` for the truncated loss of the paper; every other loss of the margin is truncated in the same way.
    The loss ``truncated_gce`` has the same formula, but v follows the scores of every step. Here v is fixed between two changes,
    so an example that was dropped has no gradient until the next change, and may then return. Choose a warm_up in which every class is
    learned: a class without a probability above kappa loses all its examples, and is hardly ever learned again.

    This differs from the paper and from its common PyTorch implementation as follows:

    - v comes from the current network. The paper takes the network with the best validation accuracy so far, and the implementation the
      one with the best test accuracy.
    - v comes from inputs without augmentation. The implementation augments them.
    - The gradients of every epoch are used. In the epoch after each change of v, the implementation computes them for a copy of the
      network, which the optimiser does not update.
    - The batch is averaged, as in the implementation. The paper sums it.

    Args:
        kappa: the probability at or below which an example is dropped.
        warm_up: the number of epochs with all examples.
        every: the number of epochs between two changes of v.

    Example:
        >>> TruncatedGCE(warm_up=20)
        truncated_gce(kappa=0.5, warm_up=20, every=10)

    Reference:
        Zhang & Sabuncu, Generalized cross entropy loss for training deep neural networks with noisy labels, NeurIPS 2018.
    """

    examples = ("truncated_gce(kappa=0.4, warm_up=1, every=1)",)

    kappa: float = setting(default=0.5, bounds="(0, 1)")
    warm_up: int = setting(default=40, bounds="[1, inf)", integer=True)
    every: int = setting(default=10, bounds="[1, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_other_than_margin(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"kept": torch.ones(len(data), dtype=torch.bool, device=data.labels.device), "labels": data.labels.clone()}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        if epoch > self.warm_up and (epoch - self.warm_up - 1) % self.every == 0:
            state["kept"].copy_(margin(scored.scores(None), state["labels"]) > self._threshold)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        assert isinstance(loss.loss, MarginLoss)
        pull, kept = loss.rows(scores[0], batch.labels), state["kept"][batch.index]
        assert pull.value is not None
        dropped = loss.loss.value(torch.full_like(pull.value, self._threshold))
        return (Pull(torch.where(kept.unsqueeze(1), pull.gradient, 0.0), torch.where(kept, pull.value, dropped)),)

    @property
    def _threshold(self) -> float:
        """The margin of the probability kappa."""
        return math.log(self.kappa / (1 - self.kappa))
