"""Gather everything that the page shows from run folders, and write the page.

Runs on the same data with the same model and noise form a task: their losses can be compared. The page opens with a verdict on each task
in plain sentences. To keep the page small, most numbers are averages over seeds and charts show one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import noisewise
from noisewise.audit import Audit
from noisewise.data import is_official
from noisewise.draw import group_by_label
from noisewise.dynamics import Dynamics, Spread, find_runs, unlearned_sentence
from noisewise.errors import InputError, invalid_parameter
from noisewise.methods import relabels
from noisewise.output import check_output, check_replacing, is_page, written_output
from noisewise.report._facts import Broken, Facts, Sentence, TaskFacts
from noisewise.report._render import render
from noisewise.report._tasks import (
    Page,
    ReportRun,
    Standing,
    Task,
    contenders,
    deciding_measure,
    is_same,
    is_tie,
    percent,
    ranked,
    winner,
)
from noisewise.report.sections import MODULES, correction, doubt
from noisewise.runs import data_set_numbers
from noisewise.spec import in_short

_FRAMES = 60  # of a film
_ALL_FRAMES = 1500  # of all films together, so that a page with a hundred films stays small
_UNDERFITS = 0.9  # a loss underfits if it learns less than this share of the right labels that another loss learned
_CLEARLY_MORE = 0.05  # difference in the share of wrong labels learned that is worth a sentence
_FORGETS = 0.03  # drop in test accuracy below the best epoch that is worth a sentence

Progress = Callable[[str], None]


def report(
    runs: str | PathLike[str] | Iterable[str | PathLike[str]],
    output: str | PathLike[str] = "report.html",
    *,
    title: str = "What the losses did",
    data: Any = None,
    audits: Iterable[Audit] = (),
    tell: Progress = lambda line: None,
) -> Path:
    """Write a page about runs.

    Args:
        runs: runs, run folders, or folders that contain run folders.
        output: the file to write; it ends in .html.
        title: the title of the page.
        data: the training data of the runs, to show doubtful examples. By default the data that all given `Run` objects share, or else
            the source that each run names.
        audits: audits of these runs with the score "combined". The others are made for the page.
        tell: called with a line about the progress.

    Returns:
        The file that was written.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> folder = tempfile.mkdtemp()
        >>> run = fit("linear", "digits", loss="gce(q=0.7)", noise="symmetric(0.4)", epochs=2, folder=f"{folder}/run")
        >>> report(run, f"{folder}/report.html").name
        'report.html'
    """
    file = check_page(output)
    paths = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | PathLike) else [runs]
    if not paths:
        raise invalid_parameter("runs", "report", "at least one run or folder of runs", paths)
    data = _shared_data(paths) if data is None else data
    page = render(gather(find_runs(paths), title=title, data=data, audits=audits, tell=tell))
    with written_output(file) as part:
        part.write_text(page, encoding="utf-8")
    return file


def check_page(output: str | PathLike[str]) -> Path:
    """Check that a page can be written to this file, and that no file of another program is replaced."""
    file = check_output(output, "report", [".html"])
    check_replacing(file, None, is_page, "page")
    return file


def _shared_data(runs: Sequence[str | PathLike[str]]) -> Any:
    """The data of the `Run` objects, if it is the same object for all; other data would show the wrong examples."""
    data = [getattr(run, "data", None) for run in runs]
    return data[0] if all(other is data[0] for other in data) else None


def gather(
    folders: Sequence[Path], *, title: str, data: Any = None, audits: Iterable[Audit] = (), tell: Progress = lambda line: None
) -> Facts:
    """Read runs and collect the facts of the page.

    Args:
        folders: the folders of the runs.
        title: the title of the page.
        data: the training data; None to read it from the source that each run names.
        audits: audits of the runs that were made already.
        tell: called with a line about the progress.
    """
    page = _page(folders, data, tell)
    made = {Path(audit.dynamics.folder).resolve(): audit for audit in audits}
    for run in page.runs:
        if run.folder.resolve() in made:
            run.audit = made[run.folder.resolve()]
    tasks: list[TaskFacts] = []
    sentences: list[Sentence] = []
    for task in page.tasks:
        tell(f"drawing task {task.number + 1} of {len(page.tasks)}")
        tasks.append(_task_facts(task))
        results = [*verdict(task.number, task.name, task.standings), *correction.sentences(task)]
        doubts = list(doubt.sentences(task))
        # Without a test, the doubtful labels are the most important result.
        sentences += [*doubts, *results] if winner(task.standings) is None else [*results, *doubts]
    facts: dict[str, Any] = {
        "title": title,
        "made": f"{date.today().day} {date.today():%B %Y}, noisewise {noisewise.__version__}",
        "counts": _counts(page.runs, page.broken),
        "verdict": [*_overall([task.standings for task in page.tasks]), *sentences, *_left_out(page.runs, page.broken)],
        "tasks": tasks,
    }
    for module in MODULES:
        if hasattr(module, "page_facts"):
            facts |= module.page_facts(page)
    return facts  # type: ignore[return-value]


def _page(folders: Sequence[Path], data: Any, tell: Progress) -> Page:
    runs: list[ReportRun] = []
    broken: list[Broken] = []
    for number, folder in enumerate(folders, 1):
        tell(f"reading run {number} of {len(folders)}")
        try:
            runs.append(_read(folder))
        except Exception as error:  # show the other runs
            broken.append({"folder": str(folder), "reason": str(error) if isinstance(error, InputError) else repr(error)})
    if len(runs) > 1:
        for run, number in zip(runs, data_set_numbers([run.dynamics.record for run in runs]), strict=True):
            run.data_set_number = number
    tasks: dict[tuple[str, str, str], list[ReportRun]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    labelled = [_by_label(members) for members in tasks.values()]
    frames = max(10, min(_FRAMES, _ALL_FRAMES // max(1, sum(map(len, labelled)))))
    return Page(
        runs,
        broken,
        [
            Task(number, name, by_label, [Standing.of(label, members) for label, members in by_label.items()], data, frames)
            for number, (name, by_label) in enumerate(zip(_names(tasks), labelled, strict=True))
        ],
    )


def _task_facts(task: Task) -> TaskFacts:
    data, model, noise = next(iter(task.first.values())).task
    facts: TaskFacts = {"name": task.name, "data": data, "model": model, "noise": noise}
    for module in MODULES:
        if hasattr(module, "task_facts"):
            facts |= module.task_facts(task)
    return facts


def _read(folder: Path) -> ReportRun:
    """Read a run and all its measures, so that nothing fails later."""
    run = ReportRun(Dynamics(folder))
    for name in ("data", "model", "loss"):
        if not run.setting(name):
            raise InputError(f"The settings of the run in {str(folder)!r} have no {name}. Copy the run folder again.")
    if run.method != "plain" and relabels(run.method):
        what = f"The method {in_short(run.method)} trained on other targets than the given labels"
        run.note(f"{what}. Margins and learned labels on this page are about the given labels.")
    _ = run.state, run.measures, run.knows_truth, run.origin
    return run


def _names(tasks: Mapping[tuple[str, str, str], Sequence[ReportRun]]) -> list[str]:
    """The names of the tasks: data and noise, and the model if there are several."""
    several_models = len({model for _, model, _ in tasks}) > 1
    return [
        f"{data}{f', {model}' if several_models else ''}, {_labels(data, noise, all(run.dynamics.record.recorded for run in runs))}"
        for (data, model, noise), runs in tasks.items()
    ]


def _labels(data: str, noise: str, recorded: bool) -> str:
    """The noise in words; a `Recorder` does not know whether labels are clean."""
    if noise != "none":
        return f"{noise} noise"
    return "clean labels" if is_official(data) and not recorded else "labels as given"


def _counts(runs: Sequence[ReportRun], broken: Sequence[Any]) -> str:
    nouns = {"loss": "loss losses", "noise": "noise noises", "model": "model models", "data": "data_set data_sets", "seed": "seed seeds"}
    if any(run.method != "plain" for run in runs):
        nouns = {"loss": nouns.pop("loss"), "method": "method methods", **nouns}
    parts = []
    for name, forms in nouns.items():
        number = len({run.task[0] if name == "data" else str(run.setting(name)) for run in runs if name in run.settings})
        if number:
            parts.append(f"{number} {forms.split()[number != 1].replace('_', ' ')}")
    total = len(runs) + len(broken)
    return f"{total} {'run' if total == 1 else 'runs'}" + (f": {', '.join(parts)}" if parts else "")


def _by_label(runs: Sequence[ReportRun]) -> dict[str, list[ReportRun]]:
    by_folder = {run.folder: run for run in runs}
    groups = group_by_label([run.compared for run in runs])
    return {label: [by_folder[Path(run.folder)] for run in members] for label, members in groups.items()}


def verdict(task: int, name: str, standings: Sequence[Standing]) -> Iterator[Sentence]:
    """The sentences on one task, the most important first."""

    def sentence(tone: str, text: str) -> Sentence:
        return {"tone": tone, "text": text, "task": task}

    best = winner(standings)
    if best is None and not any(spread for standing in standings for spread in standing.measures.values()):
        yield sentence("plain", f"On {name}, no run has finished an epoch.")
    elif best is None:
        unknown = "which loss won" if len(standings) > 1 else "how well it predicts"
        yield sentence("plain", f"On {name}, nothing was tested: give a test set, or hold out a share with validation, to know {unknown}.")
    else:
        yield sentence("good", _won(best, standings, name))
    yield from (sentence("plain", text) for text in _memorised(best, standings))
    yield from (sentence("warning", text) for standing in standings for text in _problems(standing, standings))


def _won(best: Standing, standings: Sequence[Standing], name: str) -> str:
    measure, second = deciding_measure(standings), next(iter(ranked(standings)[1:]), None)
    assert measure is not None
    measured = "accuracy on held-out examples, by their given labels"
    if measure == "accuracy":
        measured = "test accuracy" + (" of the model kept" if any(standing.mean("kept") is not None for standing in standings) else "")
    top, below = best.measures[measure], None if second is None else second.measures[measure]
    over = f" over {best.seeds} seeds" if best.seeds > 1 else ""
    if top is None or second is None or below is None:
        return f"On {name}, {best.loss} reached {_percent(top)} {measured}{over}."
    if is_tie(standings):
        both = f"{best.loss} ({_percent(top)} {measured}{over}) and {second.loss} ({_percent(below)})"
        why = "" if is_same(top, below) else ": the difference is within the spread of the seeds"
        return f"On {name}, {both} are level{why}."
    lead = f"{percent(top.mean) - percent(below.mean):.1f} points above {second.loss} ({_percent(below)})"
    single = [standing.loss for standing, spread in ((best, top), (second, below)) if spread.deviation is None]
    which = "each" if len(single) == 2 else "".join(f"of {loss}" for loss in single)
    chance = f" With one seed {which}, a small lead may be chance." if single else ""
    return f"On {name}, {best.loss} won: {_percent(top)} {measured}{over}, {lead}.{chance}"


def _memorised(best: Standing | None, standings: Sequence[Standing]) -> Iterator[str]:
    """The share of wrong labels learned, by the winner and by the loss that learned clearly more."""
    known = [standing for standing in standings if standing.mean("noisy_subset") is not None and not standing.corrected]
    if not known:
        return
    worst = max(known, key=lambda standing: standing.mean("noisy_subset") or 0)
    least = 0.0
    if best is not None and best in known:
        least = (best.mean("noisy_subset") or 0) + _CLEARLY_MORE
        wrong, right = _percent(best.measures["noisy_subset"]), _percent(best.measures["clean_subset"])
        yield f"{best.loss} learned {wrong} of the wrong labels and {right} of the right ones."
    if worst is not best and (worst.mean("noisy_subset") or 0) >= least:
        most = " most:" if len(known) > 1 else ""
        yield f"{worst.loss} memorised{most} {_percent(worst.measures['noisy_subset'])} of the wrong labels."


def _problems(standing: Standing, standings: Sequence[Standing]) -> Iterator[str]:
    loss = standing.loss
    for reason in standing.failed:
        yield f"{loss} did not finish: {reason}"
    if standing not in contenders(standings):
        return
    learned, most = standing.mean("clean_subset"), max((other.mean("clean_subset") or 0 for other in standings), default=0)
    if learned is not None and learned < _UNDERFITS * most:
        shares = f"it learned {_percent(standing.measures['clean_subset'])} of the right labels, another loss {100 * most:.1f} %"
        yield f"{loss} underfits: {shares}.{f' {standing.starved}' if standing.starved else ''}"
    elif standing.starved and learned is None:
        yield standing.starved
    if standing.unlearned:
        yield unlearned_sentence(loss, standing.unlearned, standing.classes)
    final, best = standing.mean("final"), standing.mean("best")
    if standing.mean("kept") is None and final is not None and best is not None and best - final > _FORGETS:
        memorised = (standing.mean("noisy_subset") or 0) > _CLEARLY_MORE
        why = "it got worse while it memorised wrong labels" if memorised else "stopping earlier would have been better"
        yield f"{loss} ended {100 * (best - final):.1f} points below its own best epoch: {why}."


def _percent(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return f"{100 * spread.mean:.1f}{'' if spread.deviation is None else f' ± {100 * spread.deviation:.1f}'} %"


def _overall(standings: Sequence[Sequence[Standing]]) -> Iterator[Sentence]:
    """Which loss won most often, if several tasks have several losses to compare."""
    compared = [task for task in standings if len(ranked(task)) > 1]
    wins: dict[str, int] = {}
    for task in compared:
        best = winner(task)
        if best is not None and not is_tie(task):
            wins[best.loss] = wins.get(best.loss, 0) + 1
    if len(compared) > 1 and wins:
        most = max(wins.values())
        losses = [loss for loss, number in wins.items() if number == most]
        number = sum(map(is_tie, compared))
        ties = f"; {number} {'is a tie' if number == 1 else 'are ties'}" if number else ""
        text = f"{' and '.join(losses)} won {most}{' each' if len(losses) > 1 else ''} of {len(compared)} comparisons{ties}."
        yield {"tone": "good", "text": text, "task": None}


def _left_out(runs: Sequence[ReportRun], broken: Sequence[Any]) -> Iterator[Sentence]:
    unfinished = [run for run in runs if run.state not in ("finished", "failed")]
    if unfinished:
        are, them = ("is", "it") if len(unfinished) == 1 else ("are", "them")
        text = f"{len(unfinished)} of {len(runs)} runs {are} not finished; averages leave {them} out where others finished."
        yield {"tone": "warning", "text": text, "task": None}
    if broken:
        number = "1 folder" if len(broken) == 1 else f"{len(broken)} folders"
        yield {"tone": "warning", "text": f"{number} could not be read; “How it was run” lists the reasons.", "task": None}
