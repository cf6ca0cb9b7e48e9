"""What the page shows, as plain data: the one contract between what gathers facts and what renders them.

Everything is JSON: a number that does not exist is None, a share is between 0 and 1, and every word is text, never markup. This
module must not know where facts come from or how they look.
"""

from __future__ import annotations

from typing import TypedDict

from noisewise.draw._plotly import Figure


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


class EmphasisFacts(TypedDict):
    """The emphasis at some margins: one row of values, or one for every frame of the film."""

    margins: list[float]
    values: list[list[float]]


class FilmFacts(TypedDict):
    """Histograms of the margins of one run, epoch by epoch: counts[group][frame][bin], groups "clean" and "noisy", or "all"."""

    label: str
    edges: list[float]
    epochs: list[int]
    counts: dict[str, list[list[int]]]
    emphasis: EmphasisFacts | None


class Example(TypedDict):
    """A training example whose label is in doubt: an image as a data URI, or its fields as pairs of name and value."""

    id: str
    given: str
    suggested: str
    true: str | None
    chance: float
    margins: list[float | None]
    image: str | None
    fields: list[list[str]]


class Matrix(TypedDict):
    """How often which label was given (rows) to which class (columns): shares of the row, and counts."""

    title: str
    names: list[str]
    shares: list[list[float]]
    counts: list[list[int]]


class Step(TypedDict):
    """Something a reader may want to do next, and the command that does it."""

    words: str
    command: str


class Doubt(TypedDict):
    """The labels of a task that look wrong."""

    intro: str
    note: str | None
    steps: list[Step]
    examples: list[Example]
    matrices: list[Matrix]


class BeforeAfter(TypedDict):
    """A share before and after the correction of the labels, averaged over seeds."""

    title: str
    before: Average | None
    after: Average | None


class ClassChange(TypedDict):
    """How many labels a class had, how many left it for other classes or came from them, how many were left out, how many it has."""

    name: str
    before: int
    away: int
    into: int
    left_out: int
    after: int


class CorrectionFacts(TypedDict):
    """Runs before and after the correction of their labels: what they are called, whether it gained, and what was changed."""

    origin: str
    label: str
    text: str
    notes: list[str]
    measures: list[BeforeAfter]
    classes_title: str
    classes: list[ClassChange]


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


class TaskFacts(TypedDict):
    """What can be compared: runs on the same data with the same model and noise, and those trained again after a correction.

    A figure whose panels stand in two columns lists them in ``layout["meta"]["panels"]``, as pairs of axes, row by row; what is
    written into a panel is anchored to its axes ("x2 domain"), so that panels can be moved on a narrow screen.
    """

    name: str
    data: str
    model: str
    noise: str
    corrections: list[CorrectionFacts]
    classes: ClassTable | None
    curves: Figure | None
    curves_note: str | None
    dynamics: Figure | None
    films: list[FilmFacts]
    doubt: Doubt | None


class Facts(TypedDict):
    """All that a page shows."""

    title: str
    made: str
    counts: str
    verdict: list[Sentence]
    measures: list[Measure]
    groups: list[Group]
    runs: list[RunFacts]
    broken: list[Broken]
    tasks: list[TaskFacts]
