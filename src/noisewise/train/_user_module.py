"""Modules that users pass to `fit`: digests of their layers and starting weights, and whether `fit` trained them before.

A run is identified by the layers of its module and not by the weights: `fit` changes the weights, and the same module may be passed again.
If the weights differ from those that the run started from, there is a warning.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from noisewise.runs import RunFolder, check_storable, digest, digest_of
from noisewise.train._processes import is_main_process

_TRAINED: WeakKeyDictionary[nn.Module, tuple[int, Path]] = WeakKeyDictionary()
"""The modules that were trained in this process, each with the number of changes of its weights by then and the run folder."""


def model_digests(model: nn.Module) -> dict[str, str]:
    """The digests of a module in the provenance of a run: of its layers, and of its starting weights."""
    state = model.state_dict()
    check_storable(state)
    layers = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # the address of a function differs between processes
    shapes = [(name, tuple(value.shape)) for name, value in state.items()]
    frozen = [name for name, weights in model.named_parameters() if not weights.requires_grad]
    return {"model": hashlib.sha256(f"{layers}\n{shapes}{frozen or ''}".encode()).hexdigest(), "start": _digest(state)}


def _digest(state: dict[str, Tensor]) -> str:
    return digest_of(f"{name} {digest(value)}" for name, value in sorted(state.items()))


def warn_of_other_start(folder: RunFolder, model: nn.Module, start: str) -> None:
    """Warn if a run did not start from the weights of a module (their digest is `start`), unless the module was trained by this run."""
    if not is_main_process() or folder.provenance().get("start") == start or was_trained(model, folder):
        return
    if folder.status()["state"] == "finished" and _digest(folder.read_tensors("model.safetensors")[0]) == start:
        return
    text = f"The run in {str(folder.path)!r} started from other weights than this {type(model).__name__} has."
    warnings.warn(f"{text} The module gets the weights of the run. Give another folder to train from its own weights.", stacklevel=4)


def was_trained(model: nn.Module, folder: RunFolder | None = None) -> bool:
    """Whether a module has the weights from a run in this process: the run in `folder`, or any run."""
    changes, trained_in = _TRAINED.get(model, (None, None))
    return changes == _changes(model) and (folder is None or folder.path.resolve() == trained_in)


def mark_trained(model: nn.Module, folder: RunFolder) -> None:
    """Note that a module has weights from training."""
    _TRAINED[model] = _changes(model), folder.path.resolve()


def _changes(model: nn.Module) -> int:
    """How often weights were changed in place; resetting or loading a model increases it."""
    return sum(weights._version for weights in model.parameters())
