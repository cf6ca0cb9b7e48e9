"""What the figures of runs show, as numbers: curves over iterations, averaged over seeds, and films of margins. Also the line styles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats, subsample
from noisewise.dynamics import MEASURES, Dynamics, prefer_finished
from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import in_short

Value = TypeVar("Value")

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4B4B4B", "#7B3294")  # distinct for colour-blind readers
DASHED_WIDTH = 2.5  # line width, in px, that the dashes are made for
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
_IGNORED = ("accumulate", "clean_pass", "checkpoint_every", "compile", "device", "evaluate_every", "keep", "precision")
_NOT_IN_LABEL = ("format", "loss", "seed", *_IGNORED)
_FILM_RANGE = (0.001, 0.999)  # quantiles of the margins; the end bins count the rest
_BIN_WIDTHS = (1.0, 2.0, 2.5, 5.0)
_FILM_MARGINS = 241


class LineStyle(NamedTuple):
    """A colour, and a dash as plotly and SVG write it: "solid", or the lengths of strokes and gaps."""

    colour: str
    dash: str


def line_style(index: int) -> LineStyle:
    """The style of a line by its index; the first 64 styles are different.

    Example:
        >>> line_style(0), line_style(8)
        (LineStyle(colour='#0072B2', dash='solid'), LineStyle(colour='#0072B2', dash='10px,4px'))
    """
    lap, colour = divmod(index, len(_COLOURS))
    return LineStyle(_COLOURS[colour], _DASHES[(colour + lap) % len(_DASHES)])


class Curve(NamedTuple):
    """A measure over the epochs of a run: its title, whether it is a share, and the function that reads it from a run."""

    title: str
    is_share: bool
    read: Callable[[Dynamics], Mapping[int, float]]


class RunCurves(NamedTuple):
    """The settings of a run, and the curves of each seed: by name, the values by iteration."""

    settings: Mapping[str, Any]
    seeds: Sequence[Mapping[str, Mapping[int, float]]]


class Panel(NamedTuple):
    """A panel of a sweep: its title, and for every line the values of all seeds by the words on the horizontal axis."""

    title: str
    lines: Mapping[str, Mapping[str, Sequence[float]]]


def _emphasis_of(group: str) -> Callable[[Dynamics], Mapping[int, float]]:
    """The mean emphasis of a group in each epoch, steps weighted by learning rate."""

    def read(run: Dynamics) -> Mapping[int, float]:
        sums = ((line["epoch"], line.get("emphasis", {}).get(group)) for line in run.record.metrics)
        return {epoch: total["pull"] / total["eta"] for epoch, total in sums if total is not None and total["eta"] > 0}

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
    "noise": Curve("estimated share of wrong labels", True, lambda run: run.noise_estimate),
}


@dataclass(frozen=True)
class MeanCurve:
    """A measure over the iterations: the mean over seeds, and one standard deviation below and above (None for one seed)."""

    steps: NDArray[np.int64]
    mean: Floats
    low: Floats | None
    high: Floats | None


@dataclass(frozen=True)
class LossCurves:
    """One loss: its label and style, the number of runs, and its mean curves by the names of `CURVES`."""

    label: str
    colour: str
    dash: str
    runs: int
    curves: dict[str, MeanCurve]


@dataclass(frozen=True)
class History:
    """The curves of some runs.

    Args:
        task: data, model and noise, as far as they are the same in all runs.
        lines: the curves of each loss that has finished an epoch, in the order of the runs.
        left_out: the folders of unfinished runs that are ignored, because other seeds are finished.
    """

    task: str
    lines: tuple[LossCurves, ...]
    left_out: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of `CURVES` that any loss has."""
        return tuple(name for name in CURVES if any(name in line.curves for line in self.lines))


def histories(runs: Sequence[Dynamics]) -> dict[str, History]:
    """The history of each task, by the settings in which tasks differ."""
    return with_shared_styles({words: history(part) for words, part in by_task(runs, lambda run: run.record.settings).items()})


def with_shared_styles(tasks: dict[str, History]) -> dict[str, History]:
    """Give lines with the same label the same style in all histories."""
    if len(tasks) == 1:
        return tasks
    labels = list(dict.fromkeys(line.label for task in tasks.values() for line in task.lines))
    styles = {label: line_style(index)._asdict() for index, label in enumerate(labels)}
    return {name: replace(task, lines=tuple(replace(line, **styles[line.label]) for line in task.lines)) for name, task in tasks.items()}


