"""Cells as the rows and columns of a table, numbers, times and addresses in words, for whoever shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noisewise.papers._again import RETRAINED
from noisewise.papers._compared import Compared
from noisewise.papers._identity import key
from noisewise.papers._metrics import METRICS
from noisewise.papers._plan import as_trained
from noisewise.papers._recipes import Recipe
from noisewise.papers._results import Portion, Results

_SHOWN = ("data", "model", "noise", "optimiser", "weight_decay")


@dataclass(frozen=True)
class Layout:
    """A table.

    Args:
        differing: the settings that are not the same in all rows.
        metrics: the columns.
        rows: the cells by metric, by the values of those settings and, last, what the paper calls the row.
    """

    differing: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: dict[tuple[str, ...], dict[str, Compared]]


def laid_out(cells: Sequence[Compared]) -> Layout:
    """A row for everything that is trained, a column for every metric; settings that never change are left out."""
    differing = tuple(name for name in _SHOWN if len({cell.settings.get(name) for cell in cells}) > 1)
    rows: dict[tuple[str, ...], dict[str, Compared]] = {}
    for cell in cells:
        rows.setdefault(_row(cell, differing), {})[cell.cell.metric] = cell
    return Layout(differing, tuple(dict.fromkeys(cell.cell.metric for cell in cells)), rows)


def how_many(cells: Sequence[Compared]) -> tuple[int, int]:
    """How many of the paper's numbers have one of ours beside them, and how many there are."""
    printed = [one for one in cells if one.cell.value is not None]
    return sum(one.ours is not None for one in printed), len(printed)


def reasons(recipe: Recipe, cells: Sequence[Compared]) -> dict[str | None, list[str]]:
    """The cells whose numbers are off, in words, by why they are; under None those of which that is not known."""
    differing, found = laid_out(cells).differing, dict[str | None, list[str]]()
    for one in (one for one in cells if one.beyond):
        told = f"{in_words(one, differing)} ({number(one.difference, one.cell.metric, '+')})"
        found.setdefault(recipe.why(one.cell), []).append(told)
    return found


def corrections(cells: Sequence[Compared], found: Results, *, quick: bool = False) -> list[str]:
    """What became of the labels of every run that was trained again, in words."""
    differing, said = laid_out(cells).differing, []
    for one in (one for one in cells if one.cell.metric == RETRAINED):
        for run in found.of(as_trained(one.settings, quick)):
            if RETRAINED in run.numbers:
                place = ", ".join((*_row(one, differing), f"seed {run.seed}"))
                before, after = (_share(run.numbers[name]) for name in ("wrong_before", "wrong_after"))
                changed = f"{run.numbers['changed']:,} label{'' if run.numbers['changed'] == 1 else 's'} changed"
                said.append(f"{place}: {changed}; wrong before {before}, after {after}")
    return said


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def in_words(cell: Compared, differing: Sequence[str]) -> str:
    """Which cell it is: the settings that tell it from others, what the paper calls its row, and what its number is."""
    return ", ".join((*_row(cell, differing), cell.cell.metric.replace("_", " ")))


def _row(cell: Compared, differing: Sequence[str]) -> tuple[str, ...]:
    return (*(str(cell.settings.get(name)) for name in differing), cell.cell.words)


def number(value: float | None, metric: str, sign: str = "") -> str:
    """A number of ours as it is shown: accuracies with one decimal, others with three, none as a dash.

    Example:
        >>> number(84.04, "final"), number(0.5321, "snr"), number(1.25, "final", "+"), number(None, "final")
        ('84.0', '0.532', '+1.2', '–')
        >>> number(354.1133, "spread"), number(-0.0002, "spread", "+")
        ('354.113', '+0.000')
    """
    if value is None:
        return "–"
    return f"{value:{sign}z.{3 if METRICS[metric].unit == '' else 1}f}"


def as_printed(value: float | None) -> str:
    """A number of a paper, with as many decimals as it has digits for, and one at least.

    Example:
        >>> as_printed(84.0), as_printed(71.33), as_printed(354.113), as_printed(None)
        ('84.0', '71.33', '354.113', '–')
    """
    if value is None:
        return "–"
    whole, _, decimals = f"{value:.3f}".partition(".")
    return f"{whole}.{decimals[0]}{decimals[1:].rstrip('0')}"


