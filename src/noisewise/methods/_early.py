"""Early-learning regularisation: the penalty on predictions that leave their earlier values."""

from __future__ import annotations

import torch
from torch import Tensor

from noisewise.methods._pull import Pull

_LEAST = 1e-4


def clipped_softmax(scores: Tensor) -> Tensor:
    """Probabilities clipped to [10⁻⁴, 1 − 10⁻⁴] and divided by their sum.

    Example:
        >>> clipped_softmax(torch.tensor([[50.0, 0.0]]))
        tensor([[9.9990e-01, 1.0000e-04]])
    """
    p = scores.softmax(1).clamp(_LEAST, 1 - _LEAST)
    return p / p.sum(1, keepdim=True)


def early_learning(scores: Tensor, targets: Tensor) -> Pull:
    """The pull of log(1 − ⟨p, t⟩) for constant targets, with the probabilities p clipped to [10⁻⁴, 1 − 10⁻⁴].

    A probability that is clipped has no gradient. Otherwise the penalty would pull confident predictions further and further: its
    gradient does not vanish where p and t are equal.

    Example:
        >>> early_learning(torch.tensor([[0.0, 0.0], [20.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])).gradient
        tensor([[-0.5000,  0.5000],
                [ 0.0000,  0.0000]])
    """
    p = scores.softmax(1)
    clipped = p.clamp(_LEAST, 1 - _LEAST)
    rest = 1 - (clipped * targets).sum(1, keepdim=True)
    free = torch.where(clipped == p, targets, 0.0)
    # With u = t where p is not clipped, else 0: ∂ log(1 − ⟨clipped p, t⟩) / ∂scores = p (⟨p, u⟩ − u) / (1 − ⟨clipped p, t⟩)
    return Pull(p * ((p * free).sum(1, keepdim=True) - free) / rest, rest.log().squeeze(1))
