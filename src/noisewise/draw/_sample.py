"""What a picture of losses shows, as numbers. It must not know how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noisewise import curve
from noisewise.arrays import Floats
from noisewise.curriculum import expected_margin, simulated_margins
from noisewise.draw._history import look
from noisewise.dynamics import emphasis_among
from noisewise.errors import InputError
from noisewise.losses import MarginLoss, get
from noisewise.spec import in_short

_VISIBLE = 0.01  # the least p whose loss value must fit the panel: −log p has no end


@dataclass(frozen=True)
class Line:
    """One loss: how it looks, its curves at the picture's margins, where its emphasis peaks, and how it varies.

    The spread is the IMAE paper's: the variance of ‖∂L/∂s‖₁, twice the emphasis, when p is uniform.
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
        """The focus as a margin; None where it is approached only at an end."""
        return math.log(self.focus / (1 - self.focus)) if 0 < self.focus < 1 else None


@dataclass(frozen=True)
class Shape:
    """A histogram brought to height 1."""

    edges: Floats
    heights: Floats


@dataclass(frozen=True)
class Picture:
    """Losses at margins `d`, where p = sigmoid(d), and the margins before training."""

    d: Floats
    p: Floats
    lines: tuple[Line, ...]
    classes: int
    start_d: Shape
    start_p: Shape

    @property
    def emphasis_top(self) -> float:
        return 1.08 * max(line.peak for line in self.lines)

    def value_range(self, *, over_p: bool) -> tuple[float, float]:
        """Lowest and highest loss value to show."""
        seen = self.p >= _VISIBLE if over_p else np.ones_like(self.p, dtype=bool)
        values = np.concatenate([line.value[seen] for line in self.lines])
        low, high = min(0.0, float(values.min())), float(values.max())
        return low - 0.03 * (high - low), high + 0.05 * (high - low)


def sample(specs: Sequence[str], classes: int, places: Sequence[int] | None = None) -> Picture:
    """Work out a picture of the losses the specs name.

    Args:
        specs: of the losses.
        classes: how many there are.
        places: of the losses among those they are shown with, which decide their looks; by default their places in this picture.
    """
    low = min(-10.0, expected_margin(classes) - 4)
    if not specs:
        raise InputError('There is nothing to draw. Give at least one loss, like "ce" or "imae(T=8)".')
    losses = [get(spec) for spec in specs]
    drawable = [loss for loss in losses if isinstance(loss, MarginLoss) and not loss.depends_on_batch]
    refused = [repr(spec) for spec, loss in zip(specs, losses, strict=True) if loss not in drawable]
    if refused:
        raise InputError(f"Only a loss that is a function of p alone has a curve. Got {', '.join(refused)}; leave it out.")
    near_ends = torch.linspace(low, 10, 601, dtype=torch.float64)
    d = torch.cat([near_ends, torch.linspace(0.005, 0.995, 199, dtype=torch.float64).logit()]).sort().values
    margins = simulated_margins(classes, samples=max(2_000, min(100_000, 20_000_000 // classes)))
    return Picture(
        d=d.numpy(),
        p=d.sigmoid().numpy(),
        lines=tuple(
            _line(spec, place, loss, d, classes)
            for place, spec, loss in zip(range(len(specs)) if places is None else places, specs, drawable, strict=True)
        ),
        classes=classes,
        start_d=_histogram(margins.numpy(), low, 10.0),
        start_p=_histogram(margins.sigmoid().numpy(), 0.0, 1.0),
    )


def _line(spec: str, place: int, loss: MarginLoss, d: Tensor, classes: int) -> Line:
    def pull(margins: Tensor) -> Tensor:
        return emphasis_among(loss, margins, classes)

    colour, dash = look(place)
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


def _histogram(values: Floats, low: float, high: float) -> Shape:
    counts, edges = np.histogram(values, bins=100, range=(low, high))
    return Shape(edges, counts / max(1, counts.max()))
