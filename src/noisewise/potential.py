"""The loss value of an emphasis, V(Δ) = −∫₀^Δ w, for losses without a closed form such as IMAE and GR.

The integral is stored as polynomials over a few dozen cells, narrow where the emphasis bends and wide elsewhere. It is exact to about
1e-13 in float64 and costs one lookup and ten multiplications.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from torch import Tensor

from noisewise.arrays import Floats
from noisewise.errors import InputError
from noisewise.exact import can_keep, can_look

_NODES = 10
HOME = 2.0**-5  # the cell around 0, so small that it is never halved, so that V has a small relative error there
REACH = 2.0**15  # beyond these margins the emphasis is constant; scores of ±1e4 give ±2e4
_PRECISION = 1e-14
_SPLITS = 24
_CELLS = 2**16  # far more than an emphasis with a few kinks needs
_BINS = 2**16
_FEW = 2_000  # margins for which a search takes less time than a lookup, which is more operations

_POINTS = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
_PROBES = np.linspace(-1.0, 1.0, 7)
_TO_CHEBYSHEV = np.linalg.inv(chebyshev.chebvander(_POINTS, _NODES - 1))
_TO_POWERS = np.stack([np.pad(chebyshev.cheb2poly(row), (0, _NODES))[:_NODES] for row in np.eye(_NODES)])


def _fit(emphasis: Callable[[Tensor], Tensor], low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Chebyshev coefficients of the emphasis in each cell, the largest error between the nodes, and the largest value."""
    middle, half = (low + high)[:, None] / 2, (high - low)[:, None] / 2
    where = np.concatenate([_POINTS, _PROBES])
    margins = middle + half * where
    values = emphasis(torch.from_numpy(margins)).numpy()
    if not np.isfinite(values).all():
        at = margins[~np.isfinite(values)][0]
        raise InputError(
            f"An emphasis must be finite at every margin. Got one that is not at Δ = {at:.3g}; "
            "choose smaller hyper-parameters, or write it so that nothing overflows."
        )
    fitted = values[:, :_NODES] @ _TO_CHEBYSHEV.T
    error = np.abs(chebyshev.chebval(_PROBES, fitted.T) - values[:, _NODES:]).max(1)
    return fitted, error, np.abs(values).max(1)


def _cells(emphasis: Callable[[Tensor], Tensor]) -> tuple[Floats, Floats, Floats]:
    """Cells from −REACH to REACH, halved until the emphasis is a polynomial in each."""
    outward = HOME * 2.0 ** np.arange(np.log2(REACH / HOME) + 1)
    low = np.concatenate([-outward[:0:-1], [-HOME], outward[:-1]])
    high = np.concatenate([-outward[-2::-1], [HOME], outward[1:]])
    done: list[tuple[Floats, Floats, Floats]] = []
    for _ in range(_SPLITS):
        fitted, error, size = _fit(emphasis, low, high)
        split = error > _PRECISION * (size + 1e-3 * size.max(initial=0.0) / (high - low)) + 1e-300
        done.append((low[~split], high[~split], fitted[~split]))
        if not split.any():
            break
        if split.sum() > _CELLS:
            raise InputError(
                f"An emphasis must be a smooth function of the margin. Got one that is not around Δ = {low[split][0]:.3g}; "
                "compute it in the precision of its input, or define the value of the loss too."
            )
        middle = (low[split] + high[split]) / 2
        low, high = np.concatenate([low[split], middle]), np.concatenate([middle, high[split]])
    else:
        done.append((low, high, _fit(emphasis, low, high)[0]))
    lows, highs, fits = (np.concatenate(parts) for parts in zip(*done, strict=True))
    order = np.argsort(lows)
    return lows[order], highs[order], fits[order]


def _check(emphasis: Callable[[Tensor], Tensor]) -> None:
    """Check the type and shape of what an emphasis returns."""
    margins = torch.linspace(-1, 1, 6, dtype=torch.float64, device="cpu").view(2, 3)
    values = emphasis(margins.clone())
    if not isinstance(values, Tensor) or (values.dtype, values.shape) != (margins.dtype, margins.shape):
        got = f"{values.dtype} shaped {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        raise InputError(f"An emphasis of float64 margins shaped (2, 3) must be a tensor of that type and shape. Got {got} instead.")