def history(runs: Sequence[Dynamics]) -> History:
    """Average runs that differ only in the seed; unfinished runs are ignored if other seeds are finished."""
    labelled = group_by_label(runs)
    averaged = {label: finished_runs(seeds) for label, seeds in labelled.items()}
    left_out = tuple(str(run.folder) for label, seeds in labelled.items() for run in seeds if run not in averaged[label])
    return History(task_of([run.record.settings for run in runs]), loss_curves(averaged), left_out)


def loss_curves(labelled: Mapping[str, Sequence[Dynamics]]) -> tuple[LossCurves, ...]:
    """The mean curves of the runs under each label, at the iterations that all seeds have. Labels without a finished epoch are left out."""
    losses = []
    for index, (label, seeds) in enumerate(labelled.items()):
        curves = {name: [_over_steps(run, curve.read(run)) for run in seeds] for name, curve in CURVES.items()}
        losses.append(_mean_curves(index, label, len(seeds), curves))
    return tuple(loss for loss in losses if loss.curves)


def _mean_curves(index: int, label: str, runs: int, curves: Mapping[str, Sequence[Mapping[int, float]]]) -> LossCurves:
    means = {name: mean for name, seeds in curves.items() if (mean := _mean_curve(seeds)) is not None}
    return LossCurves(label, *line_style(index), runs, means)


def history_of_curves(runs: Sequence[RunCurves]) -> History:
    """The history of runs whose curves were read before."""
    settings, lines = [run.settings for run in runs], []
    for index, (run, label) in enumerate(zip(runs, labels(settings), strict=True)):
        curves = {name: [seed[name] for seed in run.seeds if name in seed] for name in run.seeds[0]}
        lines.append(_mean_curves(index, label, len(run.seeds), curves))
    return History(task_of(settings), tuple(lines))


def group_by_label(runs: Sequence[Dynamics]) -> dict[str, list[Dynamics]]:
    """Group runs that differ only in the seed; a second run with the same label and seed gets a label of its own."""
    groups: dict[str, dict[Any, Dynamics]] = {}
    for label, run in zip(labels([run.record.settings for run in runs]), runs, strict=True):
        seed, names = _seed(run), (label, *(f"{label}, run {number}" for number in range(2, len(runs) + 1)))
        groups.setdefault(next(name for name in names if seed not in groups.get(name, ())), {})[seed] = run
    return {label: list(seeds.values()) for label, seeds in groups.items()}


def finished_runs(runs: Sequence[Dynamics]) -> list[Dynamics]:
    """The finished runs, or all if none is finished."""
    return prefer_finished(runs, _is_finished)


def _is_finished(run: Dynamics) -> bool:
    with suppress(InputError):  # the status file may be missing
        return bool(run.record.status.get("state") == "finished")
    return False


def _seed(run: Dynamics) -> Any:
    """The seed of a run; the folder for a run that a `Recorder` wrote, whose seed is not known."""
    with suppress(InputError):  # the provenance file may be missing
        if run.record.provenance.get("recorded"):
            return run.folder
    return run.record.settings.get("seed")


def labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label for each run: its loss, its method unless all are plain, and the other settings but the seed in which the runs differ."""
    names = [name for name in dict.fromkeys(name for run in settings for name in run) if name not in _NOT_IN_LABEL]
    methods = any(run.get("method", "plain") != "plain" for run in settings)
    names = [name for name in names if _differs(settings, name) or (name == "method" and methods)]
    return [", ".join([in_short(run["loss"]), *(_words(name, run[name]) for name in names if name in run)]) for run in settings]


def task_of(settings: Sequence[Mapping[str, Any]]) -> str:
    """Data, model and noise, as far as they are the same in all settings."""
    return ", ".join(_words(name, settings[0][name]) for name in _TASK if settings and name in settings[0] and not _differs(settings, name))


def by_task(runs: Sequence[Value], settings_of: Callable[[Value], Mapping[str, Any]]) -> dict[str, list[Value]]:
    """Group runs by those of data, model and noise in which they differ."""
    settings = [{"noise": "none", **settings_of(run)} for run in runs]  # a Recorder does not corrupt labels
    names, tasks = [name for name in _TASK if _differs(settings, name)], dict[str, list[Value]]()
    for run, values in zip(runs, settings, strict=True):
        tasks.setdefault(", ".join(_words(name, values.get(name)) for name in names), []).append(run)
    return tasks


def _differs(settings: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(run.get(name) != settings[0].get(name) for run in settings)


def _words(name: str, value: Any) -> str:
    if name not in _TASK:
        return f"{name}={value}"
    return "no noise" if (name, value) == ("noise", "none") else in_short(str(value))


def _mean_curve(seeds: Sequence[Mapping[int, float]]) -> MeanCurve | None:
    """The mean of a measure over seeds; None if the seeds share no iteration."""
    curves = [curve for curve in seeds if curve]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    if not shared:
        return None
    steps = np.array(subsample(shared, _MOST_POINTS))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    mean = values.mean(0)
    if len(values) == 1:
        return MeanCurve(steps, mean, None, None)
    deviation = values.std(0, ddof=1)
    return MeanCurve(steps, mean, mean - deviation, mean + deviation)


def _over_steps(run: Dynamics, curve: Mapping[int, float]) -> dict[int, float]:
    """A curve by iteration instead of epoch, because epochs may have different lengths."""
    return {line["step"]: curve[line["epoch"]] for line in run.record.metrics if "step" in line and line["epoch"] in curve}


@dataclass(frozen=True)
class Film:
    """The margins of a run.

    Args:
        loss: the spec of the run's loss.
        edges: the edges of the bins: multiples of a round number, including 0. The end bins also count what lies beyond.
        epochs: the epoch of each frame.
        counts: the histograms by group, "clean" and "noisy" (or "all" if the true labels are not known): int64 (frames, bins).
        margins: points that are evenly spaced over the range of the bins.
        emphasis: the emphasis at `margins`: (1, margins), or (frames, margins) for a scheduled loss; None if it is not a function of the
            margin.
    """

    loss: str
    edges: Floats
    epochs: tuple[int, ...]
    counts: dict[str, NDArray[np.int64]]
    margins: Floats
    emphasis: Floats | None

    def emphasis_in(self, frame: int) -> Floats | None:
        """The emphasis of a frame at `margins`."""
        return None if self.emphasis is None else self.emphasis[frame if len(self.emphasis) > 1 else 0]


def film(run: Dynamics, bins: int = 60, frames: int | Sequence[int] = 60) -> Film:
    """Make the film of a run, one epoch in memory at a time.

    Args:
        run: the dynamics of the run.
        bins: the maximum number of bins.
        frames: the maximum number of epochs, evenly spaced from the first to the last; or the epochs.
    """
    if bins < 4:
        raise invalid_parameter("bins", "film", "at least 4", bins)
    epochs = subsample(run.record.epochs(), frames) if isinstance(frames, int) else tuple(frames)
    for epoch in epochs:
        _ = run.record.margins(epoch)  # fails early for a missing epoch
    low, high = np.nan_to_num(run.margin_quantiles(_FILM_RANGE))  # NaN without an epoch
    histograms = run.margin_histograms(_edges(low, high, bins), epochs=epochs)
    margins = np.linspace(histograms.edges[0], histograms.edges[-1], _FILM_MARGINS)
    return Film(
        loss=run.record.settings["loss"],
        edges=histograms.edges,
        epochs=epochs,
        counts=histograms.counts,
        margins=margins,
        emphasis=_emphasis(run, epochs, margins),
    )


def _edges(low: float, high: float, bins: int) -> list[float]:
    """At most `bins` bins that cover the range and 0, with edges at multiples of the smallest possible round number."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = -1.0, 1.0
    power = 10.0 ** math.floor(math.log10((high - low) / bins))
    for width in (scale * width * power for scale in (1, 10) for width in _BIN_WIDTHS):
        first, last = math.floor(low / width), math.ceil(high / width)
        if last - first <= bins:
            break
    return [width * number for number in range(first, last + 1)]


def _emphasis(run: Dynamics, epochs: Sequence[int], margins: Floats) -> Floats | None:
    curves = [run.emphasis_curve(epoch, margins) for epoch in epochs]
    known = [values for values in curves if values is not None]
    if not known:
        return None
    rows = np.stack(known)
    return rows[:1] if (rows == rows[0]).all() else rows
