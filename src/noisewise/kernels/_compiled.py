"""A loss compiled for the CPU: for large batches of a loss that is called very often, and only where it is asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noisewise.kernels._switch import say
from noisewise.losses import Loss, get


class Compiled(nn.Module):
    """A loss behind torch.compile, with the loss itself as fallback."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self._quick: Any = None
        self._failed = False

    def forward(self, scores: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        if self._failed:
            return self.loss(scores, target, sample_weight=sample_weight)  # type: ignore[no-any-return]
        if self._quick is None:
            # What the loss keeps for a device and type must be there before it is traced; what is wrong with the input is said here.
            self.loss(scores.detach(), target, sample_weight=sample_weight)
            self._quick = torch.compile(self.loss, dynamic=True)
        try:
            return self._quick(scores, target, sample_weight=sample_weight)  # type: ignore[no-any-return]
        except Exception as error:
            value: Tensor = self.loss(scores, target, sample_weight=sample_weight)
            self._failed = True
            say(f"torch.compile cannot compile {self.loss.name}: {type(error).__name__}")
            return value


def compiled(loss: str | Loss) -> Compiled:
    """The same loss through torch.compile's C++ backend, for any shape of batch; without a compiler it is the loss itself.

    Compiling takes seconds at the first call, so nothing here is compiled unasked. It pays for large batches of few classes,
    called a few thousand times: docs/kernels.md has the measurements.

    Args:
        loss: any loss, or its spec.

    Returns:
        A module that is called like the loss.

    Example:
        >>> compiled("gce(q=0.7)").loss
        gce(q=0.7)
    """
    return Compiled(get(loss))
