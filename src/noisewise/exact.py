"""Compute margins exactly in every precision, differentiable to any order.

`(p_j − y_j) / (1 − p_y)` is 0/0 when `p_y` rounds to one, so nothing here subtracts a probability from one: 1 − p_y is the sum of the other
probabilities, or is not computed.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import logsigmoid

Parts = tuple[Tensor, Tensor, Tensor]
"""A margin, the pull of each other class up to one factor (0 at the label), and the sum of the pulls (1 if every other score is −inf)."""

_NEAR = {torch.float32: 57.0, torch.float64: 460.0}
"""The margins up to which neither p nor 1 − p underflows in a softmax: exp(−57) is 2e-25."""

_WIDE = 16
"""The classes from which on torch's softmax uses vector instructions; with fewer it takes several times as long as it need."""


def _from_scores(scores: Tensor, label: Tensor, dim: int) -> Parts:
    """The parts from exp(s − highest) of the other classes: exact for any scores."""
    others = scores.scatter(dim, label, -torch.inf)
    highest = others.amax(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    pull = others.sub_(highest).exp_()
    total = pull.sum(dim, keepdim=True)
    d = (scores.gather(dim, label) - highest) - total.log()
    return d, pull, torch.where(total == 0, 1.0, total)


def from_softmax(scores: Tensor, label: Tensor) -> Parts:
    """The parts from torch's fused softmax; rows where it underflows are computed from the scores.

    1 − p_y is the sum of the other probabilities, so nothing cancels, and the margin is log p_y − log(1 − p_y).
    """
    pull = scores.softmax(1) if scores.shape[1] >= _WIDE else (scores - scores.amax(1, keepdim=True)).exp_()
    own = pull.gather(1, label)
    total = pull.scatter_(1, label, torch.zeros_like(own)).sum(1, keepdim=True)  # a number instead of zeros is slower
    d = (own / total).log_()
    if scores.numel() and not is_near(d):
        far = ~(d.abs() < _NEAR[d.dtype]).squeeze(1)
        for whole, part in zip((d, pull, total), _from_scores(scores[far], label[far], 1), strict=True):
            whole[far] = part
    return d, pull, total


def log_softmax(scores: Tensor) -> Tensor:
    """log p of every class. One near 0 has an error like one near −1, so use them in sums over three classes or more."""
    if scores.shape[1] >= _WIDE:
        return scores.log_softmax(1)
    behind = scores - scores.amax(1, keepdim=True)
    return behind.sub_(behind.exp().sum(1, keepdim=True).log_())


def is_near(d: Tensor) -> bool:
    """Whether at none of these margins p or 1 − p underflows in a softmax; false for NaN."""
    low, high = torch.aminmax(d)
    return -_NEAR[d.dtype] < float(low) and float(high) < _NEAR[d.dtype]


class _Margin(torch.autograd.Function):
    """The margin of one label per example, and the tensors that its backward needs.

    The pulls have an arbitrary factor, which is treated as a constant here. Only their ratios are used, which do not depend on it, so
    double backward is exact.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, label: Tensor, dim: int) -> Parts:
        return parts_of(scores, label, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Parts) -> None:
        _, label, ctx.dim = inputs
        ctx.save_for_backward(label, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        label, pull, total = ctx.saved_tensors
        return gradient_of_parts(label, pull, total, ctx.dim, *grads), None, None


def parts_of(scores: Tensor, label: Tensor, dim: int) -> Parts:
    """The parts of the margins of labels, in the fastest way that is exact."""
    if dim == 1 and scores.dim() == 2 and can_look(scores, label):
        return from_softmax(scores, label)
    return _from_scores(scores, label, dim)


def gradient_of_parts(
    label: Tensor, pull: Tensor, total: Tensor, dim: int, by_margin: Tensor | None, by_pull: Tensor | None, by_total: Tensor | None = None
) -> Tensor | None:
    """The gradient with respect to the scores, from the gradients with respect to the parts."""
    parts = [None if by_margin is None else -by_margin / total, by_pull, by_total]
    present = [part for part in parts if part is not None]
    if not present:
        return None
    grad = pull * functools.reduce(operator.add, present)
    return grad if by_margin is None else put(grad, label, by_margin, dim)


def other_classes(scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The margins of labels, with the class dimension (1) kept, and the softmax over the other classes, which is 0 at the label.

    The logarithm of the softmax is the third tensor less the fourth, which has one entry in dimension 1.
    """
    others = scores.scatter(1, label, -torch.inf)
    highest = others.amax(1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    pull = others.sub_(highest).exp()
    total = pull.sum(1, keepdim=True)
    d = (scores.gather(1, label) - highest) - total.log()
    total = torch.where(total == 0, 1.0, total)
    return d, pull.div_(total), others, total.log()


class _OtherCosts(torch.autograd.Function):
    """The margin, the cost −log p of every class except the label (0 at the label), and the softmax over these classes.

    All values and derivatives are sums of terms with one sign: with `e`, the gradient by the costs, they are p_y Σ e for the label, and its
    part r of that and r Σ e − e for another class. The softmax has no gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, label: Tensor) -> Parts:
        d, softmax, behind, log_total = other_classes(scores, label)
        costs = (log_total - logsigmoid(-d)) - behind
        return d, put(costs, label, torch.zeros_like(d)), softmax

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Parts) -> None:
        ctx.save_for_backward(*inputs, output[0], output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, by_margin: Tensor | None, by_costs: Tensor | None, _: None) -> tuple[Tensor, None]:
        scores, label, d, softmax = ctx.saved_tensors
        by_margin = torch.zeros_like(d) if by_margin is None else by_margin
        by_costs = torch.zeros_like(softmax) if by_costs is None else by_costs
        if torch.is_grad_enabled():  # for second derivatives
            d, softmax = margin_and_softmax(scores, label)
        by_all = by_costs.sum(1, keepdim=True) - by_costs.gather(1, label)
        own = by_margin + d.sigmoid() * by_all
        if scores.shape[1] == 2:
            return (-own.expand_as(scores)).scatter(1, label, own), None
        grad = softmax * (by_all - own) - by_costs
        return put(grad, label, own), None


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)` without its overhead, which is as large as the arithmetic of a small batch."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*args)  # type: ignore[no-untyped-call]
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]


def margin_of(scores: Tensor, label: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The margins of unchecked labels, with the class dimension kept, and the softmax over the other classes times some factor."""
    scores = at_least_float(scores)
    if going_forward():
        others = scores.scatter(dim, label, -torch.inf)
        return scores.gather(dim, label) - others.logsumexp(dim, keepdim=True), others.softmax(dim)
    d, pull, _ = applied(_Margin, scores, label, dim)
    return d, pull


def margin_and_softmax(scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The margins of labels, with the class dimension (1) kept, and the softmax over the other classes; both can be differentiated."""
    d, pull = margin_of(scores, label, 1)
    return d, pull / total_of(pull)


def total_of(pull: Tensor) -> Tensor:
    """The sum of the pulls of every row, or 1 if all of them are 0."""
    total = pull.sum(1, keepdim=True)
    return torch.where(total == 0, 1.0, total)


def other_costs(scores: Tensor, label: Tensor) -> Parts:
    """The margins of labels, with the class dimension (1) kept; −log p of the other classes, 0 at the label; the softmax over them."""
    d, costs, softmax = applied(_OtherCosts, scores, label)
    return d, costs, softmax.detach()


def may_overwrite(grad: Tensor) -> bool:
    """Whether a backward may overwrite what was saved for it alone: it is neither differentiated nor kept to be called again."""
    return (
        not torch.is_grad_enabled()
        and can_look(grad)
        and not torch._C._functorch.is_legacy_batchedtensor(grad)  # several outputs are differentiated at once
        and not torch._C._autograd._get_current_graph_task_keep_graph()
    )


def put(values: Tensor, label: Tensor, entries: Tensor, dim: int = 1) -> Tensor:
    """Values with other entries at the labels, in place unless torch.func is active."""
    return values.scatter_(dim, label, entries) if can_look(values, label, entries) else values.scatter(dim, label, entries)


def going_forward() -> bool:
    """Whether forward-mode derivatives are active (`torch.func.jvp`, `hessian`), which need torch's own operations.

    A custom `jvp` would not help: torch.compile refuses a function that has one, and a jvp of a jvp would be wrong.
    """
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def can_keep() -> bool:
    """Whether a tensor created now can be cached; one created inside torch.compile or torch.func is invalid outside."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def at_least_float(scores: Tensor) -> Tensor:
    """Convert half-precision scores to float32; others stay as they are."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def autocasts(scores: Tensor) -> bool:
    """Whether autocast is on for the device of the scores; never on "meta"."""
    return not scores.is_meta and torch.is_autocast_enabled(scores.device.type)


def seen_finite(values: Tensor) -> bool:
    """Whether all values are known to be finite; False if checking would cost time."""
    return can_look(values) and math.isfinite(float(values.detach().sum()))


def can_look(*tensors: Tensor) -> bool:
    """Whether values can be read without cost: on the CPU, outside torch.compile, torch.func transforms and tracing."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return all(tensor.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)
