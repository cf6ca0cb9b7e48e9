"""The training examples whose labels look wrong, and which labels are confused.

A run folder does not contain the examples. They are read from the source that the run names, and shown only if they are the ones that the
run was trained on.
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
from noisewise.report._tasks import ReportRun, Task
from noisewise.runs import examples_of

LINKS = {"doubt": ("Doubtful labels", 70)}

SHOWN = 60
_CLASSES = 20  # of a heat map: those that are confused most
_SIDE = 96  # of a thumbnail, in pixels
_POINTS = 60  # of a margin's history


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


def task_facts(task: Task) -> dict[str, Any]:
    """The doubtful labels of a task, under the key "doubt"; None if the record cannot be read."""
    return {"doubt": task.audited_run.attempt(lambda: _doubt(task.audited_run, task.data))}


def sentences(task: Task) -> Iterator[Sentence]:
    """Say how many labels look wrong."""
    audit = task.audited_run.audit
    if audit is not None:
        yield {"tone": "plain", "text": f"{_summary(task.audited_run, audit)}.", "task": task.number}
        if audit.caution is not None:
            yield {"tone": "warning", "text": audit.caution, "task": task.number}


def _doubt(run: ReportRun, data: Any) -> dict[str, Any] | None:
    audit = run.audit
    if audit is None:
        return None
    worst = audit.order[:SHOWN]
    examples, note = _examples(run, data, worst)
    return {
        "intro": f"{_summary(run, audit)}. The {len(worst)} {'most doubtful' if audit.count else 'least certain'}:",
        "note": note,
        "steps": _next_steps(run) if audit.count else [],
        "examples": _cards(run, audit, worst, examples),
        "matrices": _matrices(run, audit),
    }


def _summary(run: ReportRun, audit: Audit) -> str:
    """A clause that says how many labels look wrong."""
    share = 100 * audit.count / max(1, len(audit))
    judges = f"the margins under {run.name} ({audit.basis})" if audit.model is None else "models that did not see the label"
    words = f"{audit.count:,} of {len(audit):,} labels ({share:.1f} %) look wrong, judged by {judges}"
    wrong = run.dynamics.record.wrong
    return words if wrong is None else f"{words}; {int(wrong.sum()):,} are known to be wrong"


def _next_steps(run: ReportRun) -> list[dict[str, str]]:
    folder = shlex.quote(str(run.folder))
    return [
        {"words": "List every label, the most doubtful first:", "command": f"noisewise audit {folder} -o issues.csv"},
        {"words": "Accept or reject the suggestions one by one:", "command": f"noisewise correct {folder} --review review.html"},
    ]


def _examples(run: ReportRun, data: Any, worst: NDArray[Any]) -> tuple[Dataset | None, str | None]:
    """The examples, or a note on why they cannot be shown."""
    try:
        return examples_of(run.dynamics.record, data, places=worst), None
    except Exception as error:  # write the page without the examples
        why = str(error) if isinstance(error, InputError) else repr(error)
    return None, f"The examples themselves are not shown: {why}"


def _cards(run: ReportRun, audit: Audit, worst: NDArray[Any], examples: Dataset | None) -> list[Example]:
    true, names = run.dynamics.record.true, run.classes
    histories = audit.trajectories(worst, moments=_POINTS)
    ids = run.attempt(lambda: audit.ids) or list(map(str, range(len(audit))))
    return [
        {
            "id": f"example {ids[index]}" if ids[index].isdecimal() else ids[index],
            "given": names[audit.given[index]],
            "suggested": names[audit.suggested[index]],
            "true": None if true is None else "no class" if true[index] == NO_CLASS else names[true[index]],
            "chance": float(1 - audit.quality[index]),
            "margins": histories[row].tolist(),
            "image": None if examples is None else picture(examples, row, side=_SIDE),
            "fields": [] if examples is None else features(examples, row),
        }
        for row, index in enumerate(worst.tolist())
    ]


def _matrices(run: ReportRun, audit: Audit) -> list[dict[str, Any]]:
    """How many examples go from each given label (row) to each class (column), for the classes that are confused most."""
    record, number = run.dynamics.record, len(run.classes)
    moves = {"Estimated": (audit.given, audit.best)}
    if record.true is not None:
        known = record.true != NO_CLASS
        moves["True"] = record.given[known], record.true[known]
    shown = np.sort(np.argsort(-sum(_moved(*pairs, number) for pairs in moves.values()), kind="stable")[:_CLASSES])
    which = f", the {len(shown)} of {number} classes that are confused most" if len(shown) < number else ""
    return [_table(f"{title}{which}", pairs, shown, run.classes) for title, pairs in moves.items()]


def _moved(given: Ints, best: Ints, number: int) -> Ints:
    """How many examples leave each class or come to it."""
    moved = given != best
    return np.bincount(given[moved], minlength=number) + np.bincount(best[moved], minlength=number)


def _table(title: str, pairs: tuple[Ints, Ints], shown: Ints, classes: Sequence[str]) -> dict[str, Any]:
    given, best = pairs
    among = np.isin(given, shown) & np.isin(best, shown)
    counts = pair_counts(np.searchsorted(shown, given[among]), np.searchsorted(shown, best[among]), len(shown))
    totals = np.bincount(given, minlength=len(classes))[shown]
    return {
        "title": title,
        "names": [classes[label] for label in shown],
        "shares": (counts / np.maximum(totals, 1)[:, None]).tolist(),
        "counts": counts.tolist(),
    }
