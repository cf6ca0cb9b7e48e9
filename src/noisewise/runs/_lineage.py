"""Lineage: which run a run on corrected labels came from, in one small file in its folder.

The file also has the numbers of the first run, because that run may be gone when somebody asks.
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

ORIGIN, CHANGES, FIRST = "correction.json", "labels/corrected.csv", "labels/first.npy"
_KINDS = ("relabel", "prune")


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
    """What a run on corrected labels knows about the run whose labels were corrected.

    Args:
        folder: of that run, seen from this one's.
        settings: what this run is compared by instead of its own: the settings that retraining itself had to change.
        otherwise: what else differs: the settings of that run that the user changed for this one.
        source: what made the labels of the first run, before any correction: its data, noise and seed.
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

    def name(self, loss: str) -> str:
        """What the run is called, beside others of its loss."""
        return _called(loss, self.steps)

    def name_before(self, loss: str) -> str:
        """What the run it came from is called, given the loss of this one."""
        return _called(str(self.otherwise.get("loss", loss)), self.steps[:-1])


def read_origin(folder: Path) -> Origin | None:
    """Where a run came from; None for one that was not trained on corrected labels."""
    if not exists(folder, ORIGIN):
        return None
    written = read_correction(folder, ORIGIN)
    return Origin(
        folder=written["folder"],
        settings=written["settings"],
        otherwise=written["otherwise"],
        source=written["source"],
        steps=tuple(written["steps"]),
        policy=written["policy"],
        changes={kind: written["changes"][kind] for kind in _KINDS if kind in written["changes"]},
        labels=written["labels"],
        before=Before(**{field.name: written["before"][field.name] for field in fields(Before)}),
    )


def label_digest(labels: Ints) -> str:
    """What labels are known by: the same for the same labels in the same order, on any machine."""
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _called(loss: str, steps: Sequence[str]) -> str:
    return f"{loss}, {', then '.join(steps)}" if steps else loss
