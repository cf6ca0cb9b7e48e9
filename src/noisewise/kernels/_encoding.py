"""Encode a loss as text and numbers, which are valid arguments of torch operators, and decode it.

The text is a spec string without its numbers, so that a compiled graph also works in another process, and a schedule that changes a
number does not change the text. A custom loss is encoded as a key that is valid in this process only.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from noisewise.curriculum import Scheduled
from noisewise.kernels._switch import log_once
from noisewise.kernels._write import NotCoveredError, Written, covered, write
from noisewise.losses import CONTRACT, Combination, Loss, get, registry

_custom: dict[str, Loss] = {}  # copies of custom losses by key; they keep alive the classes whose ids are in the keys

_tracing = threading.Lock()  # tracing patches nn.Module for the whole process


def as_loss(loss: str | Loss) -> Loss:
    """The loss of a spec, which is cached because some take long to build, or the loss itself."""
    return _cached_get(loss) if isinstance(loss, str) else get(loss)


_cached_get = functools.lru_cache(maxsize=64)(get)


def encode(loss: Loss, classes: int, passes_now: bool = False) -> tuple[str, list[float]] | None:
    """The text and numbers of a loss for rows with this number of classes, or None if it has no kernel.

    Args:
        loss: the loss.
        classes: the number of classes.
        passes_now: whether the kernel gets the buffer `now` of a loss that adapts.

    Example:
        >>> import noisewise
        >>> encode(noisewise.get("0.5*gce(q=0.7)"), 10)
        ('{}*gce(q={})', [0.5, 0.7])
    """
    if not covered(loss) or (loss.adapts and not passes_now):
        if not torch.compiler.is_compiling():
            log_once(f"{loss.name} is not a function of the margin and the sum of all log-probabilities")
        return None
    numbers: list[float] = []
    if all(type(part).__module__.startswith("noisewise.") for part in loss.modules() if isinstance(part, Loss)):
        text = _text(loss, numbers)
        if loss.label_smoothing > 0:
            numbers.append(loss.label_smoothing)
            text += " label_smoothing={}"
        return text, numbers
    return None if torch.compiler.is_compiling() else _custom_key(loss, classes)


def _text(loss: Loss, numbers: list[float]) -> str:
    if isinstance(loss, Scheduled):
        return _text(loss.loss, numbers)
    if isinstance(loss, Combination):
        parts = []
        for factor, term in loss.parts:
            numbers.append(factor)
            parts.append("{}*" + _text(term, numbers))
        return " + ".join(parts)
    arguments = []
    for key in loss.settings:
        if key not in CONTRACT:
            value = getattr(loss, key)
            if isinstance(value, Loss):
                arguments.append(key + "=" + _text(value, numbers))
            elif isinstance(value, float):
                numbers.append(value)
                arguments.append(key + "={}")
            else:
                arguments.append(f"{key}={value!r}")
    return loss.name + "(" + ", ".join(arguments) + ")"


def _custom_key(loss: Loss, classes: int) -> tuple[str, list[float]] | None:
    """A key for a custom loss: its class and all its attributes."""
    try:
        text = f"#{_state(loss)}".replace("{", "").replace("}", "")
        if text not in _custom:
            _custom[text] = copy.deepcopy(loss)
        written(text, (), classes)
    except NotCoveredError as reason:
        log_once(f"{loss.name} has no kernel: {reason}")
        return None
    return text, []


def _state(loss: Loss) -> list[object]:
    """The attributes of a loss. Tensors are not supported: they can change in place, and reading one waits for the GPU."""
    state: list[object] = []
    for part in loss.modules():
        state += [id(type(part)), getattr(part, "label_smoothing", None)]
        own = {key: value for key, value in vars(part).items() if key not in vars(_plain)}
        for key, value in {**own, **dict(part.named_parameters(recurse=False)), **dict(part.named_buffers(recurse=False))}.items():
            if key != "weight" and not _is_plain(value):
                raise NotCoveredError(f"its attribute {key} is not a number, a string or a tuple of these")
            state += [] if key == "weight" else [(key, value)]
    return state


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else value is None or isinstance(value, bool | int | float | str)


_plain = get("ce")


def decode(text: str, numbers: Sequence[float]) -> Loss:
    """Decode a loss. Its contract has the defaults, except for label smoothing."""
    if text.startswith("#"):
        loss = copy.deepcopy(_custom[text])
        loss.weight, loss.ignore_index, loss.reduction = None, -100, "mean"
        return loss
    text = text.format(*(repr(float(number)) for number in numbers))
    spec, _, smoothing = text.partition(" label_smoothing=")
    loss = registry.get(spec)
    if smoothing:
        loss.label_smoothing = float(smoothing)
    return loss


@functools.lru_cache(maxsize=256)
def written(text: str, numbers: tuple[float, ...], classes: int) -> Written:
    """The loss as Triton source, traced in another thread because the caller may have autocast on or autograd off."""
    with _tracing, ThreadPoolExecutor(1) as thread:
        return thread.submit(write, decode(text, numbers), classes).result()
