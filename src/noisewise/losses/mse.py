from typing import Any

import torch
from torch import Tensor

from noisewise.exact import applied, at_least_float, going_forward, margin_of, may_overwrite, parts_of, put, total_of
from noisewise.losses._base import Loss
from noisewise.margin import margins


class MSE(Loss, name="mse"):
    """Squared error of the whole prediction (Brier score): an emphasis like MAE's, plus a pull that evens out the other classes.

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
        return super().per_example(scores, target, kept) if going_forward() else squared_error(scores, target, 0.0)

    def per_class(self, scores: Tensor) -> Tensor:
        return squared_errors(scores, 0.0)


def squared_error(scores: Tensor, target: Tensor, beyond: float) -> Tensor:
    """Σ_i (p_i − a [i = y])² of the given labels, with a = 1 + `beyond`."""
    return applied(_SquaredError, scores, target.unsqueeze(1), beyond)[0].squeeze(1)  # type: ignore[no-any-return]


def squared_errors(scores: Tensor, beyond: float) -> Tensor:
    """Σ_i (p_i − a [i = y])² of every class as the label, with a = 1 + `beyond`."""
    d = margins(scores)
    squares, rest = d.sigmoid() ** 2, (-d).sigmoid()
    largest = squares.argmax(1, keepdim=True)  # summed separately, because the difference would cancel
    others = squares.sum(1, keepdim=True) - squares
    return (rest + beyond) ** 2 + others.scatter(1, largest, squares.scatter(1, largest, 0.0).sum(1, keepdim=True))


class _SquaredError(torch.autograd.Function):
    """The squared error of 1 + b at the label, with a gradient that does not cancel. It is the error of 1 plus b (2 (1 − p_y) + b).

    For b = 0, the derivative by another class is 2 (1 − p_y)² r_j (p_y + r_j − (1 − p_y) Σ r_i²), which cancels if the others are tied.
    With the largest of them, R, its last factor is p_y (1 + R) + (1 − p_y) Σ r_i (R − r_i), a sum of positive terms, minus R − r_j.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, label: Tensor, beyond: float) -> tuple[Tensor, ...]:
        d, pull, total = parts_of(at_least_float(scores), label, 1)
        largest, behind, spread = _behind(pull, total)
        rest = (-d).sigmoid()
        return (rest + beyond) ** 2 + rest**2 * (largest - spread), d, pull, total, largest, behind, spread

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, ...]) -> None:
        scores, label, ctx.beyond = inputs
        ctx.save_for_backward(scores, label, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        scores, label, d, pull, total, largest, behind, spread = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives
            d, pull = margin_of(scores, label, 1)
            total = total_of(pull)
            largest, behind, spread = _behind(pull, total)
        p, rest = d.sigmoid(), (-d).sigmoid()
        factor, gain = 2 * grad * rest, p * (rest * (1 + largest) + ctx.beyond)
        constant, slope = factor * (rest**2 * spread + gain) / total, factor / total * (rest / total)
        in_place = may_overwrite(grad)
        others = behind.detach().mul_(-slope).add_(constant).mul_(pull) if in_place else (constant - slope * behind) * pull
        return put(others, label, factor * (p * rest * spread - gain)), None, None


def _behind(pull: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For the shares r of the pulls: the largest share R, R − r_i for each times the total, and Σ r_i (R − r_i), which is R − Σ r_i²."""
    most = pull.detach().amax(1, keepdim=True)
    behind = most - pull
    return most / total, behind, (behind * pull).sum(1, keepdim=True) / total / total
