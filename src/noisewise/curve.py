"""The peak, the area and the variance over p of an emphasis curve, which is any function of float64 margins."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from noisewise.potential import REACH, Potential

Curve = Callable[[Tensor], Tensor]


def peak(curve: Curve) -> tuple[float, float]:
    """The p where a curve is largest, and its value there; p is 0 or 1 if the curve only approaches its maximum.

    Example:
        >>> p, height = peak(lambda d: torch.sigmoid(d) * torch.sigmoid(-d))
        >>> p, round(height, 12)
        (0.5, 0.25)
    """
    best, height, step = 0.0, -torch.inf, 0.0
    for reach in (60.0, 1500.0, REACH):  # most curves peak within the first; shifted ones may peak farther out
        d = torch.linspace(-reach, reach, 961, dtype=torch.float64, device="cpu")
        top, value = _largest(curve, d)
        if value > height:
            best, height, step = top, value, float(d[1] - d[0])
    step = max(step, 4.0)  # the maximum may be beyond the last point
    for _ in range(6):
        top, value = _largest(curve, torch.linspace(best - 2 * step, best + 2 * step, 961, dtype=torch.float64, device="cpu"))
        if value > height * (1 + 4e-16):  # more than a rounding error
            best, height = top, value
        step = 4 * step / 960
    ends = curve(torch.tensor([-REACH, REACH], dtype=torch.float64, device="cpu"))
    for p, end in zip((0.0, 1.0), ends.tolist(), strict=True):
        if end >= height * (1 - 1e-12):
            return p, end
    return round(float(torch.tensor(best, dtype=torch.float64, device="cpu").sigmoid()), 7), height


def _largest(curve: Curve, d: Tensor) -> tuple[float, float]:
    values = curve(d)
    top = int(values.argmax())
    return float(d[top]), float(values[top])


def area(curve: Curve) -> float:
    """∫₀¹ of a curve over p.

    Example:
        >>> round(area(lambda d: torch.sigmoid(-d)), 12)  # cross-entropy: ∫ (1 − p) dp
        0.5
    """
    over_margins = Potential(lambda d: curve(d) * torch.sigmoid(d) * torch.sigmoid(-d))
    left, right = over_margins(torch.tensor([-REACH, REACH], dtype=torch.float64, device="cpu")).tolist()
    return float(left - right)


def variance(curve: Curve) -> float:
    """Variance of a curve when p is uniform on [0, 1].

    Example:
        >>> round(variance(lambda d: 2 * torch.sigmoid(-d)), 12)  # ‖∂CE/∂s‖₁ = 2 (1 − p)
        0.333333333333
    """
    mean = area(curve)
    return area(lambda d: (curve(d) - mean) ** 2)
