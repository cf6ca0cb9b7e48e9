"""Early-learning regularisation: the penalty on predictions that leave their earlier values."""

from __future__ import annotations

from torch import Tensor

from noisewise.methods._pull import Pull


def clipped_softmax(scores: Tensor) -> Tensor:
    """Probabilities clipped to [10⁻⁴, 1 − 10⁻⁴] and divided by their sum, so that no penalty is infinite.

    Example:
        >>> import torch
        >>> clipped_softmax(torch.tensor([[50.0, 0.0]]))
        tensor([[9.9990e-01, 1.0000e-04]])
    """
    p = scores.softmax(1).clamp(1e-4, 1 - 1e-4)
    return p / p.sum(1, keepdim=True)


def early_learning(p: Tensor, targets: Tensor) -> Pull:
    """The pull of log(1 − ⟨p, t⟩) for the probabilities of scores and constant targets.

    Example:
        >>> import torch
        >>> early_learning(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]])).gradient
        tensor([[-0.5000,  0.5000]])
    """
    agreement = (p * targets).sum(1, keepdim=True)
    # ∂ log(1 − ⟨p, t⟩) / ∂scores = −p (t − ⟨p, t⟩) / (1 − ⟨p, t⟩)
    return Pull(-p * (targets - agreement) / (1 - agreement), (1 - agreement).log().squeeze(1))
