"""What an epoch shows of its examples: the margin and prediction of each, and how hard right and wrong labels pulled.

Everything stays in tensors on the device until the epoch ends. This module must not know models, losses or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from noisewise.data import Dataset


@dataclass
class Tally:
    """What an epoch's steps add up, on the device.

    Args:
        margins: of every example when its turn came; NaN before.
        predictions: the class with the highest score then; −1 before.
        pull: Σ η w over right and over wrong labels, where w is half the L1 norm of ∂L/∂scores and η the learning rate.
        eta: Σ η over the same.
        emphasis: Σ w over the same.
        number: how many right and wrong labels there were; an example that came twice counts twice.
        loss: Σ loss, where it does not follow from the margins.
        bad_step: the first step whose loss was not finite, or −1.
        worst: the largest |score| so far.
    """

    margins: Tensor
    predictions: Tensor
    pull: Tensor
    eta: Tensor
    emphasis: Tensor
    number: Tensor
    loss: Tensor
    bad_step: Tensor
    worst: Tensor

    @classmethod
    def of(cls, number: int, device: torch.device) -> Tally:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        whole = torch.full((number,), -1, dtype=torch.int64, device=device)
        nan = torch.full((number,), torch.nan, device=device)
        return cls(nan, whole, zeros(2), zeros(2), zeros(2), zeros(2), zeros(), whole.new_full((), -1), zeros())

    def clear(self) -> None:
        for name, value in vars(self).items():
            value.fill_({"margins": torch.nan, "predictions": -1, "bad_step": -1}.get(name, 0))

    def gather(self) -> None:
        """Put together what the processes of a data-parallel run tallied, every example once."""
        never = torch.iinfo(self.bad_step.dtype).max
        self.margins.nan_to_num_(nan=-torch.inf)
        self.bad_step.masked_fill_(self.bad_step < 0, never)
        dist.all_reduce(self.bad_step, dist.ReduceOp.MIN)
        for value in (self.margins, self.predictions, self.worst):
            dist.all_reduce(value, dist.ReduceOp.MAX)
        self.margins.masked_fill_(self.margins == -torch.inf, torch.nan)
        self.bad_step.masked_fill_(self.bad_step == never, -1)
        for value in (self.pull, self.eta, self.emphasis, self.number, self.loss):
            dist.all_reduce(value)

    @torch.no_grad()
    def note(self, index: Tensor, scores: Tensor, margins: Tensor, number: Tensor) -> None:
        """Note what a step showed of some examples.

        Args:
            index: their positions.
            scores: (N, C).
            margins: of their labels; not finite where the loss is not.
            number: of the step.
        """
        self.margins[index] = margins.to(self.margins.dtype)
        self.predictions[index] = scores.argmax(1)
        broken = ~torch.isfinite(margins.sum()) & (self.bad_step < 0)
        self.bad_step.copy_(torch.where(broken, number, self.bad_step))
        self.worst.copy_(torch.fmax(self.worst, scores.abs().amax().double()))

    @torch.no_grad()
    def add(self, sums: Tensor, counted: Tensor, eta: Tensor) -> None:
        """Add up what a batch showed.

        Args:
            sums: Σ w of right labels, of wrong labels, and Σ loss.
            counted: how many right and wrong labels it had.
            eta: the learning rate.
        """
        self.emphasis += sums[:2]
        self.pull += eta * sums[:2]
        self.eta += eta * counted
        self.number += counted
        self.loss += sums[2]

    def shown(self, told_apart: bool) -> dict[str, Any]:
        """How hard the loss pulled, as a line of metrics has it; right and wrong labels for themselves where they are told apart."""
        pull, eta = self.pull.tolist(), self.eta.tolist()
        groups = ("clean", "noisy") if told_apart else ("all",)
        return {
            "mean_emphasis": float(self.emphasis.sum()) / float(self.number.sum()),
            "emphasis": {group: {"pull": pull[position], "eta": eta[position]} for position, group in enumerate(groups)},
        }


def right_and_wrong(data: Dataset) -> Tensor:
    """(2, N) 1 where a label is right and where it is wrong; all are right where that is not known."""
    wrong = data.wrong if data.wrong is not None else torch.zeros_like(data.labels, dtype=torch.bool)
    return torch.stack([~wrong, wrong]).double()
