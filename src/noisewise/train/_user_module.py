"""A module that the caller gives to `fit`: how it is built, its starting weights, and whether `fit` trained it before.

Training changes the weights of the module, which may be given again. So the weights do not identify a run; if a run started from other
weights, there is a warning.
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
"""The modules that were trained in this process: how often their weights had been changed by then, and the run folder."""


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
    """Warn that a run started from other weights than a module (with digest `start`) has, unless these come from the run itself."""
    if not is_main_process() or folder.provenance().get("start") == start or was_trained(model, folder):
        return
    if folder.status()["state"] == "finished" and _digest(folder.read_tensors("model.safetensors")[0]) == start:
        return
    text = f"The run in {str(folder.path)!r} started from other weights than this {type(model).__name__} has, and will replace them."
    warnings.warn(f"{text} Give another folder to train from these weights.", stacklevel=4)


def was_trained(model: nn.Module, folder: RunFolder | None = None) -> bool:
    """Whether a module still has the weights that training gave it, in a certain run or in any."""
    changes, trained_in = _TRAINED.get(model, (None, None))
    return changes == _changes(model) and (folder is None or folder.path.resolve() == trained_in)


def mark_trained(model: nn.Module, folder: RunFolder) -> None:
    """Note that a module has weights from training."""
    _TRAINED[model] = _changes(model), folder.path.resolve()


def _changes(model: nn.Module) -> int:
    """How often weights were changed in place; resetting or loading a model increases it."""
    return sum(weights._version for weights in model.parameters())
