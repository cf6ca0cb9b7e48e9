"""A module that the caller gives to `fit`: how it is built, which weights it comes with, and whether it was trained here before.

Training changes the weights of the very object that may be given again, so they do not tell runs apart; where a run began with others
there is a warning. This module must not train anything.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noisewise.errors import InputError
from noisewise.train._folder import RunFolder

_TRAINED: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""The modules that were trained here, and how often their weights had been changed by then."""

_LAZY: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""How modules were built whose layers had no shapes yet when they were first given."""


def told_of(model: nn.Module) -> dict[str, str | None]:
    """What a run says of a module: digests of how it is built, and of the weights it begins with."""
    for name, weights in model.named_parameters():
        if not is_lazy(weights) and (weights.is_meta or weights.is_inference()):
            kind = (
                "on the meta device, where they have no numbers" if weights.is_meta else "made under inference_mode, and cannot be trained"
            )
            raise InputError(f"The weights of {type(model).__name__} must be ones to train. Got {name!r}, {kind}; make the model anew.")
    if any(map(is_lazy, model.parameters())):
        _LAZY[model] = _build_of(model)
    return {"model": _LAZY.get(model) or _build_of(model), "start": None if model in _LAZY else _digest(model.state_dict())}


def _build_of(model: nn.Module) -> str:
    """How a model is built, and which of its weights stay as they are."""
    shapes = [(name, None if is_lazy(value) else tuple(value.shape)) for name, value in _tensors(model.state_dict()).items()]
    frozen = [name for name, weights in model.named_parameters() if not weights.requires_grad]
    shown = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # where a function lies in memory is another place in every process
    return hashlib.sha256(f"{shown}\n{shapes}{frozen or ''}".encode()).hexdigest()


def _tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"A run keeps tensors alone of a model. Got {name!r}, a {type(value).__name__}; keep it outside of the state_dict."
            )
    return state


def _digest(state: dict[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(state.items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def warn_of_another_start(folder: RunFolder, model: nn.Module, start: str | None) -> None:
    """Tell that a run which is there began with other weights than a module has, unless they come from the run itself.

    Args:
        folder: of the run.
        model: the module.
        start: the digest of its weights.
    """
    began = folder.read_json("provenance.json").get("start")  # older runs do not say
    if None in (began, start) or began == start or was_trained(model):
        return
    if folder.status()["state"] == "finished" and _digest(folder.read_tensors("model.safetensors")[0]) == start:
        return
    text = f"The run in {str(folder.path)!r} began with other weights than this {type(model).__name__} has, which it replaces by its own."
    warnings.warn(f"{text} Give another folder to train from these.", stacklevel=4)


def was_trained(model: nn.Module) -> bool:
    """Whether a module has the weights that training gave it here."""
    return _TRAINED.get(model) == _changes(model)


def mark_trained(model: nn.Module) -> None:
    """Note that a module has weights now that training gave it."""
    _TRAINED[model] = _changes(model)


def _changes(model: nn.Module) -> int:
    """How often weights were changed in place: more often once a model is reset or loaded."""
    return sum(weights._version for weights in model.parameters())
