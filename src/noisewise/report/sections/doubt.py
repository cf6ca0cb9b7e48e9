"""The training examples whose labels look wrong, and which labels are confused.

A run folder does not contain the examples. They are read again from the source that the run names, and shown only if they are the ones it
was trained on. This module must not know how doubt is measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import NO_CLASS, Ints
from noisewise.audit import Audit, pair_counts
from noisewise.data import Dataset, features, picture
from noisewise.errors import InputError
from noisewise.report._facts import Sentence
from noisewise.report._read import Reading, Task
from noisewise.runs import examples_of

LINK, ORDER = "Doubtful labels", 70

SHOWN = 60
_CLASSES = 20  # of a heat map: those that are confused most
_SIDE = 96  # of a thumbnail
_MOMENTS = 60  # of a margin's history


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


def task_facts(task: Task) -> dict[str, Any]:
    """The doubtful labels of a task, under the key "doubt"."""
    return {"doubt": task.judge.attempt(lambda: doubt(task.judge, task.data))}


def sentences(task: Task) -> Iterator[Sentence]:
    """Say how many labels look wrong."""
    audit = task.judge.audit
    if audit is not None:
        yield {"tone": "plain", "text": f"{summary(task.judge, audit)}.", "task": task.number}
        if audit.caution is not None:
            yield {"tone": "warning", "text": audit.caution, "task": task.number}


def doubt(run: Reading, data: Any) -> Doubt | None:
    """The doubtful examples of a run; None if its record cannot be read.

    Args:
        run: the run.
        data: the data it was trained on, as `noisewise.data.read` takes them; None to read them from the source that the run names.
    """
    found = run.audit
    if found is None:
        return None
    worst = found.order[:SHOWN]
    examples, note = _examples(run, data, worst)
    return {
        "intro": f"{summary(run, found)}. The {len(worst)} {'most doubtful' if found.count else 'least certain'}:",
        "note": note,
        "steps": _steps(run) if found.count else [],
        "examples": _cards(run, found, worst, examples),
        "matrices": _matrices(run, found),
    }


def summary(run: Reading, found: Audit) -> str:
    """A clause that says how many labels look wrong."""
    share = 100 * found.count / max(1, run.number)
    words = f"{found.count:,} of {run.number:,} labels ({share:.1f} %) look wrong, judged by the margins under {run.called} ({found.basis})"
    wrong = run.dynamics.record.wrong
    return words if wrong is None else f"{words}; {int(wrong.sum()):,} are known to be wrong"


def _steps(run: Reading) -> list[Step]:
    """The commands to run next."""
    folder = shlex.quote(str(run.folder))
    return [
        {"words": "List every label, the most doubtful first:", "command": f"noisewise audit {folder} -o issues.csv"},
        {"words": "Accept or reject the suggestions one by one:", "command": f"noisewise correct {folder} --review review.html"},
    ]


def _examples(run: Reading, data: Any, worst: NDArray[Any]) -> tuple[Dataset | None, str | None]:
    """The examples themselves, or why they cannot be shown."""
    try:
        return examples_of(run.dynamics.record, data, places=worst), None
    except Exception as error:  # the page is written without the examples
        why = str(error) if isinstance(error, InputError) else repr(error)
    return None, f"The examples themselves are not shown: {why}"


def _cards(run: Reading, found: Audit, worst: NDArray[Any], examples: Dataset | None) -> list[Example]:
    record, names = run.dynamics.record, run.classes
    histories = found.trajectories(worst, moments=_MOMENTS)
    ids = run.attempt(lambda: found.ids) or list(map(str, range(len(found))))
    return [
        {
            "id": f"example {ids[place]}" if ids[place].isdecimal() else ids[place],
            "given": names[found.given[place]],
            "suggested": names[found.suggested[place]],
            "true": None if record.true is None else "no class" if record.true[place] == NO_CLASS else names[record.true[place]],
            "chance": float(1 - found.quality[place]),
            "margins": histories[row].tolist(),
            "image": None if examples is None else picture(examples, row, side=_SIDE),
            "fields": [] if examples is None else features(examples, row),
        }
        for row, place in enumerate(worst.tolist())
    ]


def _matrices(run: Reading, found: Audit) -> list[Matrix]:
    """How many examples go from each given label (row) to each class (column), for the classes that are confused most."""
    record, number = run.dynamics.record, len(run.classes)
    moves = {"Estimated": (found.given, found.best)}
    if record.true is not None:
        known = record.true != NO_CLASS
        moves["True"] = record.given[known], record.true[known]
    shown = np.sort(np.argsort(-sum(_mixed_up(*pairs, number) for pairs in moves.values()), kind="stable")[:_CLASSES])
    which = f", the {len(shown)} of {number} classes that are mixed up most" if len(shown) < number else ""
    return [_table(f"{title}{which}", pairs, shown, run.classes) for title, pairs in moves.items()]


def _mixed_up(given: Ints, best: Ints, number: int) -> Ints:
    """How many examples leave each class or come to it."""
    moved = given != best
    return np.bincount(given[moved], minlength=number) + np.bincount(best[moved], minlength=number)


def _table(title: str, pairs: tuple[Ints, Ints], shown: Ints, classes: Sequence[str]) -> Matrix:
    given, best = pairs
    among = np.isin(given, shown) & np.isin(best, shown)
    counts = pair_counts(np.searchsorted(shown, given[among]), np.searchsorted(shown, best[among]), len(shown))
    totals = np.bincount(given, minlength=len(classes))[shown]
    return {
        "title": title,
        "names": [classes[place] for place in shown],
        "shares": (counts / np.maximum(totals, 1)[:, None]).tolist(),
        "counts": counts.tolist(),
    }
