"""Everything the page shows, gathered from run folders.

Runs on the same data with the same model and noise are a task: their losses can be compared. What is shown of a task is
averaged over seeds or taken from one of them, so the page stays small however many runs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import noisewise
from noisewise.data import is_official
from noisewise.draw._dataset_identity import namesakes
from noisewise.draw._film import Film
from noisewise.draw._history import History, by_label, lines
from noisewise.draw._page import figure as curves_figure
from noisewise.draw._plotly import Figure
from noisewise.draw._sample import sample
from noisewise.dynamics import MEASURES, Dynamics, over_seeds, worth_telling
from noisewise.errors import InputError
from noisewise.losses import MarginLoss
from noisewise.papers import reported
from noisewise.report._charts import dynamics_figure
from noisewise.report._classes import class_table
from noisewise.report._corrected import average, before_and_after, has_gained
from noisewise.report._doubtful import doubt, summary
from noisewise.report._facts import Broken, Facts, FilmFacts, Group, Measure, Reported, RunFacts, Sentence, TaskFacts
from noisewise.report._read import Reading, counted
from noisewise.report._repeat import repeat
from noisewise.report._verdict import Standing, is_tie, ranked, verdict, winner
from noisewise.spec import readable

_FRAMES = 60  # of a film
_ALL_FRAMES = 1500  # of all films together: a hundred films keep a page small

Tell = Callable[[str], None]


def gather(folders: Sequence[Path], *, title: str, data: Any = None, tell: Tell = lambda line: None) -> Facts:
    """Read runs and work out the page.

    Args:
        folders: of the runs.
        title: of the page.
        data: what the runs were trained on; None to look where each says its data came from.
        tell: told what is being done.
    """
    runs: list[Reading] = []
    broken: list[Broken] = []
    for place, folder in enumerate(folders, 1):
        tell(f"reading run {place} of {len(folders)}")
        try:
            runs.append(_read(folder))
        except Exception as error:  # one damaged run must not cost the page
            broken.append({"folder": str(folder), "reason": str(error) if isinstance(error, InputError) else repr(error)})
    tasks: dict[tuple[str, str, str], list[Reading]] = {}
    for run, number in zip(runs, namesakes([run.dynamics for run in runs]), strict=True):
        run.namesake = number
        tasks.setdefault(run.task, []).append(run)
    names, today = _names(tasks), date.today()
    groups = [_by_label(members) for members in tasks.values()]
    frames = max(10, min(_FRAMES, _ALL_FRAMES // max(1, sum(map(len, groups)))))
    facts: Facts = {
        "title": title,
        "made": f"{today.day} {today:%B %Y}, noisewise {noisewise.__version__}",
        "counts": _counts(runs, broken),
        "verdict": [],
        "measures": _shown(runs),
        "groups": [],
        "runs": [],
        "broken": broken,
        "tasks": [],
    }
    standings: list[list[Standing]] = []
    for number, by_loss in enumerate(groups):
        tell(f"drawing task {number + 1} of {len(groups)}")
        standings.append([_standing(label, same) for label, same in by_loss.items()])
        first = {label: counted(same)[0] for label, same in by_loss.items()}
        judge = _judge(first, standings[-1])
        facts["groups"] += _groups(number, by_loss, standings[-1])
        facts["tasks"].append(_task(names[number], by_loss, first, judge, frames, data))
        said = [*verdict(number, names[number], standings[-1]), *has_gained(number, by_loss)]
        doubts = list(_doubts(number, judge))
        # Where nothing was tested, what is known comes first: which labels look wrong.
        facts["verdict"] += [*doubts, *said] if winner(standings[-1]) is None else [*said, *doubts]
    labels = {run.folder: (number, label) for number, by_loss in enumerate(groups) for label, same in by_loss.items() for run in same}
    facts["runs"] = [_run(run, *labels[run.folder]) for run in runs]
    facts["verdict"] = [*_overall(standings), *facts["verdict"], *_left_out(runs, broken)]
    return facts


def _read(folder: Path) -> Reading:
    """A run with all it can be measured by: from here on, reading it does not fail."""
    run = Reading(Dynamics(folder))
    for name in ("data", "model", "loss"):
        if not run.setting(name):
            raise InputError(f"The settings of the run in {str(folder)!r} name no {name}. Copy the run folder again.")
    _ = run.state, run.measures, run.knows_truth, run.origin
    return run


def _shown(runs: Sequence[Reading]) -> list[Measure]:
    """The columns of the page."""
    kept = worth_telling(MEASURES, [run.measures for run in runs])
    return [{"key": key, "title": title, "help": meaning, "unit": unit} for key, (title, meaning, unit) in MEASURES.items() if key in kept]


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


def _groups(number: int, by_loss: Mapping[str, Sequence[Reading]], standings: Sequence[Standing]) -> Iterator[Group]:
    best = None if len(ranked(standings)) < 2 or is_tie(standings) else winner(standings)
    for standing, same in zip(standings, by_loss.values(), strict=True):
        yield {
            "task": number,
            "loss": standing.loss,
            "seeds": [_known_seed(run) for run in counted(same)],
            "measures": {name: average(standing.measures[name]) for name in MEASURES},
            "reported": _reported(same[0]),
            "winner": standing is best,
        }


def _known_seed(run: Reading) -> int | None:
    return None if run.dynamics.record.recorded else run.seed


def _reported(run: Reading) -> Reported | None:
    """What a paper reports for such a run: its final test accuracy where it gives one."""
    if run.origin is not None or run.dynamics.record.recorded:
        return None
    found = run.attempt(lambda: reported(run.dynamics.record.settings))
    if not found:
        return None
    one = next((one for one in found if one.metric == "final"), found[0])
    value = f"{one.value:.1f}" if one.deviation is None else f"{one.value:.1f} ± {one.deviation:.1f}"
    differs = f"; there with other {', '.join(one.differs)}" if one.differs else ""
    return {"value": value, "source": f"{one.words}, {one.metric}{differs}"}


def _judge(first: Mapping[str, Reading], standings: Sequence[Standing]) -> Reading:
    """The run whose margins say which labels look wrong: one of the winner's among those with the labels as they were given."""
    as_given = [one for one in standings if not one.corrected] or standings
    return first[(winner(as_given) or as_given[0]).loss]


