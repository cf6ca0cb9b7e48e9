"""The reference formulas of focal loss, normalised losses and active negative losses.

Like reference.py, this file must not know the library.
"""

from __future__ import annotations

import numpy as np
from mpmath import mp, mpf

from reference_arithmetic import Array, Row, sums_of_others


def focal(p: Array, q: float) -> Array:
    return -((1 - p) ** q) * np.log(p)


def focal_slope(p: Array, q: float) -> Array:
    return q * (1 - p) ** (q - 1) * np.log(p) - (1 - p) ** q / p


def share(part: Array, hot: Array) -> Array:
    """part_y / Σ_i part_i."""
    return (part * hot).sum(axis=1) / part.sum(axis=1)


def share_slope(part: Array, slope: Array, hot: Array) -> Array:
    """The quotient rule, where ∂part_i/∂p_i = slope_i."""
    total = part.sum(axis=1, keepdims=True)
    own = (part * hot).sum(axis=1, keepdims=True)
    return slope * (hot * total - own) / total**2


def _room(p: Array, q: float, p_min: float) -> Array:
    """A − ℓ_k of the active negative loss: how far below its ceiling each focal loss is."""
    return focal(np.float64(p_min), q) - focal(np.maximum(p, p_min), q)


def anl_value(p: Array, hot: Array, alpha: float, beta: float, q: float, p_min: float) -> Array:
    return alpha * share(focal(p, q), hot) + beta * (1 - share(_room(p, q, p_min), hot))


def anl_slope(p: Array, hot: Array, alpha: float, beta: float, q: float, p_min: float) -> Array:
    slope = focal_slope(p, q)
    negative = share_slope(_room(p, q, p_min), np.where(p > p_min, -slope, 0.0), hot)
    return alpha * share_slope(focal(p, q), slope, hot) - beta * negative


def _exact_focal(row: Row, q: mpf) -> tuple[list[mpf], list[mpf]]:
    """f_i = −v_i^q log p_i and its pull a_i: ∂f_i/∂s_j = a_i p_j for j ≠ i and −a_i v_i for j = i."""
    sides = list(zip(row.p, row.v, row.surprise, strict=True))
    return [v**q * surprise for _, v, surprise in sides], [v**q + q * p * surprise * v ** (q - 1) for p, v, surprise in sides]


def _exact_share_gradient(row: Row, label: int, part: list[mpf], pull: list[mpf], crossed: list[mpf]) -> list[mpf]:
    """The gradient of part_y/Σ part_i with every cancelling term gone; crossed_i = pull_y part_i − pull_i part_y.

    The quotient rule gives ∂/∂s_j = Σ_{i≠j} F_i p_j − F_j v_j with F_y ∝ pull_y Σ_{i≠y} part_i and F_i ∝ −pull_i part_y; collected:
    −(p_y part_y Σ_{i≠y} pull_i + v_y pull_y Σ_{i≠y} part_i) for the label, and for another class
    p_j pull_y part_j + v_j pull_j part_y + p_j Σ_{i≠y,j} crossed_i.
    """
    square = mp.fsum(part) ** 2
    rest = sums_of_others([mpf(0) if i == label else each for i, each in enumerate(crossed)])
    gradient = [(row.p[j] * (pull[label] * part[j] + rest[j]) + row.v[j] * pull[j] * part[label]) / square for j in range(len(row.scores))]
    others_pull, others_part = sums_of_others(pull)[label], sums_of_others(part)[label]
    gradient[label] = -(row.p[label] * part[label] * others_pull + row.v[label] * pull[label] * others_part) / square
    return gradient


def exact_nfl_value(row: Row, label: int, q: mpf) -> mpf:
    part, _ = _exact_focal(row, q)
    return part[label] / mp.fsum(part)


def exact_nfl_gradient(row: Row, label: int, q: mpf) -> list[mpf]:
    """Crossed terms: log p_y − log p_i is exactly s_y − s_i, and p_y/v_y − p_i/v_i is (p_y − p_i)/(v_y v_i), of the same sign."""
    part, pull = _exact_focal(row, q)
    p, v, surprise, scores, y = row.p, row.v, row.surprise, row.scores, label
    crossed = [
        (v[y] * v[i]) ** q * (scores[y] - scores[i] + q * surprise[i] * surprise[y] * (p[y] - p[i]) / (v[y] * v[i]))
        for i in range(len(scores))
    ]
    return _exact_share_gradient(row, label, part, pull, crossed)


def _exact_room(row: Row, q: mpf, p_min: mpf) -> tuple[list[mpf], list[mpf]]:
    """A − ℓ_i and its pull, both zero where the clamp at p_min holds."""
    ceiling = -((1 - p_min) ** q) * mp.log(p_min)
    part, pull = _exact_focal(row, q)
    free = [p > p_min for p in row.p]
    return (
        [ceiling - each if active else mpf(0) for each, active in zip(part, free, strict=True)],
        [each if active else mpf(0) for each, active in zip(pull, free, strict=True)],
    )


def exact_anl_value(row: Row, label: int, alpha: mpf, beta: mpf, q: mpf, p_min: mpf) -> mpf:
    room, _ = _exact_room(row, q, p_min)
    return alpha * exact_nfl_value(row, label, q) + beta * sums_of_others(room)[label] / mp.fsum(room)


def exact_anl_gradient(row: Row, label: int, alpha: mpf, beta: mpf, q: mpf, p_min: mpf) -> list[mpf]:
    """1 − room_y/Σ room: the room's pull has the opposite sign, and so has the share, so the share's gradient serves as it is."""
    room, pull = _exact_room(row, q, p_min)
    crossed = [pull[label] * each - towards * room[label] for each, towards in zip(room, pull, strict=True)]
    negative = _exact_share_gradient(row, label, room, pull, crossed)
    return [alpha * n + beta * nn for n, nn in zip(exact_nfl_gradient(row, label, q), negative, strict=True)]
