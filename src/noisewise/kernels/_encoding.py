"""Encode a loss as text and numbers, which torch operators can take as arguments, and decode it.

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
from noisewise.kernels._switch import say
from noisewise.kernels._write import NotCoveredError, Written, covered, write
from noisewise.losses import CONTRACT, Combination, Loss, get, registry

_marked: dict[str, Loss] = {}  # copies of custom losses by key; they keep their classes alive, whose ids are in the keys

_writing = threading.Lock()  # tracing patches nn.Module for the whole process, so only one thread may trace


def taken(loss: str | Loss) -> Loss:
    """The loss itself, or the loss of a spec, which is built once because some take long to build."""
    return _looked_up(loss) if isinstance(loss, str) else get(loss)


_looked_up = functools.lru_cache(maxsize=64)(get)


def spell(loss: Loss, classes: int) -> tuple[str, list[float]] | None:
    """The text and numbers of a loss for rows with this number of classes, or None if it has no kernel.

    Example:
        >>> import noisewise
        >>> spell(noisewise.get("0.5*gce(q=0.7)"), 10)
        ('{}*gce(q={})', [0.5, 0.7])
    """
    if not covered(loss):
        if not torch.compiler.is_compiling():
            say(f"{loss.name} is not a function of the margin and the sum of all log-probabilities")
        return None
    numbers: list[float] = []
    if all(type(part).__module__.startswith("noisewise.") for part in loss.modules() if isinstance(part, Loss)):
        text = _text(loss, numbers)
        if loss.label_smoothing > 0:
            numbers.append(loss.label_smoothing)
            text += " label_smoothing={}"
        return text, numbers
    return None if torch.compiler.is_compiling() else _mark(loss, classes)


def _text(loss: Loss, numbers: list[float]) -> str:
    if isinstance(loss, Scheduled):
        return _text(loss.loss, numbers)
    if isinstance(loss, Combination):
        parts = []
        for factor, term in loss.parts:
            numbers.append(factor)
            parts.append("{}*" + _text(term, numbers))
        return " + ".join(parts)
    given = []
    for key in loss.settings:
        if key not in CONTRACT:
            value = getattr(loss, key)
            if isinstance(value, Loss):
                given.append(key + "=" + _text(value, numbers))
            elif isinstance(value, float):
                numbers.append(value)
                given.append(key + "={}")
            else:
                given.append(f"{key}={value!r}")
    return loss.name + "(" + ", ".join(given) + ")"


def _mark(loss: Loss, classes: int) -> tuple[str, list[float]] | None:
    """A key for a custom loss: its class and all its attributes."""
    try:
        text = f"#{_state(loss)}".replace("{", "").replace("}", "")
        if text not in _marked:
            _marked[text] = copy.deepcopy(loss)
        written(text, (), classes)
    except NotCoveredError as reason:
        say(f"{loss.name} has no kernel: {reason}")
        return None
    return text, []


def _state(loss: Loss) -> list[object]:
    """The attributes of a loss. Tensors are refused: they can change in place, and reading one waits for the GPU."""
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


def spelled(text: str, numbers: Sequence[float]) -> Loss:
    """Decode a loss: a new one, with the default contract except for label smoothing."""
    if text.startswith("#"):
        loss = copy.deepcopy(_marked[text])
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
    with _writing, ThreadPoolExecutor(1) as thread:
        return thread.submit(write, spelled(text, numbers), classes).result()
