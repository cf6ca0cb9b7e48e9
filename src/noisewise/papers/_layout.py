"""Arrange cells in a table and format numbers, for the pages and the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from noisewise.papers._compared import Compared
from noisewise.papers._metrics import METRICS, RETRAINED
from noisewise.papers._recipes import Recipe
from noisewise.papers._results import Results

_SHOWN = ("data", "model", "noise", "optimiser", "weight_decay")


@dataclass(frozen=True)
class Layout:
    """A table.

    Args:
        differing: the settings that are not the same in all rows.
        metrics: the columns.
        rows: the cells by metric. The key of a row has the values of these settings and the paper's name of the row.
    """

    differing: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: dict[tuple[str, ...], dict[str, Compared]]


def laid_out(cells: Sequence[Compared]) -> Layout:
    """Arrange cells: a row for every run, a column for every metric. Settings that are the same in all rows are left out."""
    differing = tuple(name for name in _SHOWN if len({cell.settings.get(name) for cell in cells}) > 1)
    rows: dict[tuple[str, ...], dict[str, Compared]] = {}
    for cell in cells:
        rows.setdefault(_row(cell, differing), {})[cell.cell.metric] = cell
    return Layout(differing, tuple(dict.fromkeys(cell.cell.metric for cell in cells)), rows)


def how_many(cells: Sequence[Compared]) -> tuple[int, int]:
    """How many of the paper's numbers were run, and how many there are."""
    printed = [cell for cell in cells if cell.cell.value is not None]
    return sum(cell.ours is not None for cell in printed), len(printed)


def reasons(recipe: Recipe, cells: Sequence[Compared]) -> dict[str | None, list[str]]:
    """The cells that differ too much from the paper, as text, by reason; the key None has those without a known reason."""
    differing, by_reason = laid_out(cells).differing, dict[str | None, list[str]]()
    for cell in (cell for cell in cells if cell.beyond):
        text = f"{in_words(cell, differing)} ({number(cell.difference, cell.cell.metric, '+')})"
        by_reason.setdefault(recipe.why(cell.cell), []).append(text)
    return by_reason


def corrections(cells: Sequence[Compared], results: Results) -> list[str]:
    """For every run that was trained again: how many labels were changed, and how many were and are wrong."""
    differing, lines = laid_out(cells).differing, []
    for cell in (cell for cell in cells if cell.cell.metric == RETRAINED):
        for run in results.of(cell.settings):
            if RETRAINED in run.numbers:
                name = ", ".join((*_row(cell, differing), f"seed {run.seed}"))
                before, after = (_share(run.numbers[name]) for name in ("wrong_before", "wrong_after"))
                lines.append(f"{name}: {run.numbers['changed']:,} labels changed; wrong before {before}, after {after}")
    return lines


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def in_words(cell: Compared, differing: Sequence[str]) -> str:
    """Name a cell: the settings that differ between rows, the paper's name of the row, and the metric."""
    return ", ".join((*_row(cell, differing), cell.cell.metric.replace("_", " ")))


def _row(cell: Compared, differing: Sequence[str]) -> tuple[str, ...]:
    return (*(str(cell.settings.get(name)) for name in differing), cell.cell.words)


def number(value: float | None, metric: str, sign: str = "") -> str:
    """Format one of our numbers: accuracies with one decimal, others with three, None as a dash.

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
    """Format a paper's number with the decimals it has, at least one.

    Example:
        >>> as_printed(84.0), as_printed(71.33), as_printed(354.113), as_printed(None)
        ('84.0', '71.33', '354.113', '–')
    """
    if value is None:
        return "–"
    whole, _, decimals = f"{value:.3f}".partition(".")
    return f"{whole}.{decimals[0]}{decimals[1:].rstrip('0')}"


def theirs(cell: Compared) -> str:
    """The paper's number with the deviation it prints."""
    return as_printed(cell.cell.value) + ("" if cell.cell.deviation is None else f" ± {as_printed(cell.cell.deviation)}")


def ours(cell: Compared) -> str:
    """Our number with its standard deviation over seeds."""
    return number(cell.ours, cell.cell.metric) + ("" if cell.spread is None else f" ± {number(cell.spread, cell.cell.metric)}")


def anchor(heading: str) -> str:
    """The anchor of a heading on a page, as Markdown builds it.

    Example:
        >>> anchor("imae/supplement-table4"), anchor("The best λ rises")
        ('imaesupplement-table4', 'the-best-rises')
    """
    return "-".join(re.sub(r"[^a-z0-9 _-]", "", heading.lower()).split())
