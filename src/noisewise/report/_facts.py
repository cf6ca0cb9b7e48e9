"""What the page shows, as plain data: the contract between gathering and rendering.

Everything is JSON: a missing number is None, a share is between 0 and 1, and all text is plain, never markup. Sections define the types of
their own facts.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Sentence(TypedDict):
    """One sentence of the verdict; its tone is "good", "plain" or "warning", its task the place of the task it is about."""

    tone: str
    text: str
    task: int | None


class Measure(TypedDict):
    """A column of the results; the unit is "%" for shares, else ""."""

    key: str
    title: str
    help: str
    unit: str


class Average(TypedDict):
    """The mean over seeds and its sample deviation, which one seed does not have."""

    mean: float
    deviation: float | None


class Reported(TypedDict):
    """The number a paper printed, as it printed it, and where."""

    value: str
    source: str


class Group(TypedDict):
    """The runs of one loss on one task, averaged over seeds; the seed of a recorded loop is not known."""

    task: int
    loss: str
    seeds: list[int | None]
    measures: dict[str, Average | None]
    reported: Reported | None
    winner: bool


class RunFacts(TypedDict):
    """One run; the state is "finished", "running", "interrupted" or "failed", or another word where it is none of these."""

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


class Broken(TypedDict):
    """A run folder that could not be read."""

    folder: str
    reason: str


TaskFacts = dict[str, Any]
"""Runs on the same data with the same model and noise: the keys "name", "data", "model" and "noise", and those that sections add.

A figure whose panels are in two columns lists them in ``layout["meta"]["panels"]``, as pairs of axes, row by row. Text in a panel is
anchored to its axes ("x2 domain"), so that panels can be moved on a narrow screen.
"""


class Facts(TypedDict):
    """Everything that a page shows; sections may add more keys."""

    title: str
    made: str
    counts: str
    verdict: list[Sentence]
    measures: list[Measure]
    groups: list[Group]
    runs: list[RunFacts]
    broken: list[Broken]
    tasks: list[TaskFacts]
