"""Checks of the scores and labels that are passed to a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from noisewise.errors import InputError
from noisewise.exact import can_look


def class_dim(scores: Tensor) -> int:
    """The class dimension of scores."""
    return 1 if scores.dim() > 1 else 0


def check_floating(scores: Tensor, owner: str) -> None:
    """Raise `InputError` if scores are not a floating-point tensor."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        got = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(f"The scores given to {owner} must be a floating-point tensor. Got {got} instead.")


def check_some(scores: Tensor, owner: str) -> None:
    """Raise `InputError` if a batch is empty, because it has no mean."""
    if scores.numel() == 0:
        raise InputError(f"The batch given to {owner} must have at least one example. Got scores shaped {tuple(scores.shape)} instead.")


def check_scores(scores: Tensor, owner: str) -> None:
    """Raise `InputError` if scores are not a floating-point tensor with at least two classes."""
    check_floating(scores, owner)
    if scores.dim() == 0 or scores.shape[class_dim(scores)] < 2:
        raise InputError(
            f"The scores given to {owner} must have at least two classes, shaped (C,), (N, C) or (N, C, d1, …). "
            f"Got shape {tuple(scores.shape)} instead; for one score per label wrap the loss in binary(…)."
        )


def check_labels(scores: Tensor, target: Tensor, owner: str, ignore_index: int | None = None) -> bool:
    """Raise `InputError` for labels of the wrong shape, type or range; return whether some may have to be ignored.

    The range is checked on the CPU in eager mode only, because a check on another device needs a synchronisation. There a label out of
    range fails inside `gather`, as it does for `nn.CrossEntropyLoss`.
    """
    dim = class_dim(scores)
    expected = scores.shape[:dim] + scores.shape[dim + 1 :]
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        got = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise InputError(
            f"The target given to {owner} must be a tensor of class indices (integers) shaped {tuple(expected)}, "
            f"or class probabilities shaped {tuple(scores.shape)} if the loss supports them. Got {got} instead."
        )
    if target.shape != expected:
        shapes = f"{tuple(expected)}, the shape of the scores without classes. Got {tuple(target.shape)} instead."
        raise InputError(f"The target given to {owner} must be shaped {shapes}")
    if not can_look(target) or target.numel() == 0:
        return ignore_index is not None
    classes = scores.shape[dim]
    target = target.long()  # torch has few operations for unsigned integers of more than 8 bits
    low, high = (int(bound) for bound in torch.aminmax(target))
    if low >= 0 and high < classes and (ignore_index is None or not low <= ignore_index <= high):
        return False
    wrong = (target < 0) | (target >= classes)
    if ignore_index is not None:
        wrong &= target != ignore_index
    if wrong.any():
        excepted = "" if ignore_index is None else f" or the ignore_index {ignore_index}"
        label = int(target[wrong].flatten()[0])
        raise InputError(f"The target given to {owner} must be class indices from 0 to {classes - 1}{excepted}. Got {label} instead.")
    return ignore_index is not None
