"""Gather everything the page shows from run folders.

Runs on the same data with the same model and noise are a task: their losses can be compared. What is shown of a task is averaged over
seeds or taken from one of them, so that the page stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import noisewise
from noisewise.data import is_official
from noisewise.draw import by_label
from noisewise.dynamics import MEASURES, Dynamics, over_seeds
from noisewise.errors import InputError
from noisewise.report._facts import Broken, Facts, Sentence, TaskFacts
from noisewise.report._read import Page, Reading, Task, counted
from noisewise.report._verdict import Standing, is_tie, ranked, verdict, winner
from noisewise.report.sections import SECTIONS, correction, doubt
from noisewise.runs import data_set_numbers

_FRAMES = 60  # of a film
_ALL_FRAMES = 1500  # of all films together, so that a page with a hundred films stays small

Tell = Callable[[str], None]


def gather(folders: Sequence[Path], *, title: str, data: Any = None, tell: Tell = lambda line: None) -> Facts:
    """Read runs and work out the page.

    Args:
        folders: of the runs.
        title: of the page.
        data: what the runs were trained on; None to read it from the source that each run names.
        tell: called with a line about the progress.
    """
    page = _page(folders, data, tell)
    tasks: list[TaskFacts] = []
    sentences: list[Sentence] = []
    for task in page.tasks:
        tell(f"drawing task {task.number + 1} of {len(page.tasks)}")
        tasks.append(_task(task))
        judged = [*verdict(task.number, task.name, task.standings), *correction.sentences(task)]
        doubts = list(doubt.sentences(task))
        # Where nothing was tested, which labels look wrong is the most important.
        sentences += [*doubts, *judged] if winner(task.standings) is None else [*judged, *doubts]
    facts: dict[str, Any] = {
        "title": title,
        "made": f"{date.today().day} {date.today():%B %Y}, noisewise {noisewise.__version__}",
        "counts": _counts(page.runs, page.broken),
        "verdict": [*_overall([task.standings for task in page.tasks]), *sentences, *_left_out(page.runs, page.broken)],
        "tasks": tasks,
    }
    for section in SECTIONS:
        if hasattr(section, "page_facts"):
            facts |= section.page_facts(page)
    return facts  # type: ignore[return-value]


def _page(folders: Sequence[Path], data: Any, tell: Tell) -> Page:
    runs: list[Reading] = []
    broken: list[Broken] = []
    for place, folder in enumerate(folders, 1):
        tell(f"reading run {place} of {len(folders)}")
        try:
            runs.append(_read(folder))
        except Exception as error:  # the other runs are shown all the same
            broken.append({"folder": str(folder), "reason": str(error) if isinstance(error, InputError) else repr(error)})
    tasks: dict[tuple[str, str, str], list[Reading]] = {}
    for run, number in zip(runs, data_set_numbers([run.dynamics.record for run in runs]), strict=True):
        run.namesake = number
        tasks.setdefault(run.task, []).append(run)
    labelled = [_by_label(members) for members in tasks.values()]
    frames = max(10, min(_FRAMES, _ALL_FRAMES // max(1, sum(map(len, labelled)))))
    return Page(
        runs,
        broken,
        [
            Task(number, name, by_loss, [_standing(label, same) for label, same in by_loss.items()], data, frames)
            for number, (name, by_loss) in enumerate(zip(_names(tasks), labelled, strict=True))
        ],
    )


def _task(task: Task) -> TaskFacts:
    data, model, noise = next(iter(task.first.values())).task
    facts: TaskFacts = {"name": task.name, "data": data, "model": model, "noise": noise}
    for section in SECTIONS:
        if hasattr(section, "task_facts"):
            facts |= section.task_facts(task)
    return facts


def _read(folder: Path) -> Reading:
    """A run with all it can be measured by: from here on, reading it does not fail."""
    run = Reading(Dynamics(folder))
    for name in ("data", "model", "loss"):
        if not run.setting(name):
            raise InputError(f"The settings of the run in {str(folder)!r} name no {name}. Copy the run folder again.")
    _ = run.state, run.measures, run.knows_truth, run.origin
    return run


def _names(tasks: Mapping[tuple[str, str, str], Sequence[Reading]]) -> list[str]:
    """What each task is called: by all that tells it from the others, and always by its noise and data."""
    models = len({model for _, model, _ in tasks}) > 1
    return [
        f"{data}{f', {model}' if models else ''}, {_labels(data, noise, all(run.dynamics.record.recorded for run in runs))}"
        for (data, model, noise), runs in tasks.items()
    ]


def _labels(data: str, noise: str, recorded: bool) -> str:
    """What is known of the labels; a Recorder does not know how those it was given came about."""
    if noise != "none":
        return f"{noise} noise"
    return "clean labels" if is_official(data) and not recorded else "labels as given"


def _counts(runs: Sequence[Reading], broken: Sequence[Any]) -> str:
    several = {
        "loss": ("loss", "losses"),
        "noise": ("noise", "noises"),
        "model": ("model", "models"),
        "data": ("data set", "data sets"),
        "seed": ("seed", "seeds"),
    }
    told = {name: {run.task[0] if name == "data" else str(run.setting(name)) for run in runs if name in run.settings} for name in several}
    numbers = {words: len(told[name]) for name, words in several.items()}
    parts = [f"{number} {words[number != 1]}" for words, number in numbers.items() if number]
    total = len(runs) + len(broken)
    return f"{total} {'run' if total == 1 else 'runs'}" + (f": {', '.join(parts)}" if parts else "")


def _by_label(runs: Sequence[Reading]) -> dict[str, list[Reading]]:
    """The runs of a task by their loss, and by whatever else but the seed tells them apart."""
    readings = {run.folder: run for run in runs}
    return {label: [readings[Path(one.folder)] for one in same] for label, same in by_label([run.compared for run in runs]).items()}


def _standing(label: str, runs: Sequence[Reading]) -> Standing:
    averaged = counted(runs)
    measures = {name: over_seeds(run.measures[name] for run in averaged) for name in MEASURES}
    measures["accuracy"] = over_seeds(run.accuracy for run in averaged)
    failed = tuple(run.notes[0] for run in runs if run.state == "failed")
    ended = all(run.state == "finished" for run in averaged)
    unlearned = tuple(dict.fromkeys(name for run in averaged if ended for name in run.unlearned))
    corrected, classes = runs[0].origin is not None, len(runs[0].classes)
    return Standing(label, len(averaged), measures, runs[0].starved, failed, corrected, ended, unlearned, classes)


def _overall(standings: Sequence[Sequence[Standing]]) -> Iterator[Sentence]:
    """Which loss won most often, where there are several tasks with several losses that can be compared."""
    compared = [one for one in standings if len(ranked(one)) > 1]
    won: dict[str, int] = {}
    for one in compared:
        best = winner(one)
        if best is not None and not is_tie(one):
            won[best.loss] = won.get(best.loss, 0) + 1
    if len(compared) > 1 and won:
        most = max(won.values())
        losses = [loss for loss, times in won.items() if times == most]
        ties = sum(map(is_tie, compared))
        level = f"; {ties} {'is a tie' if ties == 1 else 'are ties'}" if ties else ""
        text = f"{' and '.join(losses)} won {most}{' each' if len(losses) > 1 else ''} of {len(compared)} comparisons{level}."
        yield {"tone": "good", "text": text, "task": None}


def _left_out(runs: Sequence[Reading], broken: Sequence[Any]) -> Iterator[Sentence]:
    unfinished = [run for run in runs if run.state not in ("finished", "failed")]
    if unfinished:
        are, them = ("is", "it") if len(unfinished) == 1 else ("are", "them")
        text = f"{len(unfinished)} of {len(runs)} runs {are} not finished; averages leave {them} out where others finished."
        yield {"tone": "warning", "text": text, "task": None}
    if broken:
        number = "1 folder" if len(broken) == 1 else f"{len(broken)} folders"
        yield {"tone": "warning", "text": f"{number} could not be read; the reasons stand under “How it was run”.", "task": None}
