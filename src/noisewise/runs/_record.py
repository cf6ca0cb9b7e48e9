"""The files of a run folder, read and checked: settings, labels, metrics, and the record of margins.

The record holds every training example at every epoch. Its arrays are memory-mapped and handed out one epoch at a time, so
that a million examples over hundreds of epochs fit in any memory. This module must not know what is read off them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import NO_CLASS, Flags, Floats, Ints
from noisewise.errors import InputError, invalid_parameter
from noisewise.runs._files import exists, list_numbered, missing, open_array, read_array
from noisewise.runs._format import FORMAT, KINDS, RECORDS, read_classes, read_metrics, read_provenance, read_settings, read_status

Halves = NDArray[np.float16]

LARGEST = float(np.finfo(np.float16).max)
MARGINS: Floats = np.clip(np.arange(1 << 16).astype("<u2").view("<f2").astype(np.float64), -LARGEST, LARGEST)
"""All that half precision has, in which margins are stored: a function of the margin is looked up, and margins are counted."""


def codes(margins: NDArray[Any]) -> NDArray[np.uint16]:
    """Where each margin stands among `MARGINS`."""
    return np.ascontiguousarray(margins, dtype="<f2").view("<u2")


class Epoch(NamedTuple):
    """What the record holds of one epoch: NaN and −1 stand for an example that was not seen in it."""

    number: int
    margins: Halves
    predictions: NDArray[Any]


@dataclass(frozen=True)
class Record:
    """The record of a run.

    Args:
        folder: of the run.

    Everything is read when it is first asked for; a run that is still training can be read up to its last whole epoch.
    """

    folder: str | PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        written = self.settings.get("format", FORMAT)
        if written != FORMAT:
            raise InputError(
                f"The run in {str(self.folder)!r} has format {written!r}; this noisewise reads format {FORMAT}. Update noisewise."
            )

    def _path(self, name: str) -> Path:
        return Path(self.folder) / name

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was asked: data, model, loss, noise, seed, …"""
        return read_settings(self.folder)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What it was done with: versions, the noise that came out, the data."""
        return read_provenance(self.folder)

    @property
    def recorded(self) -> bool:
        """Whether a `Recorder` wrote this run."""
        try:
            return bool(self.provenance.get("recorded"))
        except InputError:
            return False

    @cached_property
    def status(self) -> dict[str, Any]:
        """How far the run came: state, epoch, step."""
        return read_status(self.folder)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The name of every class."""
        return read_classes(self.folder)

    @cached_property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """One entry per finished epoch, in order; none before the first epoch is finished."""
        return read_metrics(self.folder)

    @cached_property
    def given(self) -> Ints:
        """The labels the model was trained on."""
        return self._labels("labels/given.npy", None, 0)

    @cached_property
    def true(self) -> Ints | None:
        """The labels known to be right, or None; −1 for an example that is of no class, its input replaced by the noise."""
        return self._labels("labels/true.npy", self.given.shape, NO_CLASS) if exists(self.folder, "labels/true.npy") else None

    @cached_property
    def wrong(self) -> Flags | None:
        """Which labels are known to be wrong, or None where the truth is not known."""
        return None if self.true is None else self.given != self.true

    def epochs(self, of: str = "training") -> tuple[int, ...]:
        """The epochs whose margins and predictions are there.

        Args:
            of: "training" for the record of the training steps, "clean" for that of the passes without augmentation.
        """
        if of not in RECORDS:
            raise invalid_parameter("of", "a record", "one of " + ", ".join(map(repr, RECORDS)), of)
        found = {kind: set(list_numbered(self.folder, f"record/{of}", f"{kind}-", ".npy")) for kind in KINDS}
        whole = found["margins"] & found["predictions"]
        for kind, other in (KINDS, KINDS[::-1]):
            alone = {epoch for epoch in found[kind] - whole if epoch < max(whole, default=0)}  # the last one may be being written
            if alone:
                raise missing(self.folder, _file(other, min(alone), of))
        return tuple(sorted(whole))

    def margins(self, epoch: int, of: str = "training") -> Halves:
        """The margin of every example, memory-mapped; NaN where it was not seen."""
        return self._read("margins", self._known(epoch, of), of)

    def predictions(self, epoch: int, of: str = "training") -> NDArray[Any]:
        """The predicted class of every example, memory-mapped; −1 where it was not seen."""
        return self._read("predictions", self._known(epoch, of), of)

    def stream(self, of: str = "training", epochs: Sequence[int] | None = None) -> Iterator[Epoch]:
        """Every epoch in turn, or some; drop one before taking the next, and memory stays that of one."""
        for epoch in self.epochs(of) if epochs is None else [self._known(epoch, of) for epoch in epochs]:
            yield Epoch(epoch, *(self._read(kind, epoch, of) for kind in KINDS))

    def class_accuracies(self, epoch: int, of: str = "test") -> Floats | None:
        """The accuracy on every class at an evaluation, NaN for a class without examples; None where the run does not have it.

        Args:
            epoch: of the evaluation.
            of: "test" or "validation".
        """
        name = f"record/{of}/accuracies-{epoch:05d}.npy"
        if not exists(self.folder, name):
            return None
        return self._checked(name, read_array(self.folder, name), np.float64, (len(self.classes),))

    def _read(self, kind: str, epoch: int, of: str) -> NDArray[Any]:
        name = _file(kind, epoch, of)
        values = self._checked(name, open_array(self.folder, name), np.float16 if kind == "margins" else np.integer, self.given.shape)
        if kind == "predictions" and name not in self._in_range:
            self._check_range(name, values, NO_CLASS)
            self._in_range.add(name)
        return values

    @cached_property
    def _in_range(self) -> set[str]:
        """The files of predictions that were checked: they are opened once for every block of examples."""
        return set()

    def _known(self, epoch: int, of: str) -> int:
        """The epoch, if it is there; only where its own files are not is the whole record listed, to say what is."""
        if self._holds(epoch, of):
            return epoch
        known = self.epochs(of)
        if epoch not in known:
            has = f"epochs {known[0]} to {known[-1]}" if known else "no epoch"
            raise InputError(f"The {of} record in {str(self.folder)!r} has {has}. Got epoch {epoch!r} instead.")
        return epoch

    def _holds(self, epoch: int, of: str) -> bool:
        named = of in RECORDS and isinstance(epoch, int | np.integer)
        return named and all(self._path(_file(kind, epoch, of)).is_file() for kind in KINDS)

    def _labels(self, name: str, shape: tuple[int, ...] | None, least: int) -> Ints:
        labels = self._checked(name, read_array(self.folder, name), np.int64, shape)
        self._check_range(name, labels, least)
        return labels

    def _check_range(self, name: str, labels: NDArray[Any], least: int) -> None:
        if labels.ndim != 1 or not len(labels) or labels.min() < least or labels.max() >= len(self.classes):
            raise InputError(
                f"The file {str(self._path(name))!r} must hold labels from {least} to {len(self.classes) - 1} in one row. "
                f"Got shape {labels.shape}{f', {labels.min()} to {labels.max()}' if labels.size else ''} instead."
            )

    def _checked(self, name: str, array: NDArray[Any], kind: Any, shape: tuple[int, ...] | None) -> NDArray[Any]:
        if not np.issubdtype(array.dtype, kind) or (shape is not None and array.shape != shape):
            wanted = "integers" if kind is np.integer else kind.__name__
            raise InputError(
                f"The file {str(self._path(name))!r} must hold {wanted} shaped {'(N,)' if shape is None else shape}. "
                f"Got {array.dtype} shaped {array.shape} instead."
            )
        return array


def _file(kind: str, epoch: int, of: str) -> str:
    return f"record/{of}/{kind}-{epoch:05d}.npy"
