"""Compute the loss of a batch with a kernel, in one pass over the scores, with the contract of the loss."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noisewise.checks import check_labels, check_scores, check_some
from noisewise.errors import InputError
from noisewise.exact import at_least_float
from noisewise.kernels import _tuning
from noisewise.kernels._encoding import as_loss, encode
from noisewise.kernels._switch import usable
from noisewise.losses import Adaptive, Loss, before_batch_normalisation
from noisewise.margin import emphasis, margin


def fused(loss: Loss, scores: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor | None:
    """``loss(scores, target, sample_weight=…)`` by a kernel, or None if there is no kernel.

    Args:
        loss: any loss.
        scores: (C,), (N, C) or (N, C, d1, …). Scores and target must have been checked.
        target: class indices.
        sample_weight: as the loss takes it.
    """
    if scores.dim() == 1:
        weight = None if sample_weight is None else torch.as_tensor(sample_weight).reshape(1)
        value = fused(loss, scores.unsqueeze(0), target.unsqueeze(0), weight)
        return value.squeeze(0) if value is not None and loss.reduction == "none" else value
    rows = scores.movedim(1, -1)
    if not usable(rows) or any(isinstance(each, Tensor) and each.requires_grad for each in (loss.weight, sample_weight)):
        return None
    encoded = encode(loss, rows.shape[-1])
    if encoded is None:
        return None
    from noisewise.kernels._operator import loss_of_rows

    value = loss_of_rows(
        _in_rows(rows),
        target.reshape(-1),
        *encoded,
        loss.weight,
        None if sample_weight is None else _spread(loss, sample_weight, target),
        loss.ignore_index,
        loss.reduction,
    )
    value = value.view(target.shape) if loss.reduction == "none" else value
    return value if torch.is_autocast_enabled(scores.device.type) else value.to(scores.dtype)


def _in_rows(scores: Tensor) -> Tensor:
    """Reshape (…, C) scores to (N, C), contiguous in the classes."""
    flat = scores.reshape(-1, scores.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def _spread(loss: Loss, sample_weight: Tensor, target: Tensor) -> Tensor:
    like = torch.empty(target.shape, dtype=torch.float32, device=target.device)
    return loss._spread(sample_weight, like).expand(target.shape).reshape(-1)


@dataclass(frozen=True)
class Pass:
    """The result of `loss_and_gradient`.

    Args:
        value: what the loss returns.
        gradient: the gradient of the value, or of the sum of the values, with respect to the scores.
        margin: the margin of every example; NaN if it is ignored.
        emphasis: the emphasis of every example, without weights; 0 if it is ignored.
    """

    value: Tensor
    gradient: Tensor
    margin: Tensor
    emphasis: Tensor


def loss_and_gradient(
    loss: str | Loss, scores: Tensor, target: Tensor, *, sample_weight: Tensor | None = None, in_place: bool = False
) -> Pass:
    """Loss, gradient, margins and emphases of a batch in one pass, without autograd. Pass the gradient to `backward` yourself.

    Args:
        loss: any loss, or its spec.
        scores: (N, C).
        target: class indices (N,).
        sample_weight: a factor per example (N,).
        in_place: whether the gradient overwrites the scores, which saves memory.

    Returns:
        A `Pass`.

    Example:
        >>> scores = torch.nn.Linear(4, 3)(torch.randn(8, 4))
        >>> result = loss_and_gradient("gce(q=0.7)", scores.detach(), torch.randint(3, (8,)), in_place=True)
        >>> scores.backward(result.gradient)
        >>> result.margin.shape, result.emphasis.shape
        (torch.Size([8]), torch.Size([8]))
    """
    loss = as_loss(loss)
    check_scores(scores, "loss_and_gradient")
    check_labels(scores, target, "loss_and_gradient", loss.ignore_index)
    target = target.long()  # an unsigned type has no −100
    if scores.dim() != 2 or scores.requires_grad:
        got = f"{tuple(scores.shape)}{' requiring a gradient' if scores.requires_grad else ''}"
        raise InputError(f"The scores given to loss_and_gradient must be shaped (N, C) and detached. Got {got} instead.")
    if loss.reduction == "mean":
        check_some(scores, "loss_and_gradient")
    readable = usable(scores) and scores.stride(1) == 1
    coupled = before_batch_normalisation(loss) if readable else None
    if coupled is not None:
        factor, bare = coupled
        result = loss_and_gradient(bare, scores, target, sample_weight=sample_weight, in_place=in_place)
        sums = torch.stack([result.emphasis.sum(), (target != loss.ignore_index).sum().to(result.emphasis.dtype)])
        size = factor / bare.mean_emphasis(sums)
        return Pass(result.value * size, result.gradient.mul_(size), result.margin, result.emphasis * size)
    encoded = encode(loss, scores.shape[1], passes_now=True) if readable else None
    if encoded is None:
        return _by_torch(loss, scores, target, sample_weight, in_place)
    from noisewise.kernels import _launch

    if isinstance(loss, Adaptive) and loss.training:
        loss.observe(scores, target)
    gradient = scores if in_place else torch.empty_like(scores, memory_format=torch.contiguous_format)
    margins, emphases = torch.empty(2, len(scores), dtype=torch.float32, device=scores.device)
    losses = _launch.run(
        scores,
        target,
        *encoded,
        class_weight=loss.weight,
        sample_weight=None if sample_weight is None else _spread(loss, sample_weight, target),
        ignore_index=loss.ignore_index,
        mean=loss.reduction == "mean",
        gradient=gradient,
        margins=margins,
        emphases=emphases,
        now=loss.now if isinstance(loss, Adaptive) else None,
    )
    return Pass(losses if loss.reduction == "none" else _launch.add_up(losses), gradient, margins, emphases)


def counted(scores: Tensor, labels: Tensor, *others: Any) -> bool:
    """Add a batch to the counts of `auto` by a kernel, if there is one; `others` are the arguments of `_counting.count`."""
    if not usable(scores) or scores.stride(1) != 1 or scores.shape[1] > _tuning.LONGEST_ON_CHIP:
        return False
    from noisewise.kernels._counting import count

    count(scores, labels.contiguous(), *others)
    return True


def _by_torch(loss: Loss, scores: Tensor, target: Tensor, sample_weight: Tensor | None, in_place: bool) -> Pass:
    with torch.enable_grad():
        leaf = at_least_float(scores).detach().requires_grad_()
        value = loss(leaf, target, sample_weight=sample_weight)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    kept = target != loss.ignore_index
    margins = margin(leaf.detach(), target.masked_fill(~kept, 0)).masked_fill(~kept, torch.nan)
    bare = copy.deepcopy(loss)
    bare.weight = None
    pulls = emphasis(bare, leaf.detach(), target)
    return Pass(value.detach(), scores.copy_(gradient) if in_place else gradient.to(scores.dtype), margins, pulls)
