"""Cells as the rows and columns of a table, for whoever shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noisewise.papers._metrics import METRICS
from noisewise.papers._reproduce import Compared

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
        rows.setdefault((*(str(cell.settings.get(name)) for name in differing), cell.words), {})[cell.metric] = cell
    return Layout(differing, tuple(dict.fromkeys(cell.metric for cell in cells)), rows)


def number(value: float | None, metric: str, sign: str = "") -> str:
    """A number of ours as it is shown: accuracies with one decimal, others with three digits, none as a dash.

    Example:
        >>> number(84.04, "final"), number(0.5321, "snr"), number(1.25, "final", "+"), number(None, "final")
        ('84.0', '0.532', '+1.2', '–')
    """
    if value is None:
        return "–"
    return f"{value:{sign}.3g}" if METRICS[metric].unit == "" else f"{value:{sign}.1f}"


def as_printed(value: float | None) -> str:
    """A number of a paper, with its own decimals.

    Example:
        >>> as_printed(84.0), as_printed(71.33), as_printed(354.113), as_printed(None)
        ('84.0', '71.33', '354.113', '–')
    """
    if value is None:
        return "–"
    whole, _, decimals = f"{value:.3f}".partition(".")
    return f"{whole}.{decimals[0]}{decimals[1:].rstrip('0')}"
