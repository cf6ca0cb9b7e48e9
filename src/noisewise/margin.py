"""The margin, and the emphasis a loss puts on it. Read this first.

A classifier gives scores `s`, one per class; an example carries the label `y`. Its margin is how far the labelled class
stands above all others taken together:

    Δ = s_y − log Σ_{i≠y} exp(s_i)          p_y = sigmoid(Δ)

Every loss that looks at `p_y` alone pulls an example in the direction of its margin's gradient, and differs from the other
losses only in how hard it pulls. That is its emphasis:

    ∂L/∂s = −w(Δ) · ∂Δ/∂s                   w(Δ) = −dL/dΔ ≥ 0,        ‖∂Δ/∂s‖₁ = 2

The margin is computed from the scores, never from probabilities: `(p_j − y_j) / (1 − p_y)` is 0/0 as soon as `p_y` rounds to
one. This module knows scores and labels. It must not know any particular loss.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from noisewise.errors import InputError, must

Parts = tuple[Tensor, Tensor, Tensor]
"""A margin, the pull of each other class up to one factor (0 at the label), and the sum of the pulls."""


def _from_scores(scores: Tensor, label: Tensor, dim: int) -> Parts:
    """Mask the label, then exp(s − highest) of the others: exact for any scores."""
    others = scores.scatter(dim, label, -torch.inf)
    highest = others.amax(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    pull = others.sub_(highest).exp_()
    total = pull.sum(dim, keepdim=True)
    return (scores.gather(dim, label) - highest) - total.log(), pull, total


def _from_softmax(scores: Tensor, label: Tensor) -> Parts:
    """The same from torch's fused softmax, which is exact until it underflows; the rows where it does are done from the scores.

    1 − p_y is the sum of the other probabilities, so nothing cancels, and log p_y − log(1 − p_y) is the margin.
    """
    pull = scores.softmax(1)
    own = pull.gather(1, label)
    total = pull.scatter_(1, label, torch.zeros_like(own)).sum(1, keepdim=True)
    found = (own / total).log()
    least = {torch.float32: 1e-25, torch.float64: 1e-200}[scores.dtype]
    nearer = torch.minimum(own, total)
    if scores.numel() and not float(nearer.amin()) > least:  # written so that NaN is far too
        far = ~(nearer > least).squeeze(1)
        for whole, part in zip((found, pull, total), _from_scores(scores[far], label[far], 1), strict=True):
            whole[far] = part
    return found, pull, total


class _Margin(torch.autograd.Function):
    """Margin of one label per example, with what its backward needs.

    The pulls are known up to a factor that counts as a constant here, so their derivatives are short; only ratios of them are
    ever used, and those do not depend on it. That keeps double backward exact.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, label: Tensor, dim: int) -> Parts:
        if dim == 1 and scores.dim() == 2 and can_look(scores, label):
            return _from_softmax(scores, label)
        return _from_scores(scores, label, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Parts) -> None:
        _, label, ctx.dim = inputs
        ctx.save_for_backward(label, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        label, pull, total = ctx.saved_tensors
        by_margin, by_pull, by_total = grads
        # A sum of no pulls, where every other score is −inf, has nothing to share out.
        parts = [None if by_margin is None else -by_margin / torch.where(total == 0, 1.0, total), by_pull, by_total]
        given = [part for part in parts if part is not None]
        if not given:
            return None, None, None
        grad = pull * functools.reduce(operator.add, given)
        if by_margin is not None:
            in_place = can_look(grad, label, by_margin)
            grad = grad.scatter_(ctx.dim, label, by_margin) if in_place else grad.scatter(ctx.dim, label, by_margin)
        return grad, None, None


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)` without binding default arguments first, which takes as long as the arithmetic of a small batch."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*args)  # type: ignore[no-untyped-call]
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]


def _class_dim(scores: Tensor) -> int:
    return 1 if scores.dim() > 1 else 0


def margin(scores: Tensor, target: Tensor) -> Tensor:
    """Margin of the labelled class: Δ = s_y − logsumexp of the other scores, so that p_y = sigmoid(Δ).

    Exact in every precision and for any scores: no clamp, no one-hot, no probability. Scores in half precision give a
    float32 margin.

    Args:
        scores: (C,), (N, C) or (N, C, d1, …).
        target: class indices, shaped like the scores without their class dimension.

    Returns:
        The margins, shaped like `target`.

    Example:
        >>> margin(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor([1.3069])
    """
    check_scores(scores, "margin")
    check_labels(scores, target, "margin")
    dim = _class_dim(scores)
    return margin_of(scores, target.long().unsqueeze(dim), dim)[0].squeeze(dim)


def margin_of(scores: Tensor, label: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Margins of unchecked labels that keep their class dimension, and the softmax over the other classes times some factor."""
    found, pull, _ = applied(_Margin, at_least_float(scores), label, dim)
    return found, pull


def margins(scores: Tensor) -> Tensor:
    """Margins of every class, as if each in turn were the label: shaped like the scores.

    Example:
        >>> margins(torch.tensor([[2.0, 0.0, 0.0]])).sigmoid()
        tensor([[0.7870, 0.1065, 0.1065]])
    """
    check_scores(scores, "margins")
    dim = _class_dim(scores)
    scores = at_least_float(scores)
    highest, winner = scores.detach().max(dim, keepdim=True)
    above = scores - highest
    each = above.exp()
    # For any class but the winner, the winner is among the others, so nothing cancels in this difference.
    others = each.sum(dim, keepdim=True) - each.scatter(dim, winner, 0.0)
    return (above - others.log()).scatter(dim, winner, margin_of(scores, winner, dim)[0])


def emphasis(loss: Callable[..., Tensor], scores: Tensor, target: Tensor, *, norm: str = "margin") -> Tensor:
    """How hard a loss pulls each example: half the L1 norm of its gradient with respect to the scores.

    It works for any criterion, ours or not, by differentiating it. A criterion with a `reduction` attribute is asked for
    its unreduced values; one that returns a single number is taken to be a mean over the examples.

    Args:
        loss: a criterion called as ``loss(scores, target)``.
        scores: (C,), (N, C) or (N, C, d1, …).
        target: what the criterion takes: class indices or class probabilities.
        norm: "margin" for the emphasis w = −dL/dΔ (curriculum paper), "l1" for ‖∂L/∂s‖₁ (IMAE and GR papers), twice as much.

    Returns:
        One number per example (shaped like the scores without their class dimension).

    Example:
        >>> scores, target = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])
        >>> emphasis(torch.nn.CrossEntropyLoss(), scores, target)
        tensor([0.2130])
        >>> 1 - scores.softmax(1)[0, 0]
        tensor(0.2130)
    """
    if norm not in ("margin", "l1"):
        raise must("norm", "emphasis", "one of 'margin', 'l1'", norm)
    check_scores(scores, "emphasis")
    scale = {"margin": 0.5, "l1": 1.0}[norm]
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        loss = copy.copy(loss)
        loss.reduction = "none"  # type: ignore[assignment]
    with torch.enable_grad():
        leaf = at_least_float(scores.detach()).requires_grad_()
        values = loss(leaf, target)
        examples = scores.numel() // scores.shape[_class_dim(scores)]
        total = values.sum() if values.dim() else values * examples
        (grad,) = torch.autograd.grad(total, leaf)
    return scale * grad.abs().sum(_class_dim(scores))


def at_least_float(scores: Tensor) -> Tensor:
    """Scores in float32 or better: half-precision scores are widened, once, before any arithmetic."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def check_floating(scores: Tensor, owner: str) -> None:
    """Refuse scores that are not a floating-point tensor."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        got = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(f"The scores given to {owner} must be a floating-point tensor. Got {got} instead.")


def check_some(scores: Tensor, owner: str) -> None:
    """Refuse an empty batch, which has no mean."""
    if scores.numel() == 0:
        raise InputError(f"The batch given to {owner} must hold an example to have a mean. Got scores of shape {tuple(scores.shape)}.")


def check_scores(scores: Tensor, owner: str) -> None:
    """Refuse scores that are not a floating-point tensor with at least two classes."""
    check_floating(scores, owner)
    if scores.dim() == 0 or scores.shape[_class_dim(scores)] < 2:
        raise InputError(
            f"The scores given to {owner} must have at least two classes, shaped (C,), (N, C) or (N, C, d1, …). "
            f"Got shape {tuple(scores.shape)} instead; for one score per label wrap the loss in binary(…)."
        )


def can_look(*tensors: Tensor) -> bool:
    """Whether looking at values costs nothing: on the CPU, outside torch.compile and torch.func transforms."""
    return not torch.compiler.is_compiling() and all(
        tensor.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors
    )


def check_labels(scores: Tensor, target: Tensor, owner: str, ignore_index: int | None = None) -> bool:
    """Refuse labels of the wrong shape, type or range; say whether some of them may have to be ignored.

    The range is looked at only where that costs no device synchronisation: on the CPU, in eager mode. Elsewhere a label
    out of range fails inside torch's own gather, as it does for `nn.CrossEntropyLoss`.
    """
    dim = _class_dim(scores)
    expected = scores.shape[:dim] + scores.shape[dim + 1 :]
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        got = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise InputError(
            f"The target given to {owner} must be a tensor of class indices (integers) shaped {tuple(expected)}, "
            f"or where the loss takes them class probabilities shaped {tuple(scores.shape)}. Got {got} instead."
        )
    if target.shape != expected:
        raise InputError(
            f"The target given to {owner} must have the shape of the scores without their class dimension, {tuple(expected)}. "
            f"Got {tuple(target.shape)} instead."
        )
    if not can_look(target) or target.numel() == 0:
        return ignore_index is not None
    classes = scores.shape[dim]
    low, high = (int(bound) for bound in torch.aminmax(target))
    if low >= 0 and high < classes and (ignore_index is None or not low <= ignore_index <= high):
        return False
    wrong = (target < 0) | (target >= classes)
    if ignore_index is not None:
        wrong &= target != ignore_index
    if wrong.any():
        excepted = "" if ignore_index is None else f" or the ignore_index {ignore_index}"
        raise InputError(
            f"The target given to {owner} must hold class indices from 0 to {classes - 1}{excepted}. "
            f"Got {int(target[wrong].flatten()[0])} instead."
        )
    return ignore_index is not None
