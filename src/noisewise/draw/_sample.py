"""What a picture of losses shows, as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from noisewise import curve, theory
from noisewise.arrays import Floats
from noisewise.draw._history import line_style
from noisewise.dynamics import emphasis_at
from noisewise.errors import InputError
from noisewise.losses import MarginLoss, get
from noisewise.margin import simulated_margins
from noisewise.spec import in_short

_VISIBLE = 0.01  # the smallest p whose loss value must fit into the panel, because −log p is unbounded


@dataclass(frozen=True)
class Line:
    """One loss: its style, its curves at the margins of the picture, the peak of its emphasis, and its spread.

    The spread is that of the IMAE paper: the variance of ‖∂L/∂s‖₁, which is twice the emphasis, for uniform p.
    """

    label: str
    colour: str
    dash: str
    emphasis: Floats
    value: Floats
    focus: float
    peak: float
    spread: float

    @property
    def words(self) -> str:
        """The loss with its focus and spread."""
        return f"{self.label}: focus {self.focus:.2g}, spread {self.spread:.2g}"

    @property
    def focus_margin(self) -> float | None:
        """The focus as a margin; None if it is infinite."""
        return math.log(self.focus / (1 - self.focus)) if 0 < self.focus < 1 else None


@dataclass(frozen=True)
class Histogram:
    """A histogram, scaled to a maximum of 1."""

    edges: Floats
    heights: Floats


@dataclass(frozen=True)
class Picture:
    """Losses at margins `d`, where p = sigmoid(d), and the margins before training."""

    d: Floats
    p: Floats
    lines: tuple[Line, ...]
    classes: int
    start_d: Histogram
    start_p: Histogram

    @property
    def emphasis_top(self) -> float:
        return 1.08 * max(line.peak for line in self.lines)

    def value_range(self, *, over_p: bool) -> tuple[float, float]:
        """The smallest and the largest loss value to show."""
        seen = self.p >= _VISIBLE if over_p else np.ones_like(self.p, dtype=bool)
        values = np.concatenate([line.value[seen] for line in self.lines])
        low, high = min(0.0, float(values.min())), float(values.max())
        return low - 0.03 * (high - low), high + 0.05 * (high - low)


@dataclass(frozen=True)
class Bounds:
    """What `noisewise.theory` says about one loss, for a figure: its style, how much harder it pulls at each p than at 1/2, and the rate
    of symmetric noise that it tolerates for each number of classes."""

    label: str
    colour: str
    dash: str
    impact: Floats
    rates: Floats


def bounds(specs: Sequence[str], p: Floats, classes: Sequence[int]) -> tuple[Bounds, ...]:
    """The bounds of some losses, at some p and for some numbers of classes."""
    return tuple(_bounds(style, spec, loss, p, classes) for style, (spec, loss) in enumerate(zip(specs, _drawable(specs), strict=True)))


def _bounds(style: int, spec: str, loss: MarginLoss, p: Floats, classes: Sequence[int]) -> Bounds:
    impact = [theory.impact_ratio(loss, value, 0.5) for value in p.tolist()]
    rates = [theory.tolerated_rate(loss, number) for number in classes]
    ratio = theory.asymmetry_ratio(loss)
    return Bounds(f"{in_short(spec)}: asymmetry ratio {ratio:.2g}", *line_style(style), np.array(impact), np.array(rates))


def _drawable(specs: Sequence[str]) -> list[MarginLoss]:
    """The losses of some specs, after a check that each is a function of p alone."""
    if not specs:
        raise InputError('There is nothing to draw. Give at least one loss, like "ce" or "imae(T=8)".')
    losses = [get(spec) for spec in specs]
    refused = [repr(spec) for spec, loss in zip(specs, losses, strict=True) if not loss.has_curve]
    if refused:
        raise InputError(f"Only losses that are one function of p alone have a curve. Leave out {', '.join(refused)}.")
    return cast(list[MarginLoss], losses)


def sample(specs: Sequence[str], classes: int, styles: Sequence[int] | None = None) -> Picture:
    """Compute the picture of some losses.

    Args:
        specs: the specs of the losses.
        classes: the number of classes.
        styles: the index of the line style of each loss; by default 0, 1, …
    """
    drawable = _drawable(specs)
    margins = simulated_margins(classes, samples=max(2_000, min(100_000, 20_000_000 // classes)))
    low = min(-10.0, float(margins.mean()) - 4)
    near_ends = torch.linspace(low, 10, 601, dtype=torch.float64)
    d = torch.cat([near_ends, torch.linspace(0.005, 0.995, 199, dtype=torch.float64).logit()]).sort().values
    return Picture(
        d=d.numpy(),
        p=d.sigmoid().numpy(),
        lines=tuple(
            _line(spec, style, loss, d, classes)
            for style, spec, loss in zip(range(len(specs)) if styles is None else styles, specs, drawable, strict=True)
        ),
        classes=classes,
        start_d=_histogram(margins.numpy(), low, 10.0),
        start_p=_histogram(margins.sigmoid().numpy(), 0.0, 1.0),
    )


def _line(spec: str, style: int, loss: MarginLoss, d: Tensor, classes: int) -> Line:
    def pull(margins: Tensor) -> Tensor:
        return emphasis_at(loss, margins, classes)

    colour, dash = line_style(style)
    focus, peak = curve.peak(pull)
    return Line(
        label=in_short(spec),
        colour=colour,
        dash=dash,
        emphasis=pull(d).numpy(),
        value=loss.of_margin(d, classes).detach().numpy(),
        focus=focus,
        peak=peak,
        spread=4 * curve.variance(pull),
    )


def _histogram(values: Floats, low: float, high: float) -> Histogram:
    counts, edges = np.histogram(values, bins=100, range=(low, high))
    return Histogram(edges, counts / max(1, counts.max()))
