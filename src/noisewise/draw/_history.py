"""What happened in runs, as lines over iterations: one for every loss of a task, the mean over its seeds; and the colours of lines.

This module must not know how lines are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats, subsample
from noisewise.dynamics import MEASURES, Dynamics, finished_or_all
from noisewise.errors import InputError
from noisewise.spec import in_short

Value = TypeVar("Value")

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4B4B4B", "#7B3294")  # distinct for colour-blind readers
DASHED_WIDTH = 2.5  # the width of a line, in px, that the dashes suit
_DASHES = (
    "solid",
    "10px,4px",
    "2.75px,3.25px",
    "12px,4px,2.75px,4px",
    "20px,5px",
    "20px,4px,2.75px,4px,2.75px,4px",
    "5.5px,2.75px",
    "16px,4px,5.5px,4px",
)
_MOST_POINTS = 200
_TASK = ("data", "model", "noise")
# What a line is the mean over, and what says how a run was done rather than what was done.
_HOW = ("accumulate", "clean_pass", "checkpoint_every", "compile", "device", "evaluate_every", "keep", "precision")
_NOT_TOLD = ("format", "loss", "seed", *_HOW)


class Look(NamedTuple):
    """A colour, and a dash as plotly and SVG write it: "solid", or the lengths of strokes and gaps."""

    colour: str
    dash: str


def look(place: int) -> Look:
    """The look of a line by its place among the others; the first 64 places all look different.

    Example:
        >>> look(0), look(8)
        (Look(colour='#0072B2', dash='solid'), Look(colour='#0072B2', dash='10px,4px'))
    """
    lap, seat = divmod(place, len(_COLOURS))
    return Look(_COLOURS[seat], _DASHES[(seat + lap) % len(_DASHES)])


class Curve(NamedTuple):
    """A measure over the epochs of a run: its title, whether it is a share, and how it is read from a run, by epoch."""

    title: str
    is_share: bool
    read: Callable[[Dynamics], Mapping[int, float]]


class RunCurves(NamedTuple):
    """The settings of a run, and for every seed its curves: by name, the values by iteration."""

    settings: Mapping[str, Any]
    seeds: Sequence[Mapping[str, Mapping[int, float]]]


def _emphasis_of(group: str) -> Callable[[Dynamics], Mapping[int, float]]:
    """The mean emphasis of a group within every epoch, its steps weighted by their learning rates."""

    def read(run: Dynamics) -> Mapping[int, float]:
        sums = ((line["epoch"], line.get("emphasis", {}).get(group)) for line in run.record.metrics)
        return {epoch: one["pull"] / one["eta"] for epoch, one in sums if one is not None and one["eta"] > 0}

    return read


CURVES: dict[str, Curve] = {
    "test": Curve("test accuracy", True, lambda run: run.test),
    "clean_subset": Curve(MEASURES["clean_subset"].title.lower(), True, lambda run: run.clean_subset),
    "noisy_subset": Curve(MEASURES["noisy_subset"].title.lower(), True, lambda run: run.noisy_subset),
    "fitting": Curve(MEASURES["fitting"].title.lower(), True, lambda run: {} if run.record.true is not None else run.fitting),
    "alpha": Curve("αₜ, mean of ‖∂L/∂s‖₁ so far", False, lambda run: run.alpha),
    "clean_emphasis": Curve("mean emphasis, clean labels", False, _emphasis_of("clean")),
    "noisy_emphasis": Curve("mean emphasis, noisy labels", False, _emphasis_of("noisy")),
    "emphasis": Curve("mean emphasis", False, _emphasis_of("all")),
}


@dataclass(frozen=True)
class Course:
    """A measure over the iterations: mean over seeds, and one sample standard deviation below and above (None for one seed)."""

    steps: NDArray[np.int64]
    mean: Floats
    low: Floats | None
    high: Floats | None


@dataclass(frozen=True)
class Trained:
    """One loss: how its lines look, over how many runs they are means, and its courses by the names of `CURVES`."""

    label: str
    colour: str
    dash: str
    runs: int
    courses: dict[str, Course]


@dataclass(frozen=True)
class History:
    """The lines of some runs.

    Args:
        task: the data, the model and the noise, where they are the same in all runs.
        lines: one for every loss of which an epoch is finished, in the order in which the runs name them.
        left_out: the folders of runs that no line is over, because they are not finished and other seeds are.
    """

    task: str
    lines: tuple[Trained, ...]
    left_out: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of `CURVES` that any line has."""
        return tuple(name for name in CURVES if any(name in line.courses for line in self.lines))


def histories(runs: Sequence[Dynamics]) -> dict[str, History]:
    """The history of every task, by what tells it from the others."""
    return alike({words: history(part) for words, part in by_task(runs, lambda run: run.record.settings).items()})


def alike(found: dict[str, History]) -> dict[str, History]:
    """The same histories, in all of which what has the same label looks the same."""
    if len(found) == 1:
        return found
    order = list(dict.fromkeys(line.label for one in found.values() for line in one.lines))
    looks = {label: look(place) for place, label in enumerate(order)}
    return {
        words: replace(one, lines=tuple(replace(line, **looks[line.label]._asdict()) for line in one.lines)) for words, one in found.items()
    }


