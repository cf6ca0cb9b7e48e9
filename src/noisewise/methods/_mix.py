"""Mixing the examples of a batch in pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull


def symmetric_beta(a: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """A random number from Beta(a, a), without dimensions and without rejected draws, so that it also works inside a CUDA graph.

    The formula is from Devroye, Random variate generation in one line of code, 1996: with uniform U and V,
    ½ (1 + c · √(1 − r) / √(r + (1 − r) c²)) for r = U^(1/a) and c = cos(2πV).

    Example:
        >>> symmetric_beta(1e6, torch.Generator().manual_seed(0), torch.device("cpu")).round(decimals=2)
        tensor(0.5000)
    """
    u, v = torch.rand(2, generator=generator, device=device, dtype=torch.float64)
    r = (1 - u) ** (1 / a)  # from 0 to 1, where 1 − u is never 0
    c = (2 * math.pi * v).cos()
    return (0.5 + 0.5 * c * (1 - r).sqrt() / (r + (1 - r) * c.square()).sqrt()).float()


def partners(batch: Batch) -> Tensor:
    """The position in the whole batch of the partner of every example: a random order of the batch."""
    return batch.own(batch.permutation())


def mix(batch: Batch, rows: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """``lam`` of the row of every example, and 1 − ``lam`` of the row of its partner.

    Example:
        >>> batch = Batch(*[torch.arange(2)] * 3, lambda inputs: inputs, 2, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
        >>> mix(batch, torch.tensor([0.0, 1.0]), torch.tensor([1, 0]), torch.tensor(0.75))
        tensor([0.2500, 0.7500])
    """
    return lam * rows + (1 - lam) * batch.gather(rows)[partner]


def mixed_pull(loss: LossPull, batch: Batch, scores: Tensor, partner: Tensor, lam: Tensor) -> Pull:
    """The pull of the loss towards the mixture of the label of every example and the label of its partner."""
    own, other = (loss.rows(scores, labels) for labels in (batch.labels, batch.gather(batch.labels)[partner]))
    assert own.value is not None and other.value is not None
    return Pull(lam * own.gradient + (1 - lam) * other.gradient, lam * own.value + (1 - lam) * other.value)
