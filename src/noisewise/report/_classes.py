"""How the losses of a task do on every class, the worst classes first.

It averages what runs measured over their seeds. It must not read run folders itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from noisewise.dynamics import over_seeds
from noisewise.report._facts import ClassRow, ClassTable
from noisewise.report._read import Reading, counted

_SHOWN = 20
_TITLES = {"test": "Test accuracy by class", "validation": "Accuracy on held-out examples by class, by their given labels"}


def class_table(by_loss: Mapping[str, Sequence[Reading]]) -> ClassTable | None:
    """The accuracy of every loss on every class: on the test set, else on the held-out share; None where no run has it.

    Args:
        by_loss: the runs of a task, by what their loss is called.
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
