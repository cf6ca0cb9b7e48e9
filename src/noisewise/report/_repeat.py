"""How to repeat a run: the command that trains it again, or the call of `fit` where its data were given as objects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from noisewise.data import available
from noisewise.train import Settings


def repeat(settings: Mapping[str, Any], folder: Path, *, corrected: bool = False) -> str:
    """The command, or the Python call, that trains a run with these settings.

    Args:
        settings: what was asked, by name.
        folder: of the run.
        corrected: whether it was trained on corrected labels, which no name of a data set stands for.

    Example:
        >>> print(repeat({"data": "digits", "model": "mlp", "loss": "imae(T=8)", "epochs": 5, "normalise": False}, Path("runs/a")))
        noisewise train --data digits --model mlp --loss 'imae(T=8)' --epochs 5 --no-normalise --output runs/a
        >>> print(repeat({"data": "arrays", "model": "mlp", "epochs": 5}, Path("runs/a")))
        noisewise.fit('mlp', data, epochs=5, folder='runs/a')
    """
    defaults = {field.name: field.default for field in fields(Settings)}
    asked = {name: value for name, value in settings.items() if name in defaults and value != defaults[name] and value is not None}
    if corrected or not _has_a_name(str(settings["data"])):
        rest = {name: value for name, value in asked.items() if name not in ("data", "model")} | {"folder": str(folder)}
        return f"noisewise.fit({settings['model']!r}, data, {', '.join(f'{name}={value!r}' for name, value in rest.items())})"
    words = ["noisewise", "train"]
    for name, value in (asked | {"output": folder}).items():
        option = name.replace("_", "-")
        words += [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)


def _has_a_name(data: str) -> bool:
    """Whether the data can be named on the command line: an official data set, or a path."""
    return data.partition("(")[0].strip() in available() or "/" in data or "." in data
