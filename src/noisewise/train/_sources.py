"""What a run trains and tests on, and where it all came from."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import noisewise
from noisewise.data import Dataset, Stream, available, read, split
from noisewise.errors import InputError
from noisewise.noise import Corruption
from noisewise.train._settings import Settings


@dataclass(frozen=True)
class Sources:
    """The data of a run.

    Args:
        train: with the labels it is trained on.
        validation: a share of the training examples that is kept out, wrong labels and all; or None.
        test: with right labels; or None.
        corruption: what the noise did; or None.
    """

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    corruption: Corruption | None

    def to(self, device: torch.device) -> Sources:
        moved = [None if part is None else part.to(device) for part in (self.train, self.validation, self.test)]
        assert moved[0] is not None
        return Sources(moved[0], moved[1], moved[2], self.corruption)


def gather(data: Any, test: Any, settings: Settings) -> Sources:
    """Read the data, corrupt the training labels, set the validation share apart."""
    train, test = read_both(data, test)
    corruption = None
    if settings.noise != "none":
        corruption = train.corruption(settings.noise, seed=settings.seed)
        train = train.corrupted(corruption)
    validation = None
    if settings.validation > 0:
        validation, train = split(train, settings.validation, seed=settings.seed)
    return Sources(train, validation, test, corruption)


def read_both(data: Any, test: Any) -> tuple[Dataset, Dataset | None]:
    """Training and test set, with the same classes; an official data set brings its own test set."""
    train = read(data)
    if test is None and isinstance(data, str) and data.partition("(")[0].strip() in available():
        test = read(data, split="test")
    return train, None if test is None else _with_classes(read(test), train.classes)


def _with_classes(test: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The test set with its labels numbered as the training set's classes are; it may lack some of them."""
    if test.classes == classes:
        return test
    for name in test.classes:
        if name not in classes:
            raise InputError(f"The test set has a class {name!r} that the training set has not. Its classes are {', '.join(classes[:20])}.")
    numbers = torch.tensor([classes.index(name) for name in test.classes], device=test.labels.device)
    true_labels = None if test.true_labels is None else numbers[test.true_labels]
    return replace(test, labels=numbers[test.labels], true_labels=true_labels, classes=classes, human={})


def called(data: Any) -> str:
    """What the settings say of data that were given as an object."""
    if isinstance(data, str):
        return data
    if isinstance(data, Dataset):
        return data.name
    if isinstance(data, DataLoader):
        return "loader"
    return "arrays" if isinstance(data, tuple | list) else str(data)


def provenance(sources: Sources, settings: Settings, device: torch.device) -> dict[str, Any]:
    """Versions, checksums and the state of the code: what one needs to know to trust or repeat a run."""
    parts = {"train": sources.train, "validation": sources.validation, "test": sources.test}
    corruption = sources.corruption
    return {
        "noisewise": noisewise.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "data": {name: _checksums(part) for name, part in parts.items() if part is not None},
        "noise": None if corruption is None else {"spec": corruption.noise, "digest": corruption.digest, "rate": corruption.rate},
        "git": _git(),
    }


def _checksums(data: Dataset) -> dict[str, Any]:
    paths = "\n".join(data.paths).encode() if isinstance(data, Stream) else None
    inputs = _digest(data.inputs) if paths is None else hashlib.sha256(paths).hexdigest()
    return {"name": data.name, "examples": len(data), "inputs": inputs, "labels": _digest(data.labels)}


def _digest(values: Tensor) -> str:
    digest = hashlib.sha256(f"{values.dtype} {tuple(values.shape)}".encode())
    for part in _parts(values):
        digest.update(part.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _parts(values: Tensor) -> Iterator[Tensor]:
    rows = max(1, 2**24 // max(1, values[:1].numel() * values.element_size()))
    for start in range(0, len(values), rows):
        yield values[start : start + rows]


def _git() -> dict[str, Any] | None:
    """The commit of the folder the user works in, and whether it is changed; None where there is no repository."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "changed": bool(changed)}
