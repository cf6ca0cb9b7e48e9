"""A model tried with a few examples before anything is written: what it cannot do is one sentence, and it is left as it was.

A module of the user's own may raise anything. This module must not know runs, nor how a model is trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noisewise.errors import InputError, reason


def scored(model: nn.Module, inputs: Tensor) -> Any:
    """What a model gives when it is tested."""
    model.eval()
    with torch.no_grad():
        return model(inputs)


def lay_channels_last(model: nn.Module, inputs: Tensor) -> bool:
    """Lay a convolutional model out in the memory order that is fastest for it, unless it cannot take images in that order.

    One that flattens what its convolutions give with `view` cannot.

    Args:
        model: any; others are left as they are.
        inputs: in that order.

    Returns:
        Whether it is laid out so.
    """
    if not any(not is_lazy(weights) and weights.dim() == 4 for weights in model.parameters()):
        return False
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        _tried(model, inputs)
    except Exception:  # whether it takes them in any order is for `check_scores` to say
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return False
    return True


def check_scores(model: nn.Module, name: str, inputs: Tensor, classes: int, *, scaled: bool = False) -> None:
    """Refuse a model that does not give one score per class when it is tested, on inputs that may have been scaled."""
    try:
        scores = _tried(model, inputs)
    except InputError:
        raise
    except Exception as error:
        words = "; where they are numbers of words or the like, normalise=False leaves them unscaled"
        advice = f"Give a model that takes such inputs{words if scaled and isinstance(error, IndexError) else ''}"
        raise InputError(f"The model {name} cannot score inputs shaped {tuple(inputs.shape)}: {reason(error)}. {advice}.") from error
    _check_shape(scores, len(inputs), classes)


def check_training(model: nn.Module, name: str, inputs: Tensor, classes: int) -> None:
    """Refuse a model that cannot be trained on such inputs; what it counts and averages in its buffers does not count them."""
    try:
        gradients = _gradients(model.train(), inputs, classes)
    except InputError:
        raise
    except Exception as error:
        what, do = f"inputs shaped {tuple(inputs.shape)}", "Give a model that can"
        if len(inputs) == 1:
            what, do = "batches of one example", "Give larger batches, or accumulate fewer parts of them"
        raise InputError(f"The model {name} cannot be trained on {what}: {reason(error)}. {do}.") from error
    if any(one.layout != torch.strided or one.is_complex() for one in gradients):
        raise InputError(f"The model {name} must have gradients of real numbers, and none that are sparse. Give such a one.")


def _tried(model: nn.Module, inputs: Tensor) -> Any:
    with _left_as_it_was(model):
        return scored(model, inputs.clone())  # a model may work in place, and others are tried with these


def _gradients(model: nn.Module, inputs: Tensor, classes: int) -> list[Tensor]:
    """Those of one backward pass: not of `torch.autograd.grad`, which checkpoints within a model cannot take."""
    with _left_as_it_was(model), torch.enable_grad():
        scores = model(inputs.clone())
        _check_shape(scores, len(inputs), classes)
        if any(weights.requires_grad for weights in model.parameters()):
            scores.sum().backward()
        return [weights.grad for weights in model.parameters() if weights.grad is not None]


@contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Whatever is done within, the buffers of a model are the same afterwards, and the gradients of its weights.

    A buffer that nobody changed is not written to either: one that is expanded, or was made under inference_mode, cannot be.
    """
    gradients = [(weights, weights.grad) for weights in model.parameters()]
    buffers = [
        (part, name, buffer, None if buffer is None else buffer.clone())
        for part in model.modules()
        for name, buffer in part._buffers.items()
        if buffer is None or not is_lazy(buffer)
    ]
    for weights, _ in gradients:
        weights.grad = None
    try:
        yield
    finally:
        for weights, gradient in gradients:
            weights.grad = gradient
        with torch.no_grad():
            for part, name, buffer, before in buffers:
                if part._buffers[name] is not buffer:
                    setattr(part, name, buffer)
                if buffer is not None and before is not None and _differ(buffer, before):
                    buffer.copy_(before)


def _differ(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one kind may hold other numbers; of sparse and nested ones torch cannot tell."""
    return one.layout != torch.strided or one.is_nested or not torch.equal(one, other)


def _check_shape(scores: Any, examples: int, classes: int) -> None:
    """Refuse what are no scores."""
    if not isinstance(scores, Tensor) or scores.shape != (examples, classes):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(f"The model must give scores shaped (N, {classes}), one per class. Got {got} for {examples} examples.")
