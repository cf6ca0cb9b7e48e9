"""The loss of rows of scores as a torch operator with a derivative, in eager mode and under torch.compile.

In eager mode the forward also computes the gradient, in one pass over the scores, and the backward only multiplies it in place by the
upstream gradient. The backward computes the gradient itself under torch.compile, in float16 (where an unscaled gradient would underflow),
and when it runs twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from noisewise.exact import applied
from noisewise.kernels import _launch
from noisewise.kernels._encoding import decode
from noisewise.kernels._switch import off


def _compute(
    scores: Tensor,
    target: Tensor,
    loss: str,
    numbers: Sequence[float],
    class_weight: Tensor | None,
    sample_weight: Tensor | None,
    upstream: Tensor | None,
    ignore_index: int,
    reduction: str,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    slopes = torch.empty(scores.shape if gradient else (0,), dtype=scores.dtype, device=scores.device)
    losses = _launch.run(
        scores,
        target,
        loss,
        numbers,
        class_weight=class_weight,
        sample_weight=sample_weight,
        upstream=upstream,
        ignore_index=ignore_index,
        mean=reduction == "mean",
        gradient=slopes if gradient else None,
    )
    return losses if reduction == "none" else _launch.add_up(losses), slopes


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    scores, target, ctx.loss, ctx.numbers, class_weight, sample_weight, _, ctx.ignore_index, ctx.reduction, _ = inputs
    ctx.save_for_backward(scores, target, class_weight, sample_weight, output[1])
    ctx.set_materialize_grads(False)
    ctx.used = False


def _backward(ctx: Any, upstream: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    scores, target, class_weight, sample_weight, gradient = ctx.saved_tensors
    others = (target, ctx.loss, ctx.numbers, class_weight, sample_weight)
    result = None
    if upstream is not None:
        if torch.is_grad_enabled():
            result = _differentiable(ctx, scores, *others, upstream)
        elif gradient.numel() and not ctx.used:
            ctx.used = True
            result = _launch.scale_(gradient, upstream.expand(len(scores)))
        else:
            result = rows(scores, *others, upstream.expand(len(scores)), ctx.ignore_index, ctx.reduction, True)[1]
    return result, *[None] * 9


def _differentiable(
    ctx: Any,
    scores: Tensor,
    target: Tensor,
    loss: str,
    numbers: Sequence[float],
    class_weight: Tensor | None,
    sample_weight: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """The gradient by torch, which can be differentiated again."""
    criterion = decode(loss, numbers)
    criterion.weight, criterion.ignore_index, criterion.reduction = class_weight, ctx.ignore_index, "none"
    with off():
        losses = criterion(scores.float(), target, sample_weight=sample_weight)
    if ctx.reduction == "mean":
        counted = (target.long() != ctx.ignore_index).float()
        if class_weight is not None:
            counted = counted * class_weight[target.clamp(0, scores.shape[1] - 1)]
        number = (counted if sample_weight is None else counted * sample_weight).sum()
        losses = losses / torch.where(number == 0, 1.0, number)
    return torch.autograd.grad(losses, scores, upstream.expand(len(scores)), create_graph=True)[0]


rows = torch.library.custom_op("noisewise::rows", _compute, mutates_args=())
rows.register_autograd(_backward, setup_context=_save_context)


@rows.register_fake
def _shapes(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    losses = scores.new_empty(scores.shape[:1] if others[-2] == "none" else (), dtype=torch.float32)
    return losses, scores.new_empty(scores.shape if others[-1] else (0,))


class _Rows(torch.autograd.Function):
    """The operator without torch's dispatcher, which takes longer than the kernel on a small batch."""

    forward = staticmethod(_compute)
    backward = staticmethod(_backward)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _save_context(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])


def loss_of_rows(
    scores: Tensor,
    target: Tensor,
    loss: str,
    numbers: list[float],
    class_weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """The losses of the rows of (N, C) scores after the reduction, differentiable in the scores."""
    arguments = (scores, target, loss, numbers, class_weight, sample_weight, None, ignore_index, reduction)
    if torch.compiler.is_compiling():
        return rows(*arguments, False)[0]  # type: ignore[no-any-return]
    early = scores.requires_grad and torch.is_grad_enabled() and scores.dtype != torch.float16
    return applied(_Rows, *arguments, early)[0]  # type: ignore[no-any-return]
