"""The figures of our own findings: numbers of runs over a setting, and test accuracies of single classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noisewise.draw import Panel
from noisewise.papers import METRICS, Cell, Compared, Recipe, Results, compared
from noisewise.spec import in_short


def panels_of(recipe: Recipe, results: Results) -> list[list[Panel]]:
    """The panels of the figure of a recipe: a row for every metric, or one row of accuracies by class."""
    cells = [cell for cell in compared(recipe, results) if cell.by_seed]
    if recipe.picture == "classes":
        first = [cell for cell in cells if cell.cell.metric == recipe.metrics[0]]
        return [_panels(recipe, first, "test accuracy (%)", lambda cell: _by_class(cell, results))]
    metrics = dict.fromkeys(cell.cell.metric for cell in cells)
    return [_panels(recipe, [cell for cell in cells if cell.cell.metric == name], _title(name), _by_place) for name in metrics]


def _title(metric: str) -> str:
    unit = METRICS[metric].unit
    return metric.replace("_", " ") + (f" ({unit})" if unit else "")


def _panels(recipe: Recipe, cells: Sequence[Compared], title: str, values: Any) -> list[Panel]:
    panels: dict[str, dict[str, dict[str, Sequence[float]]]] = {}
    for cell in cells:
        panel = panels.setdefault(_part(recipe, "panels", cell.cell), {})
        panel.setdefault(_part(recipe, "lines", cell.cell), {}).update(values(cell))
    return [Panel(f"{name}: {title}", lines) for name, lines in panels.items()]


def _part(recipe: Recipe, role: str, cell: Cell) -> str:
    """What a cell's panel or line is called."""
    assert recipe.sweep is not None and cell.settings is not None
    name = recipe.sweep[role]
    if name == "row":
        return cell.words.partition(", ")[0]
    value = cell.settings[name]
    return in_short(value) if isinstance(value, str) else f"{name.replace('_', ' ')} {value:g}"


def _by_place(cell: Compared) -> Mapping[str, Sequence[float]]:
    return {cell.cell.words.partition(", ")[2]: list(cell.by_seed.values())}


def _by_class(cell: Compared, results: Results) -> Mapping[str, Sequence[float]]:
    values: dict[str, list[float]] = {}
    for run in results.of(cell.settings):
        for name, share in run.classes.items():
            values.setdefault(name, []).append(100 * share)
    return values
