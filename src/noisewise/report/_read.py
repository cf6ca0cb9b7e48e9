"""The runs of a page, and the tasks they are compared in.

A run may be unfinished, damaged, from another version or another machine: what cannot be read becomes a note, and the rest is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from noisewise.audit import Audit, audit
from noisewise.draw import Film, film
from noisewise.dynamics import MEASURES, Dynamics, as_compared, finished_or_all, underfitting
from noisewise.errors import InputError
from noisewise.losses import Loss, get
from noisewise.papers import reported
from noisewise.report._facts import Broken, Reported
from noisewise.report._verdict import Standing, winner
from noisewise.runs import Origin, label_digest, read_origin
from noisewise.spec import in_short

Value = TypeVar("Value")

_STOPPED = {
    "running": "Not finished: it is still training, or was stopped without a word, after {epochs}.",
    "interrupted": "Not finished: it was interrupted after {epochs}. The same command goes on from there.",
    "failed": "Failed after {epochs}: {reason}",
}


@dataclass
class Reading:
    """What could be read of a run, and notes on what could not."""

    dynamics: Dynamics
    notes: list[str] = field(default_factory=list)
    namesake: int = 1  # of several data sets that are called the same, which one it is of

    @property
    def folder(self) -> Path:
        return Path(self.dynamics.folder)

    @cached_property
    def origin(self) -> Origin | None:
        """Where a run on corrected labels came from."""
        return self.attempt(lambda: read_origin(self.folder))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run is compared by: its settings, where it was trained on corrected labels as if they had not been corrected."""
        return {**self.dynamics.record.settings, **({} if self.origin is None else self.origin.settings)}

    def setting(self, name: str) -> Any:
        return self.settings.get(name)

    @property
    def task(self) -> tuple[str, str, str]:
        """What must be the same for runs to be compared: data, model and noise."""
        data, model, noise = self._names
        return data if self.namesake == 1 else f"{data} ({self.namesake})", model, noise

    @cached_property
    def _names(self) -> tuple[str, str, str]:
        data, model = (in_short(str(self.setting(name))) for name in ("data", "model"))
        return data, model, in_short(str(self.settings.get("noise", "none")))

    @property
    def seed(self) -> int:
        given = self.setting("seed")
        return given if isinstance(given, int) else 0

    @property
    def known_seed(self) -> int | None:
        """Its seed, which a Recorder does not know."""
        return None if self.dynamics.record.recorded else self.seed

    @cached_property
    def reported(self) -> Reported | None:
        """What a paper reports for such a run: its final test accuracy where it gives one."""
        if self.origin is not None or self.dynamics.record.recorded:
            return None
        numbers = self.attempt(lambda: reported(self.dynamics.record.settings))
        if not numbers:
            return None
        number = next((number for number in numbers if number.metric == "final"), numbers[0])
        value = f"{number.value:.1f}" if number.deviation is None else f"{number.value:.1f} ± {number.deviation:.1f}"
        differs = f"; there with other {', '.join(number.differs)}" if number.differs else ""
        return {"value": value, "source": f"{number.words}, {number.metric}{differs}"}

    @property
    def seed_words(self) -> str:
        """Its seed as text; empty for a Recorder."""
        return "" if self.dynamics.record.recorded else f", seed {self.seed}"

    @property
    def spec(self) -> str:
        return str(self.setting("loss"))

    @property
    def loss(self) -> str:
        return in_short(self.spec)

    @property
    def called(self) -> str:
        """Its loss, and what was done to its labels."""
        return self.loss if self.origin is None else self.origin.name(self.loss)

    @cached_property
    def compared(self) -> Dynamics:
        """The same run under the settings it is compared by and the name it has among others."""
        return self.dynamics if self.origin is None else as_compared(self.dynamics)

    @cached_property
    def state(self) -> str:
        status = self._status
        state = str(status.get("state", "unknown"))
        if state in _STOPPED:
            number = status.get("epoch", 0)
            self.note(_STOPPED[state].format(epochs=f"{number} epoch{'' if number == 1 else 's'}", reason=status.get("reason")))
        elif "kept" in status:
            self.note(
                f"Its model is that of epoch {status['kept']}, the best on the validation share, and what it learned is told of that one."
            )
        return state

    @cached_property
    def _status(self) -> dict[str, Any]:
        return self.attempt(lambda: self.dynamics.record.status) or {}

    @cached_property
    def measures(self) -> dict[str, float | None]:
        return {name: self._measure(name) for name in MEASURES}

    @cached_property
    def accuracy(self) -> float | None:
        """The test accuracy of its model: of the one it keeps, else of the last."""
        return self.measures["final"] if self.measures["kept"] is None else self.measures["kept"]

    def _measure(self, name: str) -> float | None:
        found = self.attempt(lambda: getattr(self.dynamics, name))
        if isinstance(found, dict):  # what was learned is what its model learned; how hard a loss pulled is told of all of training
            last = next(reversed(found.values()), None)
            found = last if name in ("snr", "alpha") else found.get(self._status.get("kept", 0), last)
        return found if found is not None and math.isfinite(found) else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return self.attempt(lambda: tuple(map(str, self.dynamics.record.classes))) or ()

    @cached_property
    def label_counts(self) -> dict[str, int]:
        """How many training examples are labelled with every class."""
        counts = self.attempt(lambda: np.bincount(self.dynamics.record.given, minlength=len(self.classes)).tolist())
        return dict(zip(self.classes, counts or (), strict=False))

    @cached_property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that its model did not learn."""
        return self.attempt(lambda: self.dynamics.unlearned) or ()

    def class_accuracies(self, of: str) -> dict[str, float] | None:
        """The accuracy of its model on every class of the "test" or the "validation" set."""
        return self.attempt(lambda: self.dynamics.class_accuracies(of))

    @cached_property
    def knows_truth(self) -> bool:
        known = self.attempt(lambda: self.dynamics.record.true is not None)
        if known is False:
            self.note("Which labels are right is not known: what needs the truth is left out.")
        return bool(known)

    @cached_property
    def number(self) -> int:
        """How many training examples there are."""
        return self.attempt(lambda: len(self.dynamics.record.given)) or 0

    @cached_property
    def known_loss(self) -> Loss | None:
        """The loss itself; None if this noisewise does not have it."""
        return self.attempt(lambda: get(self.spec))

    @cached_property
    def starved(self) -> str | None:
        """The alarm that its loss hardly starts, with what would mend it."""
        return self.attempt(lambda: underfitting(self.spec, len(self.classes))) if self.known_loss and self.classes else None

    @cached_property
    def labels(self) -> str | None:
        """What its labels are known by."""
        return self.attempt(lambda: label_digest(self.dynamics.record.given))

    def film(self, frames: int) -> Film | None:
        return self.attempt(lambda: film(self.dynamics, frames=frames) if self.dynamics.record.epochs() else None)

    @cached_property
    def audit(self) -> Audit | None:
        return self.attempt(lambda: audit(self.dynamics))

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """What `read` gives; None, and a note of the reason, if it cannot."""
        try:
            return read()
        except InputError as error:
            self.note(str(error))
        except Exception as error:  # one damaged run must not cost the page
            self.note(f"Part of it cannot be read, perhaps because another version of noisewise wrote it: {error!r}.")
        return None

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True)
class Task:
    """Runs that can be compared: on the same data, with the same model and noise.

    Args:
        number: its position on the page.
        name: what it is called.
        by_label: the runs by their loss, and by other settings that differ between them; those under one label differ in the seed only.
        standings: how each label did, in the same order.
        data: what the runs were trained on; None to read it from the source that each run names.
        frames: the most frames of a film.
    """

    number: int
    name: str
    by_label: dict[str, list[Reading]]
    standings: list[Standing]
    data: Any
    frames: int

    @cached_property
    def first(self) -> dict[str, Reading]:
        """The first run of every label."""
        return {label: counted(runs)[0] for label, runs in self.by_label.items()}

    @cached_property
    def judge(self) -> Reading:
        """The run whose margins say which labels look wrong: one of the best loss on the labels as they were given."""
        as_given = [standing for standing in self.standings if not standing.corrected] or self.standings
        return self.first[(winner(as_given) or as_given[0]).loss]


@dataclass(frozen=True)
class Page:
    """All runs, the folders that could not be read, and the tasks."""

    runs: list[Reading]
    broken: list[Broken]
    tasks: list[Task]


def counted(runs: Sequence[Reading]) -> list[Reading]:
    """The runs an average is over: the finished ones, or all if none is."""
    return finished_or_all(runs, lambda run: run.state == "finished")
