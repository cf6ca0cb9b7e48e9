"""The second training of GR's table 11: a run corrects its labels from its own record, and is trained again on them.

Here it is a task for the engine, like any other run, and what came of it, read off its folder. This module must not know recipes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.audit import audit
from noisewise.correct import correct, retrain
from noisewise.runs import read_origin
from noisewise.train import Run
from noisewise.train._compare import Task
from noisewise.train._fit import Watch

RETRAINED = "retrained"
"""The number that a run has when it was trained again: the test accuracy at the end of the second training."""


@dataclass(frozen=True)
class Again(Task):
    """A run to be trained again; its settings are those of the first training.

    Args:
        first: the folder of the first training, which must be finished when this one starts.
    """

    first: Path

    @classmethod
    def of(cls, task: Task) -> Again:
        """The second training of a run, in a folder beside the first."""
        return cls(task.settings, second(task.folder), task.folder)

    def check(self) -> None:
        """Nothing: with which settings a run is trained again is known when its labels are corrected, and checked then."""

    def train(self, data: Any, test: Any, watch: Watch) -> Run:
        run = Run(self.first)
        again: Run = retrain(run, correct(audit(run)), data=data, test=test, folder=self.folder, watch=watch)
        return again


def second(first: Path) -> Path:
    """The folder of the second training, whether or not it is there."""
    return first.with_name(f"{first.name}-corrected")


def is_done(first: Path) -> bool:
    """Whether a run was trained again to the end: where it came from is the last that a second training writes."""
    return read_origin(second(first)) is not None


def numbers(first: Path) -> dict[str, float | None]:
    """What a second training came to, nothing where there is none.

    Returns:
        The test accuracy at its end, how many labels were changed before it, and the share of wrong labels before and after that,
        None where the truth is not known.
    """
    origin = read_origin(second(first))
    if origin is None:
        return {}
    again, before = Run(second(first)).dynamics, origin.before
    wrong = again.record.wrong
    return {
        RETRAINED: again.final,
        "changed": sum(origin.changes.values()),
        "wrong_before": None if before.wrong is None else before.wrong / before.examples,
        "wrong_after": None if wrong is None else float(wrong.mean()),
    }