def theirs(one: Compared) -> str:
    """The paper's number, and the spread it prints."""
    return as_printed(one.cell.value) + ("" if one.cell.deviation is None else f" ± {as_printed(one.cell.deviation)}")


def ours(one: Compared) -> str:
    """Our number, and its spread over seeds."""
    return number(one.ours, one.cell.metric) + ("" if one.spread is None else f" ± {number(one.spread, one.cell.metric)}")


def anchor(heading: str) -> str:
    """The address of a heading on a page, as Markdown makes it.

    Example:
        >>> anchor("imae/supplement-table4"), anchor("The best λ rises")
        ('imaesupplement-table4', 'the-best-rises')
    """
    plain = "".join(sign for sign in heading.lower() if sign.isascii() and (sign.isalnum() or sign in " -_"))
    return "-".join(plain.split())


def took(recipe: Recipe, found: Results, *, quick: bool = False) -> str:
    """How long the runs of a recipe took, and which of them were trained for other recipes; nothing where there are none."""
    own, others = trained_for(recipe, found, quick=quick), dict[str, list[Portion]]()
    for portion in _with_runs_of(recipe, found, quick):
        if portion.recipe != recipe.id:
            others.setdefault(portion.recipe, []).append(portion)
    said = [spent(own) + _beside(own, found)] if own else []
    return "; ".join([*said, *(f"runs shared with {name}, {spent(portions)}" for name, portions in others.items())])


def trained_for(recipe: Recipe, found: Results, *, quick: bool = False) -> list[Portion]:
    """The portions that were trained for a recipe, at full size or to try it; one in which no run was finished took its time too."""
    own, with_runs = [one for one in found.portions if one.recipe == recipe.id], _with_runs_of(recipe, found, quick)
    return [portion for portion in own if portion in with_runs or (portion.seconds and not portion.runs)]


def _with_runs_of(recipe: Recipe, found: Results, quick: bool) -> list[Portion]:
    """The portions that took time for runs of a recipe, whichever they were trained for."""
    keys = {key(as_trained(run, quick)) for run in recipe.runs}
    return [portion for portion in found.portions if portion.seconds and any(key(run.settings) in keys for run in portion.runs)]


def _beside(own: Sequence[Portion], found: Results) -> str:
    """For which other recipes there were runs at the same time, perhaps on the same machine."""
    at_once = {other.recipe for other in found.portions if any(_overlap(other, portion) for portion in own)} - {one.recipe for one in own}
    return f", at the same time as {', '.join(sorted(at_once))}" if at_once else ""


def _overlap(one: Portion, other: Portion) -> bool:
    return max(one.interval[0], other.interval[0]) < min(one.interval[1], other.interval[1])


def spent(portions: Sequence[Portion]) -> str:
    """How long some portions took together, and how fast they were.

    Example:
        >>> spent([Portion("imae/table6", "2031-01-02", 600.0, 6_000_000), Portion("imae/table6", "2031-01-03", 30.0, 300_000)])
        '10.5 minutes in 2 portions, 10,000 images/s'
        >>> spent([Portion("imae/table6", "2031-01-02", 1.4, 1400)])
        '1 second, 1,000 images/s'
        >>> spent([Portion("imae/table6", "2031-01-02T00:00", 600.0, 600_000), Portion("gr/table3", "2031-01-02T00:05", 600.0, 300_000)])
        '15.0 minutes in 2 portions, 1,000 images/s'
    """
    seconds, images = elapsed(portions), sum(portion.images for portion in portions)
    time = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{round(seconds)} second{'' if round(seconds) == 1 else 's'}"
    parts = f" in {len(portions)} portions" if len(portions) > 1 else ""
    return f"{time}{parts}" + (f", {images / seconds:,.0f} images/s" if seconds else "")


def elapsed(portions: Iterable[Portion]) -> float:
    """The seconds in which any of some portions was under way."""
    total, until = 0.0, -math.inf
    for began, ended in sorted(portion.interval for portion in portions):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return round(total, 1)
