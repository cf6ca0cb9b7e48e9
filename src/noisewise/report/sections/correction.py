"""What training again on corrected labels gained, and which labels were changed.

All of it is in the folder of the retrained run; the run it came from may be gone. This module must not know how labels are corrected.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from noisewise.correct import CHANGED, read_changes
from noisewise.dynamics import Spread, over_seeds
from noisewise.report._facts import Average, Sentence
from noisewise.report._read import Reading, Task, counted
from noisewise.report._verdict import average
from noisewise.runs import Origin

LINK, ORDER = "Correction", 30

_CLASSES = 20  # the most classes to show
_OUTCOMES = {1: ("good", "gained"), -1: ("warning", "lost"), 0: ("plain", "neither gained nor lost")}


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


def is_shown(facts: Mapping[str, Any]) -> bool:
    """Whether any run was trained again on corrected labels."""
    return any(task["corrections"] for task in facts["tasks"])


def task_facts(task: Task) -> dict[str, Any]:
    """The corrections of a task, under the key "corrections"."""
    return {"corrections": [_facts(label, runs, task.by_label) for label, runs in _corrected(task.by_label)]}


def sentences(task: Task) -> Iterator[Sentence]:
    """Say for each correction whether it gained."""
    for _, runs in _corrected(task.by_label):
        tone, text = _judgement(runs)
        yield {"tone": tone, "text": text, "task": task.number}


def _corrected(by_label: Mapping[str, Sequence[Reading]]) -> Iterator[tuple[str, Sequence[Reading]]]:
    """The runs on corrected labels, by label; without unfinished ones where others finished."""
    for label, runs in by_label.items():
        if runs[0].origin is not None:
            yield label, counted(runs)


def _origin(run: Reading) -> Origin:
    assert run.origin is not None
    return run.origin


def _facts(label: str, runs: Sequence[Reading], by_label: Mapping[str, Sequence[Reading]]) -> CorrectionFacts:
    title, classes = _classes(runs[0])
    found = {run.folder: _label_of_origin(run, by_label) for run in runs}
    return {
        "origin": found[runs[0].folder] or _origin(runs[0]).name_before(runs[0].loss),
        "label": label,
        "text": _judgement(runs)[1],
        "notes": list(_notes(runs, [run for run in runs if found[run.folder] is None])),
        "measures": [one for one in _measures(runs) if one["before"] is not None or one["after"] is not None],
        "classes_title": title,
        "classes": classes,
    }


def _measures(runs: Sequence[Reading]) -> Iterator[BeforeAfter]:
    before = [_origin(run).before for run in runs]
    yield _compared("Test accuracy of the model", [one.final for one in before], [run.accuracy for run in runs])
    yield _compared("Test accuracy, best", [one.best for one in before], [run.measures["best"] for run in runs])
    yield _compared("Wrong labels", [_share(one.wrong, one.examples) for one in before], [_wrong_now(run) for run in runs])


def _compared(title: str, before: Sequence[float | None], after: Sequence[float | None]) -> BeforeAfter:
    return {"title": title, "before": average(over_seeds(before)), "after": average(over_seeds(after))}


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


def _wrong_now(run: Reading) -> float | None:
    wrong = run.attempt(lambda: run.dynamics.record.wrong)
    return None if wrong is None else float(wrong.mean())


def _notes(runs: Sequence[Reading], alone: Sequence[Reading]) -> Iterator[str]:
    if alone:
        missing = ", ".join(Path(_origin(run).folder).name for run in alone)
        its, it = ("Its", "it") if len(alone) == 1 else ("Their", "they")
        yield f"Not among the runs of this page: {missing}. {its} numbers are those {it} had when {its.lower()} labels were corrected."
    if any(run.state != "finished" for run in runs):
        yield "The training on corrected labels is not finished."


def _label_of_origin(run: Reading, by_label: Mapping[str, Sequence[Reading]]) -> str | None:
    """The label of the run that a run came from; None if it is not among these runs."""
    origin = _origin(run)
    wanted = (origin.name_before(run.loss), origin.otherwise.get("seed", run.seed), origin.before.labels)
    alike = {
        other.folder.resolve(): label
        for label, same in by_label.items()
        for other in same
        if (other.called, other.seed, other.labels) == wanted
    }
    return alike.get((run.folder / origin.folder).resolve(), next(iter(alike.values()), None))


def _judgement(runs: Sequence[Reading]) -> tuple[str, str]:
    """A tone and a sentence: whether the correction gained, and how many labels were wrong before and after."""
    tested = [(_origin(run).before.final, run.accuracy) for run in runs]
    pairs = [(before, after) for before, after in tested if before is not None and after is not None]
    gain = over_seeds(after - before for before, after in pairs)
    done, loss, wrong = _changes(runs), runs[0].loss, _wrong_words(runs)
    if gain is None:
        return "plain", f"Whether the correction gained is not known: {loss} was not tested before and after, with {done}.{wrong}"
    # Of the numbers as they are shown.
    before, after = (round(100 * statistics.fmean(side), 1) for side in zip(*pairs, strict=True))
    points = round(after - before, 1)
    level = gain.deviation is not None and abs(gain.mean) < gain.deviation
    tone, outcome = _OUTCOMES[0 if level else (points > 0) - (points < 0)]
    difference = f"{abs(points):.1f} points {'above' if points > 0 else 'below'} the {before:.1f} % before" if points else "as before"
    words = f"The correction {outcome}: with {done}, {loss} reached {after:.1f} % test accuracy, {difference}."
    return tone, f"{words}{_caution(runs, gain, level)}{wrong}"


def _caution(runs: Sequence[Reading], gain: Spread, level: bool) -> str:
    """Other reasons for the difference."""
    others = sorted({name for run in runs for name in _origin(run).otherwise})
    if others:
        return f" Not only the labels differ, but also {', '.join(others)}."
    if level:
        return " The difference lies within the spread of the seeds."
    return " With one run each, a small difference may be chance." if gain.deviation is None else ""


def _changes(runs: Sequence[Reading]) -> str:
    """How many labels were changed, over all seeds."""
    total = sum((Counter(_origin(run).changes) for run in runs), Counter[str]())
    labels = f" of {sum(_origin(run).before.examples for run in runs):,} labels"
    if not total:
        return f"none{labels} changed"
    return " and ".join(
        f"{number:,}{'' if place else labels} {CHANGED[kind]}" for place, (kind, number) in enumerate(sorted(total.items()))
    )


def _wrong_words(runs: Sequence[Reading]) -> str:
    before = over_seeds(_share(_origin(run).before.wrong, _origin(run).before.examples) for run in runs)
    after = over_seeds(_wrong_now(run) for run in runs)
    if before is None or after is None:
        return ""
    return f" Of its labels {100 * before.mean:.1f} % were wrong before and {100 * after.mean:.1f} % after."


def _classes(run: Reading) -> tuple[str, list[ClassChange]]:
    """A title, and the changed labels of each class in one run."""
    correction = run.attempt(lambda: read_changes(run.folder, _origin(run), run.classes))
    if correction is None:
        return "", []
    number, given, now = len(run.classes), correction.given, correction.labels
    moved, gone = (now != given) & correction.kept, ~correction.kept
    counts = {
        "before": np.bincount(given, minlength=number),
        "away": np.bincount(given[moved], minlength=number),
        "into": np.bincount(now[moved], minlength=number),
        "left_out": np.bincount(given[gone], minlength=number),
        "after": np.bincount(now[correction.kept], minlength=number),
    }
    changed = counts["away"] + counts["into"] + counts["left_out"]
    shown = np.sort(np.argsort(-changed, kind="stable")[: min(_CLASSES, np.count_nonzero(changed))])
    most = " most" if np.count_nonzero(changed) > len(shown) else ""
    which = "Labels by class" if len(shown) == number else f"Labels by class: the {len(shown)} of {number} that changed{most}"
    table: list[ClassChange] = [
        {
            "name": run.classes[place],
            "before": int(counts["before"][place]),
            "away": int(counts["away"][place]),
            "into": int(counts["into"][place]),
            "left_out": int(counts["left_out"][place]),
            "after": int(counts["after"][place]),
        }
        for place in shown
    ]
    return f"{which}{run.seed_words}", table
