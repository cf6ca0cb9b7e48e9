"""A linear layer and a loss in one operation, computed for a chunk of rows at a time.

For a language model, or a classifier with very many classes, the (N, V) scores need more memory than everything else. Here the scores of
a chunk are computed, replaced by their gradient in place, and multiplied into the gradients of the layer.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisewise.checks import check_labels, check_scores, check_some
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import at_least_float
from noisewise.kernels._encoding import as_loss, encode
from noisewise.kernels._switch import usable
from noisewise.losses import Loss
from noisewise.spec import real

CHUNK_BYTES = 448 * 2**20
"""The size of a chunk of scores; with the workspace of the products, memory stays within 512 MiB."""

TILE = 128  # rows per tile of a matrix product
_TORCH_COPIES = 8  # tensors as large as the scores that torch needs at once


def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    loss: str | Loss = "ce",
    bias: Tensor | None = None,
    sample_weight: Tensor | None = None,
    skip: float = 0.0,
) -> Tensor:
    """The loss of a linear layer, ``loss(hidden @ weight.T + bias, target)``, without storing all scores.

    Needs memory for the gradients of `hidden` and `weight` and 512 MiB, for any number of classes. Differentiable once.

    Args:
        hidden: (…, H), the input of the layer.
        weight: (V, H), the weight of the layer.
        target: (…) class indices.
        loss: any loss that does not depend on the whole batch, or its spec; its class weights, `ignore_index` and `reduction` apply.
        bias: (V,), the bias of the layer.
        sample_weight: a factor per example, shaped like the target.
        skip: leave out of the backward the examples with an emphasis below this, and in each chunk the classes whose ∂loss/∂score is at
            most skip / V. The omitted part of ∂loss/∂scores has an L1 norm below 2·skip per example, before a mean divides it. On a
            GPU this waits for the device. 0 omits nothing.

    Example:
        >>> hidden, weight = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
        >>> target = torch.randint(9, (6,))
        >>> value = linear_loss(hidden, weight, target, loss="gce(q=0.7)")
        >>> torch.allclose(value, as_loss("gce(q=0.7)")(hidden @ weight.T, target))
        True
    """
    loss = as_loss(loss)
    _check(hidden, weight, target, loss, bias, sample_weight, skip)
    kind = hidden.device.type
    wide = torch.is_autocast_enabled(kind)
    if wide:
        half = torch.get_autocast_dtype(kind)
        hidden, weight, bias = hidden.to(half), weight.to(half), None if bias is None else bias.to(half)
    shape, dtype = target.shape, hidden.dtype
    flat = hidden.reshape(-1, hidden.shape[-1])
    if sample_weight is not None:
        sample_weight = sample_weight.reshape(-1).to(torch.promote_types(dtype, torch.float32))
    task = _Task(target.reshape(-1).long(), sample_weight, loss, skip)
    value: Tensor = _LinearLoss.apply(flat, weight, bias, task)  # type: ignore[no-untyped-call]
    value = value.view(shape) if loss.reduction == "none" else value
    return value if wide else value.to(dtype)


def _check(
    hidden: Tensor, weight: Tensor, target: Tensor, loss: Loss, bias: Tensor | None, sample_weight: Tensor | None, skip: float
) -> None:
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[1]:
        shapes = f"{tuple(hidden.shape)} and {tuple(weight.shape)}"
        raise InputError(f"linear_loss takes hidden of shape (…, H) and weight of shape (V, H). Got {shapes} instead.")
    types = [each.dtype for each in (hidden, weight, bias) if each is not None]
    if not hidden.is_floating_point() or (len(set(types)) > 1 and not torch.is_autocast_enabled(hidden.device.type)):
        raise InputError(f"linear_loss takes hidden, weight and bias in one floating-point type. Got {' and '.join(map(str, types))}.")
    classes = weight.shape[0]
    if bias is not None and bias.shape != (classes,):
        raise invalid_parameter("bias", "linear_loss", f"one number for each of the {classes} classes", tuple(bias.shape))
    loss.check_weight(classes)
    if target.shape != hidden.shape[:-1]:
        raise invalid_parameter("target", "linear_loss", f"shaped like hidden without H, {tuple(hidden.shape[:-1])}", tuple(target.shape))
    scores = torch.empty(target.numel(), classes, device="meta")
    check_scores(scores, "linear_loss")
    check_labels(scores, target.reshape(-1), "linear_loss", loss.ignore_index)
    if loss.reduction == "mean":
        check_some(scores, "linear_loss")
    if sample_weight is not None and sample_weight.shape != target.shape:
        raise invalid_parameter("sample_weight", "linear_loss", f"shaped like the target, {tuple(target.shape)}", sample_weight.shape)
    if any(each is not None and each.requires_grad for each in (sample_weight, loss.weight)):
        raise InputError("linear_loss has no gradients for weights of examples and classes. Got one that requires a gradient; detach it.")
    if loss.depends_on_batch:
        raise InputError(f"linear_loss computes a batch in parts, so the loss must not depend on the whole batch. Got {loss!r}.")
    if not 0 <= real(skip) < torch.inf:
        raise invalid_parameter("skip", "linear_loss", "in [0, inf)", skip)


ChunkResult = tuple[Tensor, Tensor, Tensor | None]
"""Losses, gradient and, if rows may be skipped, emphases of a chunk."""


@dataclass(frozen=True)
class _Task:
    """The loss to compute and what it needs besides the scores."""

    target: Tensor
    sample_weight: Tensor | None
    loss: Loss
    skip: float

    def counted(self) -> Tensor:
        """The weight of each row in a mean."""
        kept = self.target != self.loss.ignore_index
        counted = kept.to(torch.float32 if self.sample_weight is None else self.sample_weight.dtype)
        if self.loss.weight is not None:
            counted = counted * self.loss.weight[self.target.masked_fill(~kept, 0)]
        return counted if self.sample_weight is None else counted * self.sample_weight

    def share(self, dtype: torch.dtype) -> Tensor:
        """The factor of every loss in the result: 1, or for a mean one over the sum of weights."""
        if self.loss.reduction != "mean":
            return torch.ones((), dtype=dtype, device=self.target.device)
        number = self.counted().sum(dtype=dtype)
        return torch.where(number == 0, 1.0, number).reciprocal()

    def by_kernel(self, scores: Tensor, rows: slice, upstream: Tensor | None, loss: str, numbers: list[float]) -> ChunkResult:
        """Compute a chunk with a kernel; the gradient overwrites the scores.

        Args:
            upstream: a factor for the gradient of each row; None if no gradient is needed.
        """
        from noisewise.kernels import _launch

        pulls = torch.empty(len(scores), dtype=torch.float32, device=scores.device) if self.skip > 0 and upstream is not None else None
        losses = _launch.run(
            scores,
            self.target[rows],
            loss,
            numbers,
            class_weight=self.loss.weight,
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
            upstream=upstream,
            ignore_index=self.loss.ignore_index,
            gradient=None if upstream is None else scores,
            emphases=pulls,
        )
        return losses, scores, None if pulls is None else pulls * self.counted()[rows]

    def by_torch(self, scores: Tensor, rows: slice, upstream: Tensor | None) -> ChunkResult:
        """Compute a chunk with torch, for any loss and device."""
        loss = copy.copy(self.loss)
        loss.reduction = "none"
        with torch.enable_grad():
            leaf = at_least_float(scores).requires_grad_()
            losses = loss(leaf, self.target[rows], sample_weight=None if self.sample_weight is None else self.sample_weight[rows])
            if upstream is None:
                return losses.detach(), scores, None
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        pulls = 0.5 * gradient.abs().sum(1) if self.skip > 0 else None
        return losses.detach(), gradient.mul_(upstream.unsqueeze(1)).to(scores.dtype), pulls


def _chunks(hidden: Tensor, weight: Tensor, copies: int) -> list[slice]:
    """Chunks of about the same size; `copies` tensors of scores of a chunk fit into `CHUNK_BYTES`."""
    most = max(1, CHUNK_BYTES // (copies * weight.shape[0] * weight.element_size()))
    even = -(-len(hidden) // max(1, -(-len(hidden) // most)))
    size = max(1, min(most, -(-even // TILE) * TILE))
    return [slice(start, min(start + size, len(hidden))) for start in range(0, len(hidden), size)]


@dataclass
class _Gradients:
    """The gradients of the layer that are needed, added up chunk by chunk."""

    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    started: bool

    @classmethod
    def blank(cls, hidden: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool], skip: float) -> _Gradients:
        started = skip > 0 or len(hidden) == 0  # start from zeros; otherwise the first chunk overwrites
        allocate = torch.zeros_like if started else torch.empty_like
        wide = torch.promote_types(hidden.dtype, torch.float32)
        bias = torch.zeros(len(weight), dtype=wide, device=weight.device) if wanted[2] else None
        return cls(allocate(hidden) if wanted[0] else None, allocate(weight) if wanted[1] else None, bias, started)

    def add(self, rows: slice, part: Tensor, gradient: Tensor, weight: Tensor) -> None:
        """Add a chunk: rows of `hidden` and their ∂loss/∂scores."""
        if self.hidden is not None:
            torch.mm(gradient, weight, out=self.hidden[rows])
        if self.weight is not None:
            self.weight.addmm_(gradient.T, part, beta=float(self.started))
        if self.bias is not None:
            self.bias += gradient.sum(0, dtype=self.bias.dtype)
        self.started = True

    def add_some(self, rows: slice, chosen: Tensor, classes: Tensor, part: Tensor, gradient: Tensor, weight: Tensor) -> None:
        """Add some rows of a chunk, at some classes."""
        part, gradient = part[chosen], gradient[chosen][:, classes]
        if self.hidden is not None:
            self.hidden[rows][chosen] = gradient @ weight[classes]
        if self.weight is not None:
            self.weight.index_add_(0, classes, gradient.T @ part)
        if self.bias is not None:
            self.bias.index_add_(0, classes, gradient.sum(0, dtype=self.bias.dtype))


def _run_chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None, task: _Task, upstream: Tensor | None, gradients: _Gradients) -> Tensor:
    """The losses of all rows and, if there is an upstream, the gradients."""
    losses = torch.empty(len(hidden), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
    encoded = encode(task.loss, len(weight)) if usable(weight.T) else None
    chunks = _chunks(hidden, weight, (2 if task.skip > 0 else 1) if encoded else _TORCH_COPIES)
    buffer = hidden.new_empty(chunks[0].stop if chunks else 0, len(weight))
    for rows in chunks:
        part = hidden[rows]
        scores = buffer[: len(part)]
        torch.mm(part, weight.T, out=scores) if bias is None else torch.addmm(bias, part, weight.T, out=scores)
        factors = None if upstream is None else upstream[rows]
        result = task.by_kernel(scores, rows, factors, *encoded) if encoded else task.by_torch(scores, rows, factors)
        losses[rows], gradient, emphases = result
        if factors is not None and emphases is None:
            gradients.add(rows, part, gradient, weight)
        elif factors is not None and emphases is not None:
            gradients.add_some(rows, *_not_skipped(gradient, emphases, factors, task.skip), part, gradient, weight)
    return losses


def _not_skipped(gradient: Tensor, emphases: Tensor, factors: Tensor, skip: float) -> tuple[Tensor, Tensor]:
    """The rows of a chunk that are not skipped (nor those with NaN), and the classes.

    The omitted classes of a row add up to less than V · skip / V, because the limit uses the smallest factor.
    """
    rows = (~(emphases < skip)).nonzero().squeeze(1)
    limit = skip / gradient.shape[1] * (factors[rows].abs().amin() if len(rows) else 0.0)
    classes = (~(torch.linalg.vector_norm(gradient[rows], torch.inf, dim=0) < limit)).nonzero().squeeze(1)
    return rows, classes


class _LinearLoss(torch.autograd.Function):
    """If the result is one number, the forward computes the gradients. With reduction "none" and in float16, the backward does."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, task: _Task) -> Tensor:
        ctx.task, ctx.early = task, None
        ctx.save_for_backward(hidden, weight, bias)
        share = task.share(torch.promote_types(hidden.dtype, torch.float32))
        if task.loss.reduction == "none" or hidden.dtype == torch.float16 or not any(ctx.needs_input_grad):
            losses = _run_chunks(hidden, weight, bias, task, None, _Gradients(None, None, None, False))
        else:
            ctx.early = _Gradients.blank(hidden, weight, ctx.needs_input_grad, task.skip)
            losses = _run_chunks(hidden, weight, bias, task, share.expand(len(hidden)), ctx.early)
        return losses if task.loss.reduction == "none" else losses.sum() * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        early, ctx.early = ctx.early, None  # returned to autograd, so a second backward computes them again
        if early is None:
            share = ctx.task.share(upstream.dtype)
            early = _Gradients.blank(hidden, weight, ctx.needs_input_grad, ctx.task.skip)
            _run_chunks(hidden, weight, bias, ctx.task, (upstream * share).expand(len(hidden)), early)
        else:
            for each in (early.hidden, early.weight, early.bias):
                if each is not None:
                    _scale(each, upstream)
        return early.hidden, early.weight, None if early.bias is None else early.bias.to(bias.dtype), None


def _scale(gradient: Tensor, factor: Tensor) -> None:
    """Multiply a gradient by one number on the device, in place."""
    if gradient.dim() == 2 and usable(gradient):
        from noisewise.kernels import _launch

        _launch.scale_(gradient, factor.expand(len(gradient)))
    else:
        gradient.mul_(factor)