class Potential:
    """V(Δ) = −∫₀^Δ emphasis, tabulated.

    Args:
        emphasis: a smooth function of float64 margins of any shape.

    Example:
        >>> cross_entropy = Potential(lambda d: torch.sigmoid(-d))
        >>> cross_entropy(torch.tensor([-3.0, 3.0]))  # −log p − log 2
        tensor([ 2.3554, -0.6446])
    """

    def __init__(self, emphasis: Callable[[Tensor], Tensor]) -> None:
        with torch.no_grad():
            _check(emphasis)
            low, high, fitted = _cells(emphasis)
            ends = emphasis(torch.tensor([-REACH, REACH], dtype=torch.float64, device="cpu"))
        middle, half = (low + high) / 2, (high - low) / 2
        powers = fitted @ _TO_POWERS
        integral = np.zeros((len(low), _NODES + 1))
        integral[:, 1:] = -half[:, None] * powers / np.arange(1, _NODES + 1)
        self._anchor(integral, -middle / half, int(np.searchsorted(low, 0.0, side="right")) - 1)
        self._left, self._right = (float(value) for value in ends)
        self._columns = torch.from_numpy(np.stack([middle, 1 / half, *integral.T]))
        self._edges = torch.from_numpy(np.append(low[1:], np.inf))
        first = _first_cells(low[1:])
        self._first = None if first is None else torch.from_numpy(first)
        self._by_device: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor, Tensor | None]] = {}

    @staticmethod
    def _anchor(integral: Floats, zeros: Floats, home: int) -> None:
        """Choose each cell's constant so that the pieces join and V(0) = 0."""
        signs = (-1.0) ** np.arange(_NODES + 1)
        rises, falls = integral.sum(1), integral @ signs
        integral[home, 0] = -np.polynomial.polynomial.polyval(zeros[home], integral[home])
        for cell in range(home + 1, len(integral)):
            integral[cell, 0] = integral[cell - 1, 0] + rises[cell - 1] - falls[cell]
        for cell in range(home - 1, -1, -1):
            integral[cell, 0] = integral[cell + 1, 0] + falls[cell + 1] - rises[cell]

    def __call__(self, margin: Tensor) -> Tensor:
        columns, edges, first = self._on(margin.device, margin.dtype)
        flat = margin.reshape(-1)
        near = _are_near(flat)
        if near and len(flat) < _FEW:
            return _of_few(flat, columns, edges).view(margin.shape)
        inside = flat if near else flat.clamp(-REACH, REACH)
        if first is None:
            cell = torch.bucketize(inside, edges[:-1])
        else:  # ten times as fast; the polynomial is also accurate slightly outside its cell
            cell = first.index_select(0, _bin(inside).nan_to_num(0.0).long())
            cell = cell + (inside >= edges.index_select(0, cell))
        middle, scale, *powers = columns.index_select(1, cell).unbind()  # contiguous columns are twice as fast
        step = (inside - middle) * scale
        value = powers[-1]
        for power in powers[-2::-1]:
            value = torch.addcmul(power, value, step)
        if near:
            return value.view(margin.shape)
        for slope, beyond in ((self._left, flat.clamp(max=-REACH) + REACH), (self._right, flat.clamp(min=REACH) - REACH)):
            if slope != 0:  # 0 times an infinite margin is NaN
                value = value - slope * beyond
        return value.view(margin.shape)

    def _on(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        key = device, dtype
        if key in self._by_device:
            return self._by_device[key]
        tensors = self._columns.to(device, dtype), self._edges.to(device, dtype), None if self._first is None else self._first.to(device)
        if can_keep():
            self._by_device[key] = tensors
        return tensors


def _are_near(margins: Tensor) -> bool:
    """Whether all margins are known to be within REACH, so that nothing has to be clamped; false for NaN."""
    if not can_look(margins) or len(margins) == 0:
        return False
    low, high = torch.aminmax(margins.detach())
    return float(low) > -REACH and float(high) < REACH


def _of_few(margins: Tensor, columns: Tensor, edges: Tensor) -> Tensor:
    """V at margins within REACH, in as few operations as possible."""
    chosen = columns.index_select(1, torch.bucketize(margins, edges))
    step = (margins - chosen[0]) * chosen[1]
    return (chosen[3:] * step.expand(_NODES, -1).cumprod(0)).sum(0).add_(chosen[2])


def _bin(margin: Tensor) -> Tensor:
    """The bin of a margin in the lookup, from 0 to _BINS − 1: narrow around 0, wide far out."""
    return (margin / (margin.abs() + 4) + 1) * (_BINS / 2 - 1)


def _first_cells(edges: Floats) -> NDArray[np.int64] | None:
    """The first cell of every bin, or None if a bin has more than one edge (an emphasis with a kink)."""
    bins = _bin(torch.from_numpy(edges)).long().numpy()
    return None if len(np.unique(bins)) < len(bins) else np.searchsorted(bins, np.arange(_BINS), side="left")
