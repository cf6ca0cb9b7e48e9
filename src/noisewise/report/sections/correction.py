"""What training again on corrected labels gained, and which labels were changed.

All of it is read from the folder of the retrained run, because the original run may have been deleted.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.correct import CHANGED, read_changes
from noisewise.dynamics import Spread, over_seeds
from noisewise.report._facts import Sentence
from noisewise.report._tasks import ReportRun, Task, averaged_runs, percent
from noisewise.runs import Origin

LINKS = {"correction": ("Correction", 30)}

_CLASSES = 20  # the most classes to show
_OUTCOMES = {1: ("good", "gained"), -1: ("warning", "lost"), 0: ("plain", "neither gained nor lost")}


def is_shown(name: str, facts: Mapping[str, Any]) -> bool:
    """Whether any run was trained again on corrected labels."""
    return any(task["corrections"] for task in facts["tasks"])


def task_facts(task: Task) -> dict[str, Any]:
    """The corrections of a task, under the key "corrections"."""
    return {"corrections": [_facts(label, runs, task.runs_by_label) for label, runs in _corrected(task.runs_by_label)]}


def sentences(task: Task) -> Iterator[Sentence]:
    """For each correction, one sentence on whether the test accuracy improved."""
    for _, runs in _corrected(task.runs_by_label):
        tone, text = _verdict(runs)
        yield {"tone": tone, "text": text, "task": task.number}


def _corrected(by_label: Mapping[str, Sequence[ReportRun]]) -> Iterator[tuple[str, Sequence[ReportRun]]]:
    """The runs on corrected labels, by label."""
    for label, runs in by_label.items():
        if runs[0].origin is not None:
            yield label, averaged_runs(runs)


def _origin(run: ReportRun) -> Origin:
    assert run.origin is not None
    return run.origin


def _facts(label: str, runs: Sequence[ReportRun], by_label: Mapping[str, Sequence[ReportRun]]) -> dict[str, Any]:
    title, classes = _classes(runs[0])
    originals = {run.folder: _original_label(run, by_label) for run in runs}
    return {
        "origin": originals[runs[0].folder] or _origin(runs[0]).name_before(runs[0].loss),
        "label": label,
        "text": _verdict(runs)[1],
        "notes": list(_notes(runs, [run for run in runs if originals[run.folder] is None])),
        "measures": _measures(runs),
        "classes_title": title,
        "classes": classes,
    }


def _measures(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """Shares before and after the correction, averaged over seeds."""
    before = [_origin(run).before for run in runs]
    rows = {
        "Test accuracy of the model": ([old.final for old in before], [run.accuracy for run in runs]),
        "Test accuracy, best": ([old.best for old in before], [run.measures["best"] for run in runs]),
        "Wrong labels": ([_wrong_before(run) for run in runs], [_wrong_now(run) for run in runs]),
    }
    averages = {title: [over_seeds(values) for values in pair] for title, pair in rows.items()}
    return [
        {"title": title, "before": old and old._asdict(), "after": new and new._asdict()}
        for title, (old, new) in averages.items()
        if old is not None or new is not None
    ]


def _wrong_before(run: ReportRun) -> float | None:
    before = _origin(run).before
    return None if before.wrong is None or not before.examples else before.wrong / before.examples


def _wrong_now(run: ReportRun) -> float | None:
    wrong = run.attempt(lambda: run.dynamics.record.wrong)
    return None if wrong is None else float(wrong.mean())


def _notes(runs: Sequence[ReportRun], without_original: Sequence[ReportRun]) -> Iterator[str]:
    if without_original:
        missing = ", ".join(Path(_origin(run).folder).name for run in without_original)
        its, it = ("Its", "it") if len(without_original) == 1 else ("Their", "they")
        yield f"Not among the runs of this page: {missing}. {its} numbers are those {it} had when {its.lower()} labels were corrected."
    if any(run.state != "finished" for run in runs):
        yield "The training on corrected labels is not finished."


def _original_label(run: ReportRun, by_label: Mapping[str, Sequence[ReportRun]]) -> str | None:
    """The label of the run that a run came from; None if it is not on the page."""
    origin = _origin(run)
    wanted = (origin.name_before(run.loss), origin.otherwise.get("seed", run.seed), origin.before.labels)
    labels = {
        other.folder.resolve(): label
        for label, others in by_label.items()
        for other in others
        if (other.name, other.seed, other.label_digest) == wanted
    }
    return labels.get((run.folder / origin.folder).resolve(), next(iter(labels.values()), None))


def _verdict(runs: Sequence[ReportRun]) -> tuple[str, str]:
    """A tone and a sentence: whether the correction gained, and how many labels were wrong before and after."""
    tested = [(_origin(run).before.final, run.accuracy) for run in runs]
    pairs = [(before, after) for before, after in tested if before is not None and after is not None]
    gain = over_seeds(after - before for before, after in pairs)
    changes, loss, wrong = _changes(runs), runs[0].loss, _wrong_sentence(runs)
    if gain is None:
        return "plain", f"Whether the correction gained is not known: {loss} was not tested before and after, with {changes}.{wrong}"
    before, after = (percent(statistics.fmean(side)) for side in zip(*pairs, strict=True))
    points = round(after - before, 1)
    level = gain.deviation is not None and abs(gain.mean) < gain.deviation
    tone, outcome = _OUTCOMES[0 if level else (points > 0) - (points < 0)]
    difference = f"{abs(points):.1f} points {'above' if points > 0 else 'below'} the {before:.1f} % before" if points else "as before"
    text = f"The correction {outcome}: with {changes}, {loss} reached {after:.1f} % test accuracy, {difference}."
    return tone, f"{text}{_caution(runs, gain, level)}{wrong}"


def _caution(runs: Sequence[ReportRun], gain: Spread, level: bool) -> str:
    """Other reasons for the difference."""
    others = sorted({name for run in runs for name in _origin(run).otherwise})
    if others:
        return f" Not only the labels differ, but also {', '.join(others)}."
    if level:
        return " The difference is within the spread of the seeds."
    return " With one run each, a small difference may be chance." if gain.deviation is None else ""


def _changes(runs: Sequence[ReportRun]) -> str:
    """How many labels were changed, over all seeds."""
    total = sum((Counter(_origin(run).changes) for run in runs), Counter[str]())
    labels = f" of {sum(_origin(run).before.examples for run in runs):,} labels"
    if not total:
        return f"none{labels} changed"
    return " and ".join(
        f"{number:,}{'' if index else labels} {CHANGED[kind]}" for index, (kind, number) in enumerate(sorted(total.items()))
    )


def _wrong_sentence(runs: Sequence[ReportRun]) -> str:
    before, after = over_seeds(map(_wrong_before, runs)), over_seeds(map(_wrong_now, runs))
    if before is None or after is None:
        return ""
    return f" Of its labels {100 * before.mean:.1f} % were wrong before and {100 * after.mean:.1f} % after."


def _classes(run: ReportRun) -> tuple[str, list[dict[str, Any]]]:
    """A title, and for each class of one run how many labels it had, lost, received, had left out, and has now."""
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
    rows = [{"name": run.classes[label], **{key: int(column[label]) for key, column in counts.items()}} for label in shown]
    return f"{which}{run.seed_words}", rows
