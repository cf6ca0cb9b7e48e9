"""What was learned when: the measures of every loss over the iterations."""

from __future__ import annotations

from typing import Any

from noisewise.draw import History, dynamics_figure, lines
from noisewise.report._read import Reading, Task, counted

LINK, ORDER = "Dynamics", 50


def task_facts(task: Task) -> dict[str, Any]:
    """The figure of a task, under the key "dynamics"; None while no epoch is finished."""
    labelled = {label: [run.compared for run in counted(runs) if _has_lines(run)] for label, runs in task.by_label.items()}
    return {"dynamics": dynamics_figure(History(task.name, lines(labelled)))}


def _has_lines(run: Reading) -> bool:
    """Whether a run has anything to draw; a damaged run is left out and gets a note."""
    return bool(run.attempt(lambda: lines({run.called: [run.dynamics]})))
