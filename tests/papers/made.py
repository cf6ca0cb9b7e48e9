"""Results with numbers of one's choice, written and read as real ones are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from noisewise.papers import METRICS, Cell, Outcome, Portion, Results, get, key, results

CLEAN = 90.0
NAMES = ("best", "final", "clean_subset", "noisy_subset", "fitting", "validation", "hybrid", "snr", "alpha")
MADE_WITH = {"noisewise": "9.1", "python": "3", "torch": "3.0", "numpy": "3", "device": "H", "precision": "bfloat16"}


def the_cell(recipe: str, **where: str) -> Cell:
    """The one cell that fits."""
    (found,) = (one for one in get(recipe).cells if one.fits(**where))
    return found


def outcome(settings: dict[str, object], *, seed: int = 0, finished: str = "2031-01-02T03:04:05+00:00", **numbers: float) -> Outcome:
    """A run that came to some numbers."""
    known = {**dict.fromkeys(NAMES), **numbers}
    return Outcome(settings, seed, known, {"epoch": []}, 1, finished, {**MADE_WITH, "compile": False})


def made(folder: Path, wanted: Iterable[tuple[Cell, float]], *, recipe: str = "imae/table6", seeds: Iterable[int] = (0,)) -> Results:
    """Results in which cells have chosen numbers, the same for every seed: a portion, written to a folder and read back."""
    runs: dict[str, Outcome] = {}

    def enter(settings: dict[str, object], name: str, value: float) -> None:
        run = runs.setdefault(key(settings), outcome(settings))
        runs[key(settings)] = outcome(settings, **{**run.numbers, name: value})  # type: ignore[arg-type]

    for one, value in wanted:
        settings = dict(one.settings or {})
        if one.metric == "diff":
            enter({**settings, "noise": "none"}, "final", CLEAN / 100)
            enter(settings, "final", (CLEAN + value) / 100)
        else:
            enter(settings, METRICS[one.metric].name or one.metric, value / 100 if METRICS[one.metric].unit == "%" else value)
    folder.mkdir(exist_ok=True)
    repeated = tuple(replace(run, seed=seed) for seed in seeds for run in runs.values())
    Portion(recipe, "2031-01-02T03:04:00+00:00", repeated).write(folder)
    return results(folder)
