"""The emphasis of a margin loss among a known number of classes: a curriculum inside it may need that number."""

from __future__ import annotations

import torch
from torch import Tensor

from noisewise.losses import MarginLoss


def emphasis_among(loss: MarginLoss, d: Tensor, classes: int) -> Tensor:
    """How hard a loss pulls at margins `d` when there are so many classes: −∂L/∂Δ."""
    with torch.enable_grad():
        leaf = d.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss.of_margin(leaf, classes).sum(), leaf)
    return -slope
