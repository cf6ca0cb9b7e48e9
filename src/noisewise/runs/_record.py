"""The record of a run: margins and predictions of every training example at every epoch, with settings, labels and metrics.

Its arrays are memory-mapped and read one epoch at a time, so that a million examples over hundreds of epochs fit in memory.
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
"""All values of half precision, in which margins are stored: functions of the margin become table look-ups."""


def codes(margins: NDArray[Any]) -> NDArray[np.uint16]:
    """The position of each margin in `MARGINS`."""
    return np.ascontiguousarray(margins, dtype="<f2").view("<u2")


class Epoch(NamedTuple):
    """The record of one epoch; NaN and −1 mark an example that was not seen in it."""

    number: int
    margins: Halves
    predictions: NDArray[Any]


@dataclass(frozen=True)
class Record:
    """The record of a run.

    Files are read on first access. A run that is still training can be read up to its last complete epoch.

    Args:
        folder: the run folder.
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
        """The settings: data, model, loss, noise, seed, …"""
        return read_settings(self.folder)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Versions, data and noise of the run."""
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
        """The state, epoch and step of the run."""
        return read_status(self.folder)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The name of every class."""
        return read_classes(self.folder)

    @cached_property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """One entry per finished epoch, in order."""
        return read_metrics(self.folder)

    @cached_property
    def given(self) -> Ints:
        """The labels the model was trained on."""
        return self._labels("labels/given.npy", None, 0)

    @cached_property
    def true(self) -> Ints | None:
        """The true labels, or None if they are not known; −1 for an example whose input the noise replaced."""
        return self._labels("labels/true.npy", self.given.shape, NO_CLASS) if exists(self.folder, "labels/true.npy") else None

    @cached_property
    def wrong(self) -> Flags | None:
        """Which labels are wrong, or None if the true labels are not known."""
        return None if self.true is None else self.given != self.true

    def epochs(self, of: str = "training") -> tuple[int, ...]:
        """The epochs in the record.

        Args:
            of: "training" for the record of the training steps, "clean" for the passes in eval mode without augmentation.
        """
        if of not in RECORDS:
            raise invalid_parameter("of", "a record", "one of " + ", ".join(map(repr, RECORDS)), of)
        epochs = {kind: set(list_numbered(self.folder, f"record/{of}", f"{kind}-", ".npy")) for kind in KINDS}
        complete = epochs["margins"] & epochs["predictions"]
        for kind, other in (KINDS, KINDS[::-1]):
            incomplete = {epoch for epoch in epochs[kind] - complete if epoch < max(complete, default=0)}  # the last may be unfinished
            if incomplete:
                raise missing(self.folder, _file(other, min(incomplete), of))
        return tuple(sorted(complete))

    def margins(self, epoch: int, of: str = "training") -> Halves:
        """The margin of every example, memory-mapped; NaN if it was not seen."""
        return self._read("margins", self._known(epoch, of), of)

    def predictions(self, epoch: int, of: str = "training") -> NDArray[Any]:
        """The predicted class of every example, memory-mapped; −1 if it was not seen."""
        return self._read("predictions", self._known(epoch, of), of)

    def stream(self, of: str = "training", epochs: Sequence[int] | None = None) -> Iterator[Epoch]:
        """Iterate over all or some epochs; drop each before taking the next, so that only one is in memory."""
        for epoch in self.epochs(of) if epochs is None else [self._known(epoch, of) for epoch in epochs]:
            yield Epoch(epoch, *(self._read(kind, epoch, of) for kind in KINDS))

    def class_accuracies(self, epoch: int, of: str = "test") -> Floats | None:
        """The accuracy on every class at an evaluation, NaN for a class without examples; None if it was not recorded.

        Args:
            epoch: the epoch of the evaluation.
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
        """The files of predictions that were checked. They are opened many times, once per block of examples."""
        return set()

    def _known(self, epoch: int, of: str) -> int:
        """The epoch, after a check that it is in the record. The record is listed only if the files of the epoch are missing."""
        valid = of in RECORDS and isinstance(epoch, int | np.integer)
        if not (valid and all(self._path(_file(kind, epoch, of)).is_file() for kind in KINDS)):
            known = self.epochs(of)
            if epoch not in known:
                has = f"epochs {known[0]} to {known[-1]}" if known else "no epoch"
                raise InputError(f"The {of} record in {str(self.folder)!r} has {has}. Got epoch {epoch!r} instead.")
        return epoch

    def _labels(self, name: str, shape: tuple[int, ...] | None, least: int) -> Ints:
        labels = self._checked(name, read_array(self.folder, name), np.int64, shape)
        self._check_range(name, labels, least)
        return labels

    def _check_range(self, name: str, labels: NDArray[Any], least: int) -> None:
        if labels.ndim != 1 or not len(labels) or labels.min() < least or labels.max() >= len(self.classes):
            raise InputError(
                f"The file {str(self._path(name))!r} must contain labels from {least} to {len(self.classes) - 1} in one row. "
                f"Got shape {labels.shape}{f', {labels.min()} to {labels.max()}' if labels.size else ''} instead."
            )

    def _checked(self, name: str, array: NDArray[Any], kind: Any, shape: tuple[int, ...] | None) -> NDArray[Any]:
        if not np.issubdtype(array.dtype, kind) or (shape is not None and array.shape != shape):
            wanted = "integers" if kind is np.integer else kind.__name__
            raise InputError(
                f"The file {str(self._path(name))!r} must contain {wanted} shaped {'(N,)' if shape is None else shape}. "
                f"Got {array.dtype} shaped {array.shape} instead."
            )
        return array


def _file(kind: str, epoch: int, of: str) -> str:
    return f"record/{of}/{kind}-{epoch:05d}.npy"
