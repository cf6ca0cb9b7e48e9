"""Selecting examples of a batch, as weights of fixed shape, so that it also works inside a CUDA graph and over several processes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from noisewise.methods._batch import Batch
from noisewise.methods._pull import Pull


def disagree(scores: tuple[Tensor, ...]) -> Tensor:
    """Which examples two networks predict differently.

    Example:
        >>> disagree((torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[3.0, 2.0], [2.0, 3.0]])))
        tensor([False,  True])
    """
    first, second = (each.argmax(1) for each in scores)
    return first != second


def smallest(batch: Batch, values: Tensor, share: Tensor, among: Tensor | None = None) -> Tensor:
    """Which examples have the smallest values: a share of the whole batch, or of the examples in ``among``, rounded up.

    Example:
        >>> batch = Batch(*[torch.arange(4)] * 3, lambda inputs: inputs, 4, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
        >>> smallest(batch, torch.tensor([0.5, 0.1, 0.3, 0.2]), torch.tensor(0.5))
        tensor([False,  True, False,  True])
    """
    if among is None:
        among = torch.ones_like(values, dtype=torch.bool)
    number = batch.total(among.sum())
    # Rounding errors must not add an example: in float32, 0.6 · 100 is slightly more than 60.
    number = (share * number * (1 - 1e-6)).ceil()
    return among & (batch.rank(values.masked_fill(~among, torch.inf)) < number)


def average(batch: Batch, weight: Tensor) -> Tensor:
    """Rescale weights between 0 and 1 so that the mean over the batch is the mean over the selected examples; 0 if there are none.

    Example:
        >>> batch = Batch(*[torch.arange(4)] * 3, lambda inputs: inputs, 4, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
        >>> average(batch, torch.tensor([True, False, True, False]))
        tensor([2., 0., 2., 0.])
    """
    weight = weight.float()
    return weight * (batch.whole / batch.total(weight.sum()).clamp(min=1))


def weighted(pull: Pull, weight: Tensor) -> Pull:
    """The pull of weighted examples."""
    assert pull.value is not None
    return Pull(pull.gradient * weight.unsqueeze(1), pull.value * weight)


def percentile(values: Tensor, share: float) -> Tensor:
    """The value below which a share of the values lies, interpolated between neighbours.

    Example:
        >>> percentile(torch.tensor([3.0, 1.0, 2.0]), 0.75)
        tensor(2.5000)
    """
    ordered = values.sort().values
    position = share * (len(values) - 1)
    low = math.floor(position)
    return ordered[low].lerp(ordered[min(low + 1, len(values) - 1)], position - low)
