"""The fast path of margin losses on the CPU: a batch of labels from scores to one number in a single step of autograd.

A small batch costs little but the overhead of each operation, so this does with as few as possible. It takes what training passes most
often and leaves everything else to the general path of `Loss`: class weights, ignored labels, soft targets, torch.func, torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from noisewise.exact import from_softmax, gradient_of_parts, may_overwrite, total_of

_TENSORS = (Tensor, nn.Parameter)
_TYPES = (torch.float32, torch.float64)


def is_plain(scores: Tensor, target: Tensor) -> bool:
    """Whether a batch is scores (N, C) and labels (N,) from 0 to C − 1, on the CPU, in eager mode, without forward-mode derivatives."""
    if torch.compiler.is_compiling() or type(scores) not in _TENSORS or type(target) is not Tensor:
        return False
    if not (scores.is_cpu and target.is_cpu) or target.dtype is not torch.int64 or scores.dtype not in _TYPES or scores.dim() != 2:
        return False
    number, classes = scores.shape
    if number == 0 or classes < 2 or target.shape != (number,) or forward_ad._current_level >= 0:
        return False
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return False
    low, high = torch.aminmax(target)
    return int(low) >= 0 and int(high) < classes


def at_once(loss: Any, scores: Tensor, target: Tensor) -> Tensor:
    """The reduced loss of a plain batch."""
    if loss.adapts:
        loss.notice(scores, target)
    return _reduced(scores, target.unsqueeze(1), loss, loss.reduction)[0]


class _Reduced(torch.autograd.Function):
    """The losses of labels, or their mean or sum; their margins, and the pull of each other class, as in `Parts`.

    As the margins and pulls are outputs too, the backward can be differentiated like any function of them.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor, loss: Any, reduction: str) -> tuple[Tensor, Tensor, Tensor]:
        d, pull, total = from_softmax(scores, label)
        values = loss.of_margin(d, scores.shape[1])
        ctx.loss, ctx.number = loss, len(d) if reduction == "mean" else 1
        ctx.save_for_backward(label, d, pull, total)
        ctx.set_materialize_grads(False)
        return values.squeeze(1) if reduction == "none" else values.mean() if reduction == "mean" else values.sum(), d, pull

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, by_margin: Tensor | None, by_pull: Tensor | None) -> Any:
        label, d, pull, total = ctx.saved_tensors
        if grad is None:
            return gradient_of_parts(label, pull, total_of(pull), 1, by_margin, by_pull), None, None, None
        emphasis, grad = ctx.loss.emphasis_of(d, pull.shape[1]), grad.unsqueeze(1) if grad.dim() else grad
        if by_margin is None and by_pull is None and may_overwrite(grad):
            zero = _ZEROS[d.dtype]  # so that a product with a number is one operation
            slope = torch.addcmul(zero, emphasis, grad, value=-1 / ctx.number)
            factor = torch.addcdiv(zero, slope, total, value=-1)
            return pull.detach().mul_(factor).scatter_(1, label, slope), None, None, None
        slope = emphasis * (grad / -ctx.number)
        by_margin = slope if by_margin is None else by_margin + slope
        return gradient_of_parts(label, pull, total_of(pull), 1, by_margin, by_pull), None, None, None


_reduced: Callable[..., tuple[Tensor, ...]] = super(torch.autograd.Function, _Reduced).apply  # see `applied`
_ZEROS = {kind: torch.zeros((), dtype=kind) for kind in _TYPES}
