"""A loss compiled for the CPU, for large batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noisewise.kernels._switch import log_once
from noisewise.losses import Loss, get


class Compiled(nn.Module):
    """A loss behind torch.compile, with the loss itself as fallback."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self._compiled: Any = None
        self._failed = False

    def forward(self, scores: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        if self._failed:
            return self.loss(scores, target, sample_weight=sample_weight)  # type: ignore[no-any-return]
        if self._compiled is None:
            self.loss(scores.detach(), target, sample_weight=sample_weight)  # checks the input and fills caches before tracing
            self._compiled = torch.compile(self.loss, dynamic=True)
        try:
            return self._compiled(scores, target, sample_weight=sample_weight)  # type: ignore[no-any-return]
        except Exception as error:
            value: Tensor = self.loss(scores, target, sample_weight=sample_weight)
            self._failed = True
            log_once(f"torch.compile cannot compile {self.loss.name}: {type(error).__name__}")
            return value


def compiled(loss: str | Loss) -> Compiled:
    """Compile a loss with torch.compile, for any shape of batch; without a C++ compiler the loss itself is called.

    The first call takes seconds. This pays off for large batches with few classes and thousands of calls; see docs/speed.md.

    Args:
        loss: any loss, or its spec.

    Returns:
        A module that is called like the loss.

    Example:
        >>> compiled("gce(q=0.7)").loss
        gce(q=0.7)
    """
    return Compiled(get(loss))
