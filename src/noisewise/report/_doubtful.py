"""The most doubtful training examples of a run, and from which label to which they would go.

The examples themselves are not in a run folder: they are looked for where the run says its data came from, and shown only if
they are the very ones it was trained on. This module must not know how doubt is measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import NO_CLASS, Whole
from noisewise.audit import Audit, pair_counts
from noisewise.data import Dataset, features, picture
from noisewise.errors import InputError
from noisewise.report._facts import Doubt, Example, Matrix, Step
from noisewise.report._read import Reading
from noisewise.runs import examples_of

SHOWN = 60
_CLASSES = 20  # more do not fit a heat map one can read: those that are mixed up most are shown
_SIDE = 96  # of a thumbnail
_MOMENTS = 60  # of a margin's history


def doubt(run: Reading, data: Any) -> Doubt | None:
    """The doubtful examples of a run, or None if its record cannot be read.

    Args:
        run: the run.
        data: the data it was trained on, as `noisewise.data.read` takes them; None to look where the run says they came from.
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
    """How many labels look wrong, in words."""
    share = 100 * found.count / max(1, run.number)
    words = f"{found.count:,} of {run.number:,} labels ({share:.1f} %) look wrong, judged by the margins under {run.called} ({found.basis})"
    wrong = run.dynamics.record.wrong
    return words if wrong is None else f"{words}; {int(wrong.sum()):,} are known to be wrong"


def _steps(run: Reading) -> list[Step]:
    """What can be done about them."""
    folder = shlex.quote(str(run.folder))
    return [
        {"words": "List every label, the most doubtful first:", "command": f"noisewise audit {folder} -o issues.csv"},
        {"words": "Accept or reject the suggestions one by one:", "command": f"noisewise correct {folder} --review review.html"},
    ]


def _examples(run: Reading, data: Any, worst: NDArray[Any]) -> tuple[Dataset | None, str | None]:
    """The examples themselves, or why they cannot be shown."""
    try:
        return examples_of(run.dynamics.record, data, places=worst), None
    except Exception as error:  # the data may be anything by now, and must not cost the page
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
    """From which given label (row) to which (column) examples go, of the classes that are mixed up most: no table of all is made."""
    record, number = run.dynamics.record, len(run.classes)
    moves = {"Estimated": (found.given, found.best)}
    if record.true is not None:
        known = record.true != NO_CLASS
        moves["True"] = record.given[known], record.true[known]
    shown = np.sort(np.argsort(-sum(_mixed_up(*pairs, number) for pairs in moves.values()), kind="stable")[:_CLASSES])
    which = f", the {len(shown)} of {number} classes that are mixed up most" if len(shown) < number else ""
    return [_table(f"{title}{which}", pairs, shown, run.classes) for title, pairs in moves.items()]


def _mixed_up(given: Whole, best: Whole, number: int) -> Whole:
    """How many examples leave each class, and how many come to it."""
    moved = given != best
    return np.bincount(given[moved], minlength=number) + np.bincount(best[moved], minlength=number)


def _table(title: str, pairs: tuple[Whole, Whole], shown: Whole, classes: Sequence[str]) -> Matrix:
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
