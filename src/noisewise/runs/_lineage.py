"""Lineage: which run a run on corrected labels came from, in one small file in its folder.

The file repeats the numbers of the run before, because that run may have been deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from noisewise.arrays import Ints
from noisewise.runs._files import exists
from noisewise.runs._format import read_correction

ORIGIN = "correction.json"
CHANGES = "labels/corrected.csv"
FIRST = "labels/first.npy"
_KINDS = ("relabel", "prune")


@dataclass(frozen=True)
class Before:
    """The run whose labels were corrected, as it was then.

    Args:
        labels: the digest of its labels.
        examples: the number of its training examples.
        wrong: how many of its labels were known to be wrong; None if the true labels are not known.
        final: the test accuracy of its model; None if it was not tested.
        best: the test accuracy of its best epoch.
    """

    labels: str
    examples: int
    wrong: int | None
    final: float | None
    best: float | None


@dataclass(frozen=True)
class Origin:
    """What a run on corrected labels knows about the run whose labels were corrected.

    Args:
        folder: the folder of that run, relative to this run's folder.
        settings: the settings of that run that retraining had to change; comparisons use them instead of this run's.
        otherwise: the settings of that run that the user changed for this one.
        source: the data, noise and seed of the first run, before any correction.
        steps: what was done to the labels since the first run, one phrase per retraining.
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

    def name(self, loss: str) -> str:
        """The name of the run among others with the same loss."""
        return _run_name(loss, self.steps)

    def name_before(self, loss: str) -> str:
        """The name of the run it came from, given the loss of this run."""
        return _run_name(str(self.otherwise.get("loss", loss)), self.steps[:-1])


def read_origin(folder: Path) -> Origin | None:
    """Where a run came from; None if it was not trained on corrected labels."""
    if not exists(folder, ORIGIN):
        return None
    written = read_correction(folder, ORIGIN)
    values = {field.name: written[field.name] for field in fields(Origin)}
    values["steps"] = tuple(values["steps"])
    values["changes"] = {kind: written["changes"][kind] for kind in _KINDS if kind in written["changes"]}
    values["before"] = Before(**{field.name: written["before"][field.name] for field in fields(Before)})
    return Origin(**values)


def label_digest(labels: Ints) -> str:
    """A digest that is the same for the same labels in the same order, on any machine."""
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _run_name(loss: str, steps: Sequence[str]) -> str:
    return f"{loss}, {', then '.join(steps)}" if steps else loss
