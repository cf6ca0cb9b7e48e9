"""The decisions on a run as they are made: one JSON line each in the run folder, on the disk before anybody is told that it is saved.

Nothing is ever changed in the file. The last line on an example counts, so a process that is killed loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

from noisewise.correct._decisions import ACTIONS, UNDECIDED, is_whole, lines_of
from noisewise.errors import InputError, reason
from noisewise.output import append_lines
from noisewise.runs import exists, inside, regular_file

DECISIONS = "decisions.jsonl"


class Entry(NamedTuple):
    """What was decided on one example, given by its index: the decision, and the new label of "relabel"."""

    example: int
    decision: str
    label: str | None


class Step(NamedTuple):
    """Decisions that were made together. With `undo`, the step reverts the last one that was not reverted yet."""

    entries: tuple[Entry, ...]
    undo: bool


class DecisionLog:
    """The file of decisions in a run folder, and the steps in it.

    Args:
        folder: the run folder. The caller has locked it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = inside(folder, DECISIONS)
        self.steps: list[Step] = []
        if exists(folder, DECISIONS):
            self.steps = _read_steps(regular_file(folder, DECISIONS))

    def append(self, step: Step, labels: dict[int, dict[str, str]]) -> None:
        """Save a step.

        Args:
            step: the decisions.
            labels: the id and the given label of every example, by index. They show later that the decisions belong to the run.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        number = len(self.steps)
        append_lines(self.path, (dumps(_line(now, number, step.undo, entry, labels), ensure_ascii=False) for entry in step.entries))
        self.steps.append(step)


def _line(time: str, number: int, undo: bool, entry: Entry, labels: dict[int, dict[str, str]]) -> dict[str, Any]:
    label = {} if entry.label is None else {"label": entry.label}
    marks = {"undo": True} if undo else {}
    return {
        "time": time,
        "step": number,
        **marks,
        "index": entry.example,
        **labels.get(entry.example, {}),
        "decision": entry.decision,
        **label,
    }


def _read_steps(path: Path) -> list[Step]:
    """The steps of a file, after its end was repaired: a killed process may have left an unfinished line."""
    try:
        _end_last_line(path)
        lines = list(lines_of(path.read_text(encoding="utf-8")))
        return [_as_step(list(group)) for _, group in groupby(lines, lambda line: line.get("step"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"The decisions {str(path)!r} cannot be read ({reason(error)}). Fix or delete the file.") from None


def _end_last_line(path: Path) -> None:
    content = path.read_bytes()
    rest = content[content.rfind(b"\n") + 1 :]
    if rest and is_whole(rest.decode(errors="replace")):
        append_lines(path, [""])
    elif rest:
        os.truncate(path, len(content) - len(rest))


def _as_step(lines: Sequence[dict[str, Any]]) -> Step:
    entries = tuple(Entry(int(line["index"]), str(line["decision"]), line.get("label")) for line in lines)
    if any(entry.decision not in (*ACTIONS, UNDECIDED) for entry in entries):
        raise ValueError("a decision is unknown")
    return Step(entries, any(line.get("undo") for line in lines))
