"""The runs of a page, the tasks they are compared in, and how each loss did on a task.

A run may be unfinished, damaged, or from another version or machine. What cannot be read becomes a note, and the rest is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from noisewise.audit import Audit, audit_run
from noisewise.draw import Film, film
from noisewise.dynamics import MEASURES, Dynamics, Spread, over_seeds, prefer_finished, underfitting, with_original_settings
from noisewise.errors import InputError
from noisewise.losses import Loss, get
from noisewise.papers import reported
from noisewise.report._facts import Broken, Reported
from noisewise.runs import Origin, label_digest, read_origin
from noisewise.spec import in_short

Value = TypeVar("Value")

_SAME = 0.0005  # difference in test accuracy that the page does not show
_STOPPED = {
    "running": "Not finished: it is still training, or was stopped without a message, after {epochs}.",
    "interrupted": "Not finished: it was interrupted after {epochs}. Run the same command to resume it.",
    "failed": "Failed after {epochs}: {reason}",
}


@dataclass
class ReportRun:
    """One run of a page, with notes on what could not be read."""

    dynamics: Dynamics
    notes: list[str] = field(default_factory=list)
    data_set_number: int = 1  # counts different data sets that have the same name

    @property
    def folder(self) -> Path:
        return Path(self.dynamics.folder)

    @cached_property
    def origin(self) -> Origin | None:
        """The run that this one came from, if it was trained on corrected labels."""
        return self.attempt(lambda: read_origin(self.folder))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that runs are compared by; for a run on corrected labels, those of the run it came from."""
        return {**self.dynamics.record.settings, **({} if self.origin is None else self.origin.settings)}

    def setting(self, name: str) -> Any:
        return self.settings.get(name)

    @property
    def task(self) -> tuple[str, str, str]:
        """Data, model and noise: runs that agree in them are compared."""
        data, model, noise = (in_short(str(self.settings.get(name, "none"))) for name in ("data", "model", "noise"))
        return data if self.data_set_number == 1 else f"{data} ({self.data_set_number})", model, noise

    @property
    def seed(self) -> int:
        seed = self.setting("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def known_seed(self) -> int | None:
        """The seed; None for a run that a `Recorder` wrote."""
        return None if self.dynamics.record.recorded else self.seed

    @property
    def seed_words(self) -> str:
        """The seed as text; empty for a run that a `Recorder` wrote."""
        return "" if self.dynamics.record.recorded else f", seed {self.seed}"

    @cached_property
    def reported(self) -> Reported | None:
        """The number that a paper reports for such a run, the final test accuracy if there is one."""
        if self.origin is not None or self.dynamics.record.recorded:
            return None
        numbers = self.attempt(lambda: reported(self.dynamics.record.settings))
        if not numbers:
            return None
        number = next((number for number in numbers if number.metric == "final"), numbers[0])
        value = f"{number.value:.1f}" if number.deviation is None else f"{number.value:.1f} ± {number.deviation:.1f}"
        differs = f"; the paper uses other {', '.join(number.differs)}" if number.differs else ""
        return {"value": value, "source": f"{number.words}, {number.metric}{differs}"}

    @property
    def spec(self) -> str:
        return str(self.setting("loss"))

    @property
    def loss(self) -> str:
        return in_short(self.spec)

    @property
    def name(self) -> str:
        """The loss, the method unless it is the plain one, and what was done to the labels."""
        name = self.loss if self.method == "plain" else f"{self.loss}, method={in_short(self.method)}"
        return name if self.origin is None else self.origin.name(name)

    @property
    def method(self) -> str:
        return str(self.settings.get("method", "plain"))

    @cached_property
    def compared(self) -> Dynamics:
        """The dynamics, with the settings that runs are compared by."""
        return self.dynamics if self.origin is None else with_original_settings(self.dynamics)

    @cached_property
    def state(self) -> str:
        status = self._status
        state = str(status.get("state", "unknown"))
        if state in _STOPPED:
            number = status.get("epoch", 0)
            self.note(_STOPPED[state].format(epochs=f"{number} epoch{'' if number == 1 else 's'}", reason=status.get("reason")))
        elif "kept" in status:
            chosen = "chosen by Label Wave" if self.setting("keep") == "label_wave" else "the best on the validation share"
            self.note(f"The model is that of epoch {status['kept']}, {chosen}, and accuracies are those of this model.")
        return state

    @cached_property
    def _status(self) -> dict[str, Any]:
        return self.attempt(lambda: self.dynamics.record.status) or {}

    @cached_property
    def measures(self) -> dict[str, float | None]:
        return {name: self._measure(name) for name in MEASURES}

    @cached_property
    def accuracy(self) -> float | None:
        """The test accuracy of the run's model."""
        return self.measures["final"] if self.measures["kept"] is None else self.measures["kept"]

    def _measure(self, name: str) -> float | None:
        value = self.attempt(lambda: getattr(self.dynamics, name))
        if isinstance(value, dict):  # accuracies are those of the model; snr and alpha cover all of training
            last = next(reversed(value.values()), None)
            value = last if name in ("snr", "alpha") else value.get(self._status.get("kept", 0), last)
        return value if value is not None and math.isfinite(value) else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return self.attempt(lambda: tuple(map(str, self.dynamics.record.classes))) or ()

    @cached_property
    def label_counts(self) -> dict[str, int]:
        """How many training examples have the label of each class."""
        counts = self.attempt(lambda: np.bincount(self.dynamics.record.given, minlength=len(self.classes)).tolist())
        return dict(zip(self.classes, counts or (), strict=False))

    @cached_property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the model did not learn."""
        return self.attempt(lambda: self.dynamics.unlearned) or ()

    def class_accuracies(self, split: str) -> dict[str, float] | None:
        """The accuracy of the model on each class of the "test" or the "validation" set."""
        return self.attempt(lambda: self.dynamics.class_accuracies(split))

    @cached_property
    def knows_truth(self) -> bool:
        known = self.attempt(lambda: self.dynamics.record.true is not None)
        if known is False:
            self.note("The true labels are not known: measures that need them are left out.")
        return bool(known)

    @cached_property
    def known_loss(self) -> Loss | None:
        """The loss itself; None if this version of noisewise does not have it."""
        return self.attempt(lambda: get(self.spec))

    @cached_property
    def starved(self) -> str | None:
        """A warning that the loss will hardly learn, with a remedy."""
        return self.attempt(lambda: underfitting(self.spec, len(self.classes))) if self.known_loss and self.classes else None

    @cached_property
    def label_digest(self) -> str | None:
        return self.attempt(lambda: label_digest(self.dynamics.record.given))

    def film(self, frames: int) -> Film | None:
        return self.attempt(lambda: film(self.dynamics, frames=frames) if self.dynamics.record.epochs() else None)

    @cached_property
    def audit(self) -> Audit | None:
        return self.attempt(lambda: audit_run(self.dynamics))

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """Call `read`. If it fails, add a note with the reason and return None."""
        try:
            return read()
        except InputError as error:
            self.note(str(error))
        except Exception as error:  # one damaged run must not break the page
            self.note(f"Part of the run cannot be read, perhaps because another version of noisewise wrote it: {error!r}.")
        return None

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def averaged_runs(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """The runs to average over: the finished ones, or all if none is finished."""
    return prefer_finished(runs, lambda run: run.state == "finished")


@dataclass(frozen=True)
class Standing:
    """How one loss did on a task.

    Args:
        loss: its label on the page.
        seeds: how many runs are averaged.
        measures: averages by name.
        starved: a warning that the loss will hardly learn, or None.
        failed: why runs failed.
        corrected: whether the runs were trained on corrected labels.
        finished: whether all averaged runs are finished. A loss with unfinished runs cannot win if others are finished.
        unlearned: classes that some runs did not learn.
        classes: the number of classes.
    """

    loss: str
    seeds: int
    measures: dict[str, Spread | None]
    starved: str | None = None
    failed: tuple[str, ...] = ()
    corrected: bool = False
    finished: bool = True
    unlearned: tuple[str, ...] = ()
    classes: int = 0

    @classmethod
    def of(cls, label: str, runs: Sequence[ReportRun]) -> Standing:
        """Average the runs of one loss."""
        averaged = averaged_runs(runs)
        measures = {name: over_seeds(run.measures[name] for run in averaged) for name in MEASURES}
        measures["accuracy"] = over_seeds(run.accuracy for run in averaged)
        failed = tuple(run.notes[0] for run in runs if run.state == "failed")
        finished = all(run.state == "finished" for run in averaged)
        unlearned = tuple(dict.fromkeys(name for run in averaged if finished for name in run.unlearned))
        corrected, classes = runs[0].origin is not None, len(runs[0].classes)
        return cls(label, len(averaged), measures, runs[0].starved, failed, corrected, finished, unlearned, classes)

    def mean(self, name: str) -> float | None:
        spread = self.measures.get(name)
        return None if spread is None else spread.mean


def deciding_measure(standings: Sequence[Standing]) -> str | None:
    """The measure that decides which loss won: test accuracy, else accuracy on held-out examples; None if neither is known."""
    measures = (name for name in ("accuracy", "held_out") if any(standing.mean(name) is not None for standing in contenders(standings)))
    return next(measures, None)


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The losses that can be compared, the highest accuracy first."""
    measure = deciding_measure(standings)
    if measure is None:
        return []
    known = [(mean, standing) for standing in contenders(standings) if (mean := standing.mean(measure)) is not None]
    return [standing for _, standing in sorted(known, key=lambda pair: pair[0], reverse=True)]


def winner(standings: Sequence[Standing]) -> Standing | None:
    """The loss with the highest accuracy."""
    return next(iter(ranked(standings)), None)


def is_tie(standings: Sequence[Standing]) -> bool:
    """Whether the best two losses have the same accuracy, or differ by less than their seeds do."""
    measure, best_two = deciding_measure(standings), ranked(standings)[:2]
    if measure is None or len(best_two) < 2:
        return False
    top, below = (standing.measures[measure] for standing in best_two)
    assert top is not None and below is not None
    spread = math.hypot(top.deviation, below.deviation) if top.deviation is not None and below.deviation is not None else 0.0
    return is_same(top, below) or top.mean - below.mean < spread


def is_same(top: Spread, below: Spread) -> bool:
    """Whether two accuracies look the same on the page."""
    return top.mean - below.mean < _SAME or percent(top.mean) == percent(below.mean)


def percent(share: float) -> float:
    """A share in %, rounded as the page shows it."""
    return round(100 * share, 1)


def contenders(standings: Sequence[Standing]) -> list[Standing]:
    """The losses that can win: the finished ones, or all if none is finished."""
    return prefer_finished(standings, lambda standing: standing.finished)


@dataclass(frozen=True)
class Task:
    """Runs that can be compared: on the same data, with the same model and noise.

    Args:
        number: its position on the page.
        name: shown on the page.
        runs_by_label: the runs by loss and other settings that differ; runs with the same label differ in the seed only.
        standings: how each label did, in the same order.
        data: the training data; None to read it from the source that each run names.
        frames: the maximum number of frames of a film.
    """

    number: int
    name: str
    runs_by_label: dict[str, list[ReportRun]]
    standings: list[Standing]
    data: Any
    frames: int

    @cached_property
    def first(self) -> dict[str, ReportRun]:
        """The first run of each label."""
        return {label: averaged_runs(runs)[0] for label, runs in self.runs_by_label.items()}

    @cached_property
    def audited_run(self) -> ReportRun:
        """The run that is audited: one of the best loss on the uncorrected labels."""
        uncorrected = [standing for standing in self.standings if not standing.corrected] or self.standings
        return self.first[(winner(uncorrected) or uncorrected[0]).loss]


@dataclass(frozen=True)
class Page:
    """All runs, the folders that could not be read, and the tasks."""

    runs: list[ReportRun]
    broken: list[Broken]
    tasks: list[Task]