def _task(
    name: str, by_loss: Mapping[str, Sequence[Reading]], first: Mapping[str, Reading], judge: Reading, frames: int, data: Any
) -> TaskFacts:
    """What is shown of a task: all its runs together, or the first of every loss, which stands for its seeds."""
    runs = [run for same in by_loss.values() for run in same]
    curves, note = _curves(list(first.values()))
    films = {f"{label}{run.seed_words}": run.film(frames) for label, run in first.items()}
    told = {label: [run.compared for run in counted(same) if run.attempt(partial(_has_a_course, run))] for label, same in by_loss.items()}
    return {
        "name": name,
        "data": runs[0].task[0],
        "model": runs[0].task[1],
        "noise": runs[0].task[2],
        "corrections": before_and_after(by_loss),
        "classes": class_table(by_loss),
        "curves": curves,
        "curves_note": note,
        "dynamics": dynamics_figure(History(name, lines(told))),
        "films": [_film(label, film) for label, film in films.items() if film is not None],
        "doubt": judge.attempt(lambda: doubt(judge, data)),
    }


def _has_a_course(run: Reading) -> bool:
    """Whether a run has anything to draw over its iterations; one whose record is damaged must not cost the others theirs."""
    return bool(lines({run.called: [run.dynamics]}))


def _curves(runs: Sequence[Reading]) -> tuple[Figure | None, str | None]:
    """The emphasis of the losses that have a curve, and a word on the others."""
    drawn = [run for run in runs if isinstance(run.known_loss, MarginLoss) and not run.known_loss.depends_on_batch]
    others = dict.fromkeys(run.loss for run in runs if run not in drawn)
    whose = "its" if len(others) == 1 else "their"
    note = f"No curve for {', '.join(others)}: {whose} pull is not a function of p alone." if others else None
    classes = next((len(run.classes) for run in runs if len(run.classes) > 1), None)
    if not drawn or classes is None:
        return None, note
    # A curve looks as the line of its loss does in the dynamics: that on the labels as they were given, where there are several.
    places: dict[str, int] = {}
    for place, run in sorted(enumerate(runs), key=lambda one: one[1].origin is not None):
        if run in drawn:
            places.setdefault(run.spec, place)
    return curves_figure(sample(list(places), classes, list(places.values()))), note


def _film(label: str, film: Film) -> FilmFacts:
    return {
        "label": label,
        "edges": film.edges.tolist(),
        "epochs": list(film.epochs),
        "counts": {group: counts.tolist() for group, counts in film.counts.items()},
        "emphasis": None if film.emphasis is None else {"margins": film.margins.tolist(), "values": film.emphasis.tolist()},
    }


def _doubts(number: int, judge: Reading) -> Iterator[Sentence]:
    if judge.audit is not None:
        yield {"tone": "plain", "text": f"{summary(judge, judge.audit)}.", "task": number}
        if judge.audit.caution is not None:
            yield {"tone": "warning", "text": judge.audit.caution, "task": number}


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


def _run(run: Reading, task: int, label: str) -> RunFacts:
    record = run.dynamics.record
    provenance: Mapping[str, Any] = run.attempt(lambda: record.provenance) or {}
    data, model, noise = run.task
    return {
        "task": task,
        "loss": label,
        "noise": noise,
        "model": model,
        "data": data,
        "seed": _known_seed(run),
        "state": run.state,
        "measures": run.measures,
        "reported": _reported(run),
        "folder": str(run.folder),
        "settings": {name: readable(str(value)) for name, value in record.settings.items() if value is not None},
        "versions": {name: readable(str(value)) for name, value in _flat({**provenance, "sources": {}}) if value is not None},
        "command": run.attempt(lambda: repeat(record.settings, run.folder, provenance, corrected=run.origin is not None)),
        "notes": list(run.notes),
    }


def _flat(nested: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value
