"""The measures of every loss, averaged over seeds, and of every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noisewise.dynamics import MEASURES, worth_telling
from noisewise.report._facts import Group
from noisewise.report._read import Page, Task, counted
from noisewise.report._verdict import average, is_tie, ranked, winner

LINK, ORDER = "Results", 10


def page_facts(page: Page) -> dict[str, Any]:
    """The columns, under the key "measures", and the averages of every loss on every task, under the key "groups"."""
    shown = worth_telling(MEASURES, [run.measures for run in page.runs])
    return {
        "measures": [
            {"key": key, "title": title, "help": meaning, "unit": unit} for key, (title, meaning, unit) in MEASURES.items() if key in shown
        ],
        "groups": [group for task in page.tasks for group in _groups(task)],
    }


def _groups(task: Task) -> Iterator[Group]:
    best = None if len(ranked(task.standings)) < 2 or is_tie(task.standings) else winner(task.standings)
    for standing, runs in zip(task.standings, task.by_label.values(), strict=True):
        yield {
            "task": task.number,
            "loss": standing.loss,
            "seeds": [run.known_seed for run in counted(runs)],
            "measures": {name: average(standing.measures[name]) for name in MEASURES},
            "reported": runs[0].reported,
            "winner": standing is best,
        }
