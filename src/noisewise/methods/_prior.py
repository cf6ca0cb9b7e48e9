"""The penalty that keeps predictions from falling into a few classes."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from noisewise.methods._batch import Batch


class Prior(NamedTuple):
    """The divergence between equally frequent classes and the mean prediction of a batch.

    Args:
        value: the divergence, without dimensions.
        gradients: of ``value`` times the size of the batch with respect to the scores of every view, (n, classes).
    """

    value: Tensor
    gradients: tuple[Tensor, ...]


def uniform_prior(batch: Batch, *probabilities: Tensor) -> Prior:
    """KL(uniform ‖ mean of p over the whole batch), for the probabilities of one or more views of the batch.

    Example:
        >>> import torch
        >>> batch = Batch(*[torch.arange(2)] * 3, lambda inputs: inputs, 2, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
        >>> uniform_prior(batch, torch.tensor([[0.9, 0.1], [0.1, 0.9]])).value  # both classes are equally frequent
        tensor(0.)
    """
    views, classes = len(probabilities), probabilities[0].shape[1]
    mean = batch.total(sum(p.sum(0) for p in probabilities)) / (views * batch.whole)  # type: ignore[arg-type]
    mean = mean.clamp(min=1e-30)  # a class that is never predicted has the largest finite penalty
    value = -mean.log().mean() - math.log(classes)
    slope = -1 / (views * classes * mean)
    return Prior(value, tuple(p * (slope - (p * slope).sum(1, keepdim=True)) for p in probabilities))
