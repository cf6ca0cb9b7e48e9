"""What was done to each column of a table before it was learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from noisewise.report._tasks import Task
from noisewise.runs import read_encoding

LINKS = {"columns": ("Columns", 75)}

_SHOWN = 60


def is_shown(name: str, facts: Mapping[str, Any]) -> bool:
    """Leave the section out if no task was trained on a table whose columns were encoded."""
    return any(task.get("columns") for task in facts["tasks"])


def task_facts(task: Task) -> dict[str, Any]:
    """The key "columns": what was done to each column; None if the data were no table, or one of numbers that are used as they are."""
    run = task.audited_run
    if not (run.attempt(lambda: run.dynamics.record.provenance) or {}).get("features"):
        return {"columns": None}
    encoding = run.attempt(lambda: read_encoding(run.folder))
    if encoding is None or (encoding.plain and len(encoding.used) == len(encoding.columns)):
        return {"columns": None}
    rows = [asdict(column) for column in encoding.columns[:_SHOWN]]
    number = len(encoding.columns)
    note = f"The first {_SHOWN} of {number:,} columns." if number > _SHOWN else None
    return {"columns": {"rows": rows, "inputs": len(encoding.names), "note": note}}
