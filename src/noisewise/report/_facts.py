"""The facts that the page shows, as plain data: what `_report` and the sections gather, and `_render` writes.

Everything is JSON: a missing number is None, a share is between 0 and 1, and text is plain, never markup.
"""

from __future__ import annotations

from typing import Any, TypedDict

Average = dict[str, float | None]
"""The keys "mean" and "deviation" over seeds; the deviation of a single seed is None."""

Broken = dict[str, str]
"""A run folder that could not be read: the keys "folder" and "reason"."""

Reported = dict[str, str]
"""A number that a paper reports: the keys "value", as printed, and "source"."""

TaskFacts = dict[str, Any]
"""Runs on the same data with the same model and noise: the keys "name", "data", "model" and "noise", and those that sections add.

A figure with two columns of panels lists them in ``layout["meta"]["panels"]``, as pairs of axes, row by row. Text in a panel is anchored to
its axes ("x2 domain"), so that panels can be moved on a narrow screen.
"""


class Sentence(TypedDict):
    """A sentence of the verdict. The tone is "good", "plain" or "warning"; the task is a position in `Facts.tasks`."""

    tone: str
    text: str
    task: int | None


class Group(TypedDict):
    """The runs of one loss on one task, averaged over seeds. The seed of a run that a `Recorder` wrote is None."""

    task: int
    loss: str
    seeds: list[int | None]
    measures: dict[str, Average | None]
    reported: Reported | None
    winner: bool


class RunFacts(TypedDict):
    """One run. The state is usually "finished", "running", "interrupted" or "failed"."""

    task: int | None
    loss: str
    noise: str
    model: str
    data: str
    seed: int | None
    state: str
    notes: list[str]
    measures: dict[str, float | None]
    reported: Reported | None
    folder: str
    settings: dict[str, str]
    versions: dict[str, str]
    command: str | None


class Facts(TypedDict):
    """Everything that a page shows; sections may add keys. A measure has the keys "key", "title", "help" and "unit"."""

    title: str
    made: str
    counts: str
    verdict: list[Sentence]
    measures: list[dict[str, str]]
    groups: list[Group]
    runs: list[RunFacts]
    broken: list[Broken]
    tasks: list[TaskFacts]
