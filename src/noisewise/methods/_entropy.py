"""The entropy of predictions, with its gradient."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Entropy(NamedTuple):
    """The entropy of predicted probabilities.

    Args:
        value: of every example, (n, 1).
        gradient: of the sum of the values with respect to the scores, (n, classes).
        p: the probabilities, (n, classes).
        log_p: their logarithms.
    """

    value: Tensor
    gradient: Tensor
    p: Tensor
    log_p: Tensor


def entropy_of(scores: Tensor) -> Entropy:
    """The entropy of the softmax of scores.

    Example:
        >>> import torch
        >>> entropy_of(torch.zeros(1, 4)).value  # log 4
        tensor([[1.3863]])
    """
    log_p = scores.log_softmax(1)
    p = log_p.exp()
    value = -(p * log_p).sum(1, keepdim=True)
    return Entropy(value, -p * (log_p + value), p, log_p)
