"""The accuracy of every loss on every class, averaged over seeds, the worst classes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from noisewise.dynamics import over_seeds
from noisewise.report._read import Reading, Task, counted

LINK, ORDER = "Classes", 20

_SHOWN = 20
_TITLES = {"test": "Test accuracy by class", "validation": "Accuracy on held-out examples by class, by their given labels"}


class ClassRow(TypedDict):
    """A class: how many training examples are labelled so (None where that is not known), and the accuracy of every loss on it."""

    name: str
    labels: int | None
    accuracies: list[float | None]


class ClassTable(TypedDict):
    """The accuracy of the losses of a task on every class, the worst classes first."""

    title: str
    note: str | None
    losses: list[str]
    rows: list[ClassRow]


def is_shown(facts: Mapping[str, Any]) -> bool:
    """Whether any task has a table."""
    return any(task["classes"] for task in facts["tasks"])


def task_facts(task: Task) -> dict[str, Any]:
    """The table of a task, under the key "classes"."""
    return {"classes": class_table(task.by_label)}


def class_table(by_loss: Mapping[str, Sequence[Reading]]) -> ClassTable | None:
    """The accuracy of every loss on every class of the test set, else of the held-out share; None where no run has it.

    Args:
        by_loss: the runs of a task, by the label of their loss.
    """
    for of, title in _TITLES.items():
        columns = {label: _averages(runs, of) for label, runs in by_loss.items()}
        columns = {label: averages for label, averages in columns.items() if averages}
        if columns:
            return _table(title, columns, next(iter(by_loss.values()))[0].label_counts)
    return None


def _averages(runs: Sequence[Reading], of: str) -> dict[str, float]:
    """The accuracy on every class, averaged over the seeds of one loss."""
    measured = [accuracies for run in counted(runs) if (accuracies := run.class_accuracies(of))]
    spreads = {name: over_seeds(one.get(name) for one in measured) for name in (measured[0] if measured else ())}
    return {name: spread.mean for name, spread in spreads.items() if spread is not None}


def _table(title: str, columns: Mapping[str, Mapping[str, float]], labels: Mapping[str, int]) -> ClassTable:
    names = dict.fromkeys(name for averages in columns.values() for name in averages)
    mean = {name: float(np.mean([averages[name] for averages in columns.values() if name in averages])) for name in names}
    worst = sorted(names, key=lambda name: mean[name])
    rows: list[ClassRow] = [
        {"name": name, "labels": labels.get(name), "accuracies": [averages.get(name) for averages in columns.values()]}
        for name in worst[:_SHOWN]
    ]
    note = f"The {_SHOWN} worst of {len(names):,} classes." if len(names) > _SHOWN else None
    return {"title": title, "note": note, "losses": list(columns), "rows": rows}
