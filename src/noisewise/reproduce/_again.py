"""The second training of GR's table 11: a run corrects its labels from its own record and is trained again on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.audit import audit_run
from noisewise.correct import correct, retrain
from noisewise.papers import RETRAINED
from noisewise.runs import read_origin
from noisewise.train import Run, Task


@dataclass(frozen=True)
class Again(Task):
    """The second training of a run; the settings are those of the first training.

    Args:
        first: the folder of the first training, which must be finished when this one starts.
    """

    first: Path

    @classmethod
    def of(cls, task: Task) -> Again:
        """The second training of a run, in a folder beside the first."""
        return cls(task.settings, second(task.folder), task.folder)

    def check(self) -> None:
        """Do nothing: `retrain` checks the settings of the second training."""

    def train(self, data: Any, test: Any, watch: Callable[[int, int], None]) -> Run:
        run = Run(self.first)
        again: Run = retrain(run, correct(audit_run(run)), data=data, test=test, folder=self.folder, watch=watch)
        return again


def second(first: Path) -> Path:
    """The folder of the second training."""
    return first.with_name(f"{first.name}-corrected")


def is_done(first: Path) -> bool:
    """Whether the second training of a run is finished; it writes its origin last."""
    return read_origin(second(first)) is not None


def numbers(first: Path) -> dict[str, float | None]:
    """The numbers of a second training for `Outcome.numbers`; empty if there is none."""
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
