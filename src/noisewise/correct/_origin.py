"""Where a retrained run came from: one small file in its folder, so that it can be set beside the run whose labels it mends.

The numbers of the first run stand in it too, because that run may be gone when somebody asks. The examples of a retrained run are
found here as well: their source has the labels from before. This module must not know how runs are trained.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisewise.arrays import Whole
from noisewise.audit._examples import examples_as_given, matching, numbers_of, rows_of
from noisewise.correct._correction import Correction
from noisewise.correct._policies import policies
from noisewise.data import Dataset
from noisewise.dynamics import Dynamics, Record
from noisewise.errors import InputError
from noisewise.runs import exists, inside, read_array, read_correction, regular_file
from noisewise.train._folder import RunFolder

FILE, LABELS, FIRST = "correction.json", "labels/corrected.csv", "labels/first.npy"
_DONE = {"relabel": "relabelled", "prune": "pruned"}


@dataclass(frozen=True)
class Before:
    """The run whose labels were corrected, as it was then.

    Args:
        labels: the digest of its labels.
        examples: how many it had.
        wrong: how many of its labels were known to be wrong; None where the truth is not known.
        final: the test accuracy of its model; None if it was not tested.
        best: that of its best epoch.
    """

    labels: str
    examples: int
    wrong: int | None
    final: float | None
    best: float | None


@dataclass(frozen=True)
class Origin:
    """What a run on corrected labels knows of the run it mends.

    Args:
        folder: of that run, seen from this one's.
        settings: what this run is compared by instead of its own: the settings that retraining itself had to change.
        otherwise: what else differs: the settings of that run that the user changed for this one.
        source: what made the labels of the first run, before any correction: its data, noise and seed. A run from before this was written
            has none, and its examples are found only under the labels it has.
        steps: what was done to the labels since the first run, one phrase for each time it was retrained.
        policy: what decided on the changes: a policy's spec, "by hand" or "from a file".
        changes: how many labels were changed, by the kind of change.
        labels: the digest of the corrected labels.
        before: the run whose labels were corrected.
    """

    folder: str
    settings: dict[str, Any]
    otherwise: dict[str, Any]
    source: dict[str, Any]
    steps: tuple[str, ...]
    policy: str
    changes: dict[str, int]
    labels: str
    before: Before

    @classmethod
    def of(cls, run: Dynamics, correction: Correction, again: Dynamics, changed: Collection[str]) -> Origin:
        """What is known when a run has been trained again.

        Args:
            run: the one whose labels were corrected.
            correction: the labels.
            again: the new one.
            changed: the names of the settings that differ only because of the correction.
        """
        earlier = read_origin(Path(run.folder))
        old, new, wrong = run.record.settings, again.record.settings, run.record.wrong
        return cls(
            folder=os.path.relpath(run.folder, again.folder),
            settings={**{name: old[name] for name in changed if name in old}, **({} if earlier is None else earlier.settings)},
            otherwise={name: value for name, value in old.items() if name not in changed and new.get(name) != value},
            source={name: old[name] for name in ("data", "noise", "seed") if name in old} if earlier is None else earlier.source,
            steps=(*(() if earlier is None else earlier.steps), _step(correction)),
            policy=correction.policy,
            changes=correction.changes,
            labels=digest(correction.labels[correction.kept]),
            before=Before(digest(correction.given), len(correction), None if wrong is None else int(wrong.sum()), run.accuracy, run.best),
        )

    def name(self, loss: str) -> str:
        """What the run is called, beside others of its loss."""
        return _called(loss, self.steps)

    def name_before(self, loss: str) -> str:
        """What the run it came from is called, given the loss of this one."""
        return _called(str(self.otherwise.get("loss", loss)), self.steps[:-1])

    def write(self, first: Whole, correction: Correction, again: Record) -> None:
        """Write it into the folder of the new run, with the list of changes and the labels of the first run.

        Args:
            first: the labels before any correction, in the order of the correction.
            correction: the labels.
            again: the record of the new run, which has some of its examples.
        """
        rows = rows_of(numbers_of(again), correction.index)
        assert rows is not None
        correction.write(inside(again.folder, LABELS))
        RunFolder(again.folder).write_array(FIRST, first[rows])
        RunFolder(again.folder).write_json(FILE, asdict(self))


def read_origin(folder: Path) -> Origin | None:
    """Where a run came from; None for one that was not trained on corrected labels."""
    if not exists(folder, FILE):
        return None
    written = read_correction(folder, FILE)
    return Origin(
        folder=written["folder"],
        settings=written["settings"],
        otherwise=written["otherwise"],
        source=written.get("source", {}),
        steps=tuple(written["steps"]),
        policy=written["policy"],
        changes={kind: written["changes"][kind] for kind in _DONE if kind in written["changes"]},
        labels=written["labels"],
        before=Before(**{field.name: written["before"][field.name] for field in fields(Before)}),
    )


def as_compared(run: Dynamics) -> Dynamics:
    """A run under the settings it is compared by and the name it has among others: itself, unless its labels were corrected."""
    origin = read_origin(Path(run.folder))
    if origin is None:
        return run
    twin = Dynamics(run.folder)
    twin.record.settings.update(origin.settings, loss=origin.name(str(twin.record.settings["loss"])))
    return twin


def read_changes(folder: Path, origin: Origin, classes: Collection[str]) -> Correction:
    """The list of changes a run was trained with, after a check that it is this one.

    Args:
        folder: of the run.
        origin: where it came from.
        classes: the name of every class, in order.
    """
    correction = Correction.read(regular_file(folder, LABELS), classes)
    if (digest(correction.given), digest(correction.labels[correction.kept])) != (origin.before.labels, origin.labels):
        raise InputError(
            f"The file {str(folder / LABELS)!r} does not list the changes the run was trained with. Copy the run folder again."
        )
    return correction


def first_labels(record: Record) -> Whole:
    """The labels that the examples of a run had before any correction."""
    if read_origin(Path(record.folder)) is None:
        return record.given
    labels = read_array(record.folder, FIRST)
    if labels.dtype != np.int64 or labels.shape != record.given.shape:
        raise InputError(
            f"The file {str(Path(record.folder) / FIRST)!r} must hold int64 shaped {record.given.shape}. "
            f"Got {labels.dtype} shaped {labels.shape}; copy the run folder again."
        )
    return labels


def examples_of(record: Record, data: Any = None, *, places: Any = None) -> Dataset:
    """The examples of a run with the labels it was trained on; corrected ones are looked for under the labels of the first run.

    Args:
        record: of the run.
        data: what it, or the first run it came from, was trained on; by default what their settings name.
        places: the positions in the record of those that are wanted, in any order; by default all.
    """
    origin = read_origin(Path(record.folder))
    try:
        return examples_as_given(record, data, places=places)
    except InputError:
        if origin is None or not origin.source:
            raise
    found = matching(record.folder, origin.source, numbers_of(record), first_labels(record), data, places=places)
    now = record.given if places is None else record.given[places]
    return replace(found, labels=torch.from_numpy(np.array(now)).to(found.labels.device))


def digest(labels: Whole) -> str:
    """What labels are known by: the same for the same labels in the same order, on any machine."""
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _called(loss: str, steps: Sequence[str]) -> str:
    return f"{loss}, {', then '.join(steps)}" if steps else loss


def _step(correction: Correction) -> str:
    """What was done to the labels, in a phrase that tells one correction from another."""
    done = " and ".join(_DONE[kind] for kind in correction.changes) or "unchanged"
    return done if correction.policy in policies else f"{done} ({correction.policy})"
