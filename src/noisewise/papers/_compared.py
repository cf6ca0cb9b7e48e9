"""Compare results with the numbers of a recipe, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noisewise import curriculum
from noisewise.dynamics import Spread, over_seeds
from noisewise.papers._metrics import METRICS
from noisewise.papers._recipes import Cell, Recipe, check_recipe
from noisewise.papers._results import Outcome, Results

_POINTS = 2.0
"""A difference in % that needs an explanation, if the paper gives no spread."""


@dataclass(frozen=True)
class Compared:
    """One of our numbers next to the paper's.

    Args:
        cell: the paper's number.
        ours: our number over all seeds; None where it was not run or not measured.
        spread: our standard deviation over seeds; None with one seed.
        seeds: the number of seeds.
        by_seed: our number for each seed.
    """

    cell: Cell
    ours: float | None
    spread: float | None
    seeds: int
    by_seed: Mapping[int, float] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the runs."""
        return self.cell.settings or {}

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's."""
        return None if self.ours is None or self.cell.value is None else self.ours - self.cell.value

    @property
    def beyond(self) -> bool:
        """Whether an accuracy differs by more than twice the spread that the paper prints, or by more than two points if it prints none."""
        if self.difference is None or METRICS[self.cell.metric].unit == "":
            return False
        return abs(self.difference) > (_POINTS if self.cell.deviation is None else 2 * self.cell.deviation)


def compared(recipe: Recipe, results: Results) -> list[Compared]:
    """Compare every cell of a recipe that is trained or computed with our number, where there is one.

    Args:
        recipe: the table.
        results: our results.

    Example:
        >>> from noisewise.papers import get
        >>> cell = compared(get("imae/supplement-table4"), Results())[1]
        >>> cell.cell.words, cell.cell.value, round(cell.ours, 3)
        ('T = 8', 4.546, 4.546)
    """
    check_recipe(recipe, "compared")
    return [
        _computed(cell, cell.settings) if recipe.computed else _measured(recipe, cell, cell.settings, results)
        for cell in recipe.cells
        if cell.settings is not None
    ]


def _computed(cell: Cell, settings: Mapping[str, Any]) -> Compared:
    loss = settings["loss"]
    return Compared(cell, curriculum.focus(loss) if cell.metric == "focus" else curriculum.spread(loss, norm="l1"), None, 0)


def _measured(recipe: Recipe, cell: Cell, settings: Mapping[str, Any], results: Results) -> Compared:
    runs = results.of(settings)
    counted = _numbers("final" if cell.metric == "diff" else cell.metric, _counted(recipe, runs))
    if cell.metric == "diff":
        clean = _counted(recipe, results.of({**settings, "noise": "none"}))
        counted = _less(counted, over_seeds(_numbers("final", clean)))
    ours, spread = over_seeds(counted) or (None, None)
    return Compared(cell, ours, spread, len(runs), _by_seed(cell, settings, results))


def _by_seed(cell: Cell, settings: Mapping[str, Any], results: Results) -> dict[int, float]:
    """Our number for each seed. Without noise there may be fewer seeds, whose mean stands in for the others."""
    metric = METRICS["final" if cell.metric == "diff" else cell.metric]
    values = _known({run.seed: metric.of(run.numbers) for run in results.of(settings)})
    if cell.metric != "diff":
        return values
    clean = _known({run.seed: metric.of(run.numbers) for run in results.of({**settings, "noise": "none"})})
    return {seed: value - clean.get(seed, statistics.fmean(clean.values())) for seed, value in values.items() if clean}


def _known(values: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if value is not None}


def _numbers(metric: str, runs: list[Outcome]) -> list[float | None]:
    return [METRICS[metric].of(run.numbers) for run in runs]


def _less(values: list[float | None], reference: Spread | None) -> list[float | None]:
    return [None if value is None or reference is None else value - reference.mean for value in values]


def _counted(recipe: Recipe, runs: list[Outcome]) -> list[Outcome]:
    """The runs that a number is computed from: all seeds, or the one with the best test accuracy."""
    if recipe.over == "best" and runs:
        return [max(runs, key=lambda run: run.numbers["final"] or 0.0)]
    return runs