def history(runs: Sequence[Dynamics]) -> History:
    """Put runs together: those that differ in nothing but the seed become one line, without the unfinished where others finished."""
    labelled = by_label(runs)
    averaged = {label: counted(seeds) for label, seeds in labelled.items()}
    left_out = tuple(str(run.folder) for label, seeds in labelled.items() for run in seeds if run not in averaged[label])
    return History(task_of([run.record.settings for run in runs]), lines(averaged), left_out)


def lines(labelled: Mapping[str, Sequence[Dynamics]]) -> tuple[Trained, ...]:
    """One line for the runs under each label.

    Seeds are joined at the iterations they share. What a run does not hold, for want of true labels or of a finished epoch, is
    absent. A loss keeps its colour whether it has lines yet or not.
    """
    found = []
    for place, (label, seeds) in enumerate(labelled.items()):
        curves = {name: [_over_steps(run, curve.read(run)) for run in seeds] for name, curve in CURVES.items()}
        found.append(line(place, label, len(seeds), curves))
    return tuple(one for one in found if one.courses)


def line(place: int, label: str, runs: int, curves: Mapping[str, Sequence[Mapping[int, float]]]) -> Trained:
    """The line at a place among others, of so many runs, from what each of them measured by iteration."""
    courses = {name: joined for name, seeds in curves.items() if (joined := course(seeds)) is not None}
    return Trained(label, *look(place), runs, courses)


def history_of_curves(runs: Sequence[RunCurves]) -> History:
    """A line for every run, the mean over its seeds."""
    settings = [run.settings for run in runs]
    curves = [{name: [seed[name] for seed in run.seeds if name in seed] for name in run.seeds[0]} for run in runs]
    found = (line(place, label, len(runs[place].seeds), curves[place]) for place, label in enumerate(labels(settings)))
    return History(task_of(settings), tuple(found))


def by_label(runs: Sequence[Dynamics]) -> dict[str, list[Dynamics]]:
    """The runs by what tells them apart; one more with a seed that is there already is no further seed, and is kept apart."""
    found: dict[str, dict[Any, Dynamics]] = {}
    for label, run in zip(labels([run.record.settings for run in runs]), runs, strict=True):
        seed, names = _seed(run), (label, *(f"{label}, run {number}" for number in range(2, len(runs) + 1)))
        found.setdefault(next(name for name in names if seed not in found.get(name, ())), {})[seed] = run
    return {label: list(seeds.values()) for label, seeds in found.items()}


def counted(seeds: Sequence[Dynamics]) -> list[Dynamics]:
    """The runs a line is the mean over: the finished ones, or all if none is."""
    return finished_or_all(seeds, _is_finished)


def _is_finished(run: Dynamics) -> bool:
    with suppress(InputError):  # a run that has lost the file does not say that it is
        return bool(run.record.status.get("state") == "finished")
    return False


def _seed(run: Dynamics) -> Any:
    """The seed of a run; what stands for that of a recorded loop, which only its author knows."""
    with suppress(InputError):  # a run that has lost the file is taken at its word
        if run.record.provenance.get("recorded"):
            return run.folder
    return run.record.settings.get("seed")


def labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells runs of some settings apart: the loss, and each setting but the seed in which not all of them agree."""
    told = [name for name in dict.fromkeys(name for one in settings for name in one) if name not in _NOT_TOLD and _differs(settings, name)]
    return [", ".join([in_short(one["loss"]), *(_words(name, one[name]) for name in told if name in one)]) for one in settings]


def task_of(settings: Sequence[Mapping[str, Any]]) -> str:
    """The data, the model and the noise, where they are the same in all settings."""
    return ", ".join(_words(name, settings[0][name]) for name in _TASK if settings and name in settings[0] and not _differs(settings, name))


def by_task(runs: Sequence[Value], settings_of: Callable[[Value], Mapping[str, Any]]) -> dict[str, list[Value]]:
    """The runs of every task, by its data, model and noise, as far as they are not the same in all runs."""
    settings = [{"noise": "none", **settings_of(run)} for run in runs]  # a Recorder corrupts no labels
    told, found = [name for name in _TASK if _differs(settings, name)], dict[str, list[Value]]()
    for run, one in zip(runs, settings, strict=True):
        found.setdefault(", ".join(_words(name, one.get(name)) for name in told), []).append(run)
    return found


def _differs(settings: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(one.get(name) != settings[0].get(name) for one in settings)


def _words(name: str, value: Any) -> str:
    if name not in _TASK:
        return f"{name}={value}"
    return "no noise" if (name, value) == ("noise", "none") else in_short(str(value))


def course(seeds: Sequence[Mapping[int, float]]) -> Course | None:
    """A measure by iteration, read off runs of several seeds, as one course; None where no seed has it."""
    curves = [curve for curve in seeds if curve]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    if not shared:
        return None
    steps = np.array(subsample(shared, _MOST_POINTS))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    mean = values.mean(0)
    if len(values) == 1:
        return Course(steps, mean, None, None)
    deviation = values.std(0, ddof=1)
    return Course(steps, mean, mean - deviation, mean + deviation)


def _over_steps(run: Dynamics, curve: Mapping[int, float]) -> dict[int, float]:
    """A curve by iteration: epochs of different sizes do not line up."""
    return {line["step"]: curve[line["epoch"]] for line in run.record.metrics if "step" in line and line["epoch"] in curve}
