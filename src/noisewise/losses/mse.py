import torch
from torch import Tensor

from noisewise.exact import margin_of
from noisewise.losses._base import Loss
from noisewise.margin import margins


class MSE(Loss, name="mse"):
    """Squared error of the whole prediction (Brier score): MAE-like emphasis plus a pull towards undecided others.

    Formula:
        L = Σ_i (p_i − [i = y])² = (1 − p_y)² (1 + Σ_{i≠y} r_i²),  r = softmax over the other classes
        w: by differentiation

    Example:
        >>> MSE()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0681)

    Reference:
        Ghosh, Kumar & Sastry, Robust loss functions under label noise for deep neural networks, AAAI 2017.
    """

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        d, pull = margin_of(scores, target.unsqueeze(1), 1)
        total = pull.sum(1, keepdim=True)
        others = pull / torch.where(total == 0, 1.0, total)
        return (-d).sigmoid().squeeze(1) ** 2 * (1 + (others**2).sum(1))

    def per_class(self, scores: Tensor) -> Tensor:
        d = margins(scores)
        squares = d.sigmoid() ** 2
        largest = squares.argmax(1, keepdim=True)  # without it the others are summed anew: a difference would cancel
        others = squares.sum(1, keepdim=True) - squares
        return (-d).sigmoid() ** 2 + others.scatter(1, largest, squares.scatter(1, largest, 0.0).sum(1, keepdim=True))
