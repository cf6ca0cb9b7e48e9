"""A run as a film, in numbers: how the margins of its examples are distributed, epoch by epoch, and how hard its loss pulls there.

It must not know how a film is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats, subsample
from noisewise.dynamics import Dynamics
from noisewise.errors import invalid_parameter

_SEEN = (0.001, 0.999)  # the few margins beyond are counted in the end bins, where they cannot flatten the rest
_WIDTHS = (1.0, 2.0, 2.5, 5.0)
_POINTS = 241


@dataclass(frozen=True)
class Film:
    """The margins of a run.

    Args:
        loss: the spec of the run's loss.
        edges: of the bins: multiples of a round number, 0 among them. The end bins also count what lies beyond.
        epochs: the epoch of every frame.
        counts: by group, "clean" and "noisy" (or "all" where the truth is not known): int64 (frames, bins).
        margins: where the emphasis is known, over the range of the bins.
        emphasis: there, (1, margins), or (frames, margins) for a loss that changes; None for one that is not of the margin alone.
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
    """Make the film of a run; the memory it takes is that of one epoch.

    Args:
        run: what happened.
        bins: how many at most.
        frames: how many epochs at most, evenly spaced, the first and the last among them; or which.
    """
    if bins < 4:
        raise invalid_parameter("bins", "film", "at least 4", bins)
    epochs = subsample(run.record.epochs(), frames) if isinstance(frames, int) else tuple(frames)
    for epoch in epochs:
        _ = run.record.margins(epoch)  # an epoch that is not there is refused before any counting
    low, high = np.nan_to_num(run.margin_quantiles(_SEEN))  # a run without an epoch has none
    counted = run.margin_histograms(_edges(low, high, bins), epochs=epochs)
    margins = np.linspace(counted.edges[0], counted.edges[-1], _POINTS)
    return Film(
        loss=run.record.settings["loss"],
        edges=counted.edges,
        epochs=epochs,
        counts=counted.counts,
        margins=margins,
        emphasis=_emphasis(run, epochs, margins),
    )


def _edges(low: float, high: float, bins: int) -> list[float]:
    """Multiples of the least round number that reach over the range, and over 0, in so many bins at most."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = -1.0, 1.0
    power = 10.0 ** math.floor(math.log10((high - low) / bins))
    for width in (scale * width * power for scale in (1, 10) for width in _WIDTHS):
        first, last = math.floor(low / width), math.ceil(high / width)
        if last - first <= bins:
            break
    return [width * place for place in range(first, last + 1)]


def _emphasis(run: Dynamics, epochs: Sequence[int], margins: Floats) -> Floats | None:
    curves = [run.emphasis_curve(epoch, margins) for epoch in epochs]
    known = [one for one in curves if one is not None]
    if not known:
        return None
    rows = np.stack(known)
    return rows[:1] if (rows == rows[0]).all() else rows
