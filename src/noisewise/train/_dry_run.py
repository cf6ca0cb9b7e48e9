"""Try a model on a few examples before anything is written, so that a model that cannot be trained is refused early.

The weights, buffers and gradients of the model do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from noisewise.errors import InputError, reason


def evaluate(model: nn.Module, inputs: Tensor) -> Any:
    """The output of a model in eval mode."""
    model.eval()
    with torch.no_grad():
        return model(inputs)


def use_channels_last(model: nn.Module, inputs: Tensor) -> bool:
    """Convert a convolutional model to the channels-last memory format, which is faster, if it works with such inputs.

    A model that flattens the output of its convolutions with `view` does not work with them.

    Returns:
        Whether the model was converted.
    """
    if not any(weights.dim() == 4 for weights in model.parameters()):
        return False
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        _try_evaluation(model, inputs)
    except Exception:  # `check_scores` reports a model that fails in any format
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return False
    return True


def check_scores(model: nn.Module, name: str, inputs: Tensor, classes: int, *, scaled: bool = False) -> None:
    """Refuse a model that does not give one score per class in eval mode; `scaled` says that the inputs were normalised."""
    try:
        scores = _try_evaluation(model, inputs)
    except InputError:
        raise
    except Exception as error:
        hint = "; if they are token numbers, normalise=False leaves them unscaled" if scaled and isinstance(error, IndexError) else ""
        raise InputError(
            f"The model {name} cannot score inputs shaped {tuple(inputs.shape)}: {reason(error)}. "
            f"Give a model that takes such inputs{hint}."
        ) from error
    _check_shape(scores, len(inputs), classes)


def check_training(model: nn.Module, name: str, inputs: Tensor, classes: int) -> None:
    """Refuse a model that cannot be trained on such inputs."""
    try:
        with _unchanged(model.train()), torch.enable_grad():
            scores = model(inputs.clone())
            _check_shape(scores, len(inputs), classes)
            if any(weights.requires_grad for weights in model.parameters()):
                scores.sum().backward()
            sparse = any(weights.grad is not None and weights.grad.is_sparse for weights in model.parameters())
    except InputError:
        raise
    except Exception as error:
        what, advice = f"inputs shaped {tuple(inputs.shape)}", "Fix its forward in training mode"
        if len(inputs) == 1:
            what, advice = "batches of one example", "Give larger batches, or accumulate fewer parts of them"
        raise InputError(f"The model {name} cannot be trained on {what}: {reason(error)}. {advice}.") from error
    if sparse:
        raise InputError(f"The model {name} has sparse gradients, which are not supported. Use dense parameters.")


def _try_evaluation(model: nn.Module, inputs: Tensor) -> Any:
    with _unchanged(model):
        return evaluate(model, inputs.clone())  # a model may work in place


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Restore the buffers and gradients of a model after the block."""
    gradients = [(weights, weights.grad) for weights in model.parameters()]
    buffers = [
        (part, name, buffer, buffer.clone()) for part in model.modules() for name, buffer in part._buffers.items() if buffer is not None
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
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
                part._buffers[name] = buffer


def _check_shape(scores: Any, examples: int, classes: int) -> None:
    if not isinstance(scores, Tensor) or scores.shape != (examples, classes):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(f"The model must return scores shaped (N, {classes}), one per class. Got {got} for {examples} examples.")
