"""The fast path of margin losses on the CPU: a batch of labels from scores to one number in a single step of autograd.

A small batch costs little but the overhead of each operation, so this does with as few as possible. It takes what training passes most
often and leaves everything else to the general path of `Loss`: class weights, ignored labels, soft targets, torch.func, torch.compile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from noisewise.exact import applied, gradient_of_parts, parts_of

_TENSORS = (Tensor, nn.Parameter)
_TYPES = (torch.float32, torch.float64)


def is_plain(scores: Tensor, target: Tensor) -> bool:
    """Whether a batch is scores (N, C) and labels (N,) on the CPU, in eager mode, without forward-mode derivatives."""
    if torch.compiler.is_compiling() or type(scores) not in _TENSORS or type(target) is not Tensor:
        return False
    if not (scores.is_cpu and target.is_cpu) or target.dtype is not torch.int64 or scores.dtype not in _TYPES or scores.dim() != 2:
        return False
    number, classes = scores.shape
    if number == 0 or classes < 2 or target.shape != (number,):
        return False
    modes = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack()
    return forward_ad._current_level < 0 and not modes


def at_once(loss: Any, scores: Tensor, target: Tensor) -> Tensor | None:
    """The reduced loss of a plain batch, or None if a label is out of range, which may mean that it is to be ignored."""
    try:
        return applied(_Reduced, scores, target.unsqueeze(1), loss, loss.reduction)[0]  # type: ignore[no-any-return]
    except RuntimeError:
        if int(target.min()) >= 0 and int(target.max()) < scores.shape[1]:
            raise
        return None


class _Reduced(torch.autograd.Function):
    """The losses of labels, or their mean or sum, and the parts of their margins.

    As the parts are outputs too, the backward can be differentiated like any function of them.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor, loss: Any, reduction: str) -> tuple[Tensor, ...]:
        d, pull, total = parts_of(scores, label, 1)
        values = loss.of_margin(d, scores.shape[1])
        ctx.loss, ctx.number = loss, len(d) if reduction == "mean" else 1
        ctx.save_for_backward(label, d, pull, total)
        ctx.set_materialize_grads(False)
        return values.squeeze(1) if reduction == "none" else values.mean() if reduction == "mean" else values.sum(), d, pull, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, by_margin: Tensor | None, by_pull: Tensor | None, by_total: Tensor | None) -> Any:
        label, d, pull, total = ctx.saved_tensors
        if grad is not None:
            grad = grad.unsqueeze(1) if grad.dim() else grad
            slope = ctx.loss.emphasis_of(d, pull.shape[1]) * (grad / -ctx.number)
            if not torch.is_grad_enabled():
                times = (slope / total).neg_()
                # No fresh memory for the gradient, unless the graph is kept and the pulls are needed again.
                scaled = pull * times if torch._C._autograd._get_current_graph_task_keep_graph() else pull.mul_(times)
                return scaled.scatter_(1, label, slope), None, None, None
            by_margin = slope if by_margin is None else by_margin + slope
        return gradient_of_parts(label, pull, total, 1, by_margin, by_pull, by_total), None, None, None
