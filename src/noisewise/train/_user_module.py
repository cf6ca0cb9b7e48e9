"""A module that the caller gives to `fit`: how it is built, which weights it comes with, and whether it was trained here before.

Training changes the weights of the very object that may be given again, so they do not tell runs apart; where a run began with others
there is a warning. This module must not train anything.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noisewise.errors import InputError, reason
from noisewise.runs import RunFolder, check_kept, digest, digest_of
from noisewise.train._processes import speaks_for_all

_TRAINED: WeakKeyDictionary[nn.Module, tuple[int, Path]] = WeakKeyDictionary()
"""The modules that were trained here: how often their weights had been changed by then, and the folder of the run."""

_LAZY: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""The layers of modules that had no shapes yet when they were first given."""


def told_of(model: nn.Module) -> dict[str, str | None]:
    """What a run says of a module: digests of how it is built, and of the weights it begins with."""
    state = model.state_dict()
    there = {name: value for name, value in state.items() if not is_lazy(value)}
    check_kept(there)
    _check_writable(type(model).__name__, there)
    whole = len(there) == len(state)
    if not whole:
        _LAZY[model] = _layers_of(model)
    return {"model": _build_of(model), "start": _digest(state) if whole else None}


def _check_writable(name: str, state: dict[str, Any]) -> None:
    """Refuse weights and buffers that torch cannot write to, by writing to each what it has."""
    for entry, value in state.items():
        try:
            value.data.copy_(value.detach().clone())
            if value.is_inference():
                raise RuntimeError("it was made under inference_mode")
        except Exception as error:  # whatever torch says of it
            raise InputError(f"The entry {entry!r} of {name} cannot be trained: {reason(error)}. Build the model again.") from None


def _build_of(model: nn.Module) -> str:
    """How a model is built, and which of its weights stay as they are."""
    frozen = [name for name, weights in model.named_parameters() if not weights.requires_grad]
    return hashlib.sha256(f"{_LAZY.get(model) or _layers_of(model)}{frozen or ''}".encode()).hexdigest()


def _layers_of(model: nn.Module) -> str:
    shapes = [(name, None if is_lazy(value) else tuple(value.shape)) for name, value in model.state_dict().items()]
    shown = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # where a function lies in memory is another place in every process
    return f"{shown}\n{shapes}"


def _digest(state: dict[str, Tensor]) -> str:
    return digest_of(f"{name} {digest(value)}" for name, value in sorted(state.items()))


def warn_of_another_start(folder: RunFolder, model: nn.Module, start: str | None) -> None:
    """Tell that a run which is there began with other weights than a module has, unless they come from the run itself.

    Args:
        folder: of the run.
        model: the module.
        start: the digest of its weights.
    """
    if not speaks_for_all():
        return
    began = folder.provenance().get("start")  # older runs do not say
    if None in (began, start) or began == start or was_trained(model, folder):
        return
    if folder.status()["state"] == "finished" and _digest(folder.read_tensors("model.safetensors")[0]) == start:
        return
    text = f"The run in {str(folder.path)!r} began with other weights than this {type(model).__name__} has, which it replaces by its own."
    warnings.warn(f"{text} Give another folder to train from these.", stacklevel=4)


def was_trained(model: nn.Module, folder: RunFolder | None = None) -> bool:
    """Whether a module has the weights that training gave it here.

    Args:
        model: the module.
        folder: of the run that it must have been; by default any.
    """
    changes, trained_in = _TRAINED.get(model, (None, None))
    return changes == _changes(model) and (folder is None or folder.path.resolve() == trained_in)


def mark_trained(model: nn.Module, folder: RunFolder) -> None:
    """Note that a module has weights now that training gave it."""
    _TRAINED[model] = _changes(model), folder.path.resolve()


def _changes(model: nn.Module) -> int:
    """How often weights were changed in place: more often once a model is reset or loaded."""
    return sum(weights._version for weights in model.parameters())
