"""The accuracy of each loss on each class, averaged over seeds, the worst classes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisewise.dynamics import over_seeds
from noisewise.report._tasks import ReportRun, Task, averaged_runs

LINKS = {"classes": ("Classes", 20)}

_SHOWN = 20
_TITLES = {"test": "Test accuracy by class", "validation": "Accuracy on held-out examples by class, by their given labels"}


def is_shown(facts: Mapping[str, Any]) -> bool:
    """Whether any task has a table."""
    return any(task["classes"] for task in facts["tasks"])


def task_facts(task: Task) -> dict[str, Any]:
    """The key "classes": the accuracies on the test set, else on the held-out share; None if no run has them."""
    for split, title in _TITLES.items():
        columns = {label: _averages(runs, split) for label, runs in task.runs_by_label.items()}
        columns = {label: averages for label, averages in columns.items() if averages}
        if columns:
            return {"classes": _table(title, columns, next(iter(task.runs_by_label.values()))[0].label_counts)}
    return {"classes": None}


def _averages(runs: Sequence[ReportRun], split: str) -> dict[str, float]:
    """The accuracy on each class, averaged over the seeds of one loss."""
    rows = [row for run in averaged_runs(runs) if (row := run.class_accuracies(split))]
    spreads = {name: over_seeds(row.get(name) for row in rows) for name in (rows[0] if rows else ())}
    return {name: spread.mean for name, spread in spreads.items() if spread is not None}


def _table(title: str, columns: Mapping[str, Mapping[str, float]], labels: Mapping[str, int]) -> dict[str, Any]:
    """A row per class: its name, how many training examples have its label (None if not known), and the accuracy of each loss."""
    names = dict.fromkeys(name for averages in columns.values() for name in averages)
    mean = {name: float(np.mean([averages[name] for averages in columns.values() if name in averages])) for name in names}
    rows = [
        {"name": name, "labels": labels.get(name), "accuracies": [averages.get(name) for averages in columns.values()]}
        for name in sorted(names, key=lambda name: mean[name])[:_SHOWN]
    ]
    note = f"The {_SHOWN} worst of {len(names):,} classes." if len(names) > _SHOWN else None
    return {"title": title, "note": note, "losses": list(columns), "rows": rows}
