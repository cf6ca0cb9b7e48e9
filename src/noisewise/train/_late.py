"""A tally for the CPU, where a small operation costs as much as the arithmetic of a small batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from noisewise.train._step import Tally


@dataclass
class LateTally(Tally):
    """A tally that collects the results of steps and sums them up when `settle` is called, in the same order and so with the same bits.

    Args:
        seen: of every batch, the number of its step, the sum of its margins, and its highest |score|.
        sums: of every step, the arguments of `add`.
    """

    seen: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    sums: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def clear(self) -> None:
        self.seen.clear()
        self.sums.clear()
        super().clear()

    def note(self, index: Tensor, scores: Tensor, margins: Tensor, number: Tensor) -> None:
        self.margins[index] = margins.to(self.margins.dtype)
        self.predictions[index] = scores.argmax(1)
        self.seen.append((int(number), margins.sum(), scores.abs().amax()))

    def add(self, sums: Tensor, counts: Tensor, eta: Tensor) -> None:
        self.sums.append((sums, counts, eta))

    @torch.no_grad()
    def settle(self) -> None:
        if self.seen:
            numbers, totals, highest = zip(*self.seen, strict=True)
            broken = torch.stack(totals).isfinite().logical_not().nonzero()
            if len(broken) and int(self.bad_step) < 0:
                self.bad_step.fill_(numbers[int(broken[0])])
            known = torch.stack(highest).double()
            self.worst.copy_(torch.fmax(self.worst, known.masked_fill(known.isnan(), 0).amax()))
        if self.sums:
            sums, counts, eta = (torch.stack(column) for column in zip(*self.sums, strict=True))
            pull, loss = sums[:, :2], sums[:, 2]
            eta = eta.unsqueeze(1)
            for total, parts in (
                (self.emphasis, pull),
                (self.pull, eta * pull),
                (self.eta, eta * counts),
                (self.number, counts),
                (self.loss, loss),
            ):
                total.copy_(torch.cat([total.unsqueeze(0), parts]).cumsum(0)[-1])  # torch.sum would add in another order
        self.seen.clear()
        self.sums.clear()
