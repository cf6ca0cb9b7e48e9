"""A function of the margin as a table of cubic polynomials, for losses whose formula cannot be translated to a kernel.

The exponent and the first seven bits of the mantissa of |Δ| + 1 in float32 select a cell, so a kernel needs no search. Beyond the last
cell, at |Δ| = 2¹⁵, the function continues as a straight line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Floats

CELLS = 15 * 128
TOLERANCE = 1e-6
"""The largest error of a table, relative to the value there plus the largest value for |Δ| ≤ 1."""

_EDGES = (2.0 ** np.arange(16)[:, None] * (1 + np.arange(128) / 128)).reshape(-1)[: CELLS + 1] - 1
_POINTS = np.cos(np.pi * (np.arange(4) + 0.5) / 4) / 2 + 0.5
_TO_POWERS = np.linalg.inv(_POINTS[:, None] ** np.arange(4))


def tabulate(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, float]:
    """The table of an elementwise function of float64 margins, and its largest error in units of `TOLERANCE`.

    Returns:
        (2 · CELLS, 4) coefficients in float32, negative margins first, lowest power first. They multiply powers of |Δ| minus the lower end.
    """
    tables, worst = [], 0.0
    scale = float(np.abs(_called(function, np.linspace(-1.0, 1.0, 33))).max())
    for sign in (-1.0, 1.0):
        low, width = _EDGES[:-1, None], np.diff(_EDGES)[:, None]
        values = _called(function, sign * (low + width * _POINTS))
        powers = values @ _TO_POWERS.T / width ** np.arange(4)
        powers[:, 0] = _called(function, sign * low)[:, 0]
        powers[-1, 1] = (_called(function, sign * _EDGES[-1:]) - powers[-1, 0]).item() / width[-1].item()
        powers[-1, 2:] = 0.0
        kept = powers.astype(np.float32)
        steps = width[:-1] * np.linspace(0.05, 0.95, 5)
        tabulated = (kept[:-1, None].astype(np.float64) * steps[..., None] ** np.arange(4)).sum(-1)
        truth = _called(function, sign * (low[:-1] + steps))
        error = np.abs(tabulated - truth) / (np.abs(truth) + scale + np.finfo(np.float32).tiny)
        worst = max(worst, float(np.nan_to_num(error, nan=np.inf).max()))
        tables.append(torch.from_numpy(kept))
    return torch.cat(tables), worst / TOLERANCE


def _called(function: Callable[[Tensor], Tensor], margins: Floats) -> Floats:
    with torch.no_grad():
        return function(torch.from_numpy(margins)).numpy()
