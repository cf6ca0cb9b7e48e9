"""The reference formulas of losses with a term for every class: squared errors, DEFT, label smoothing and the confidence regulariser.

Like reference.py, this file must not know the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from mpmath import mp, mpf

from reference_arithmetic import Array, Row, sums_of_others


def squared(p: Array, hot: Array, a: float) -> Array:
    """Σ_i (p_i − a [i = y])²."""
    return ((p - a * hot) ** 2).sum(axis=1)  # type: ignore[no-any-return]


def squared_slope(p: Array, hot: Array, a: float) -> Array:
    return 2 * (p - a * hot)


def exact_squared(row: Row, label: int, a: mpf) -> mpf:
    return (a - 1 + row.v[label]) ** 2 + mp.fsum(p**2 for i, p in enumerate(row.p) if i != label)


def exact_squared_slope(row: Row, label: int, a: mpf) -> list[mpf]:
    """For a = 1 −2 p_y Σ_{i≠y} p_i (v_y + p_i), and 2 p_j (2 p_y p_j + Σ_{i≠y,j} p_i (p_y + p_j − p_i)) with v_y the others' sum.

    The rest of (a − p_y)², which is 2 (a − 1) v_y, adds −2 (a − 1) p_y v_y and 2 (a − 1) p_y p_j.
    """
    p, v, others = row.p, row.v, [i for i in range(len(row.p)) if i != label]

    def balance(i: int, j: int) -> mpf:
        """p_y + p_j − p_i, where a tie with the larger of the two must leave the smaller one whole."""
        return max(p[label], p[j]) - p[i] + min(p[label], p[j])

    def slope(j: int) -> mpf:
        if j == label:
            return -2 * p[label] * (mp.fsum(p[i] * (v[label] + p[i]) for i in others) + (a - 1) * v[label])
        return 2 * p[j] * (2 * p[label] * p[j] + mp.fsum(p[i] * balance(i, j) for i in others if i != j) + (a - 1) * p[label])

    return [slope(j) for j in range(len(p))]


def concentrated(p: Array, hot: Array) -> Array:
    concentration = (p**2).sum(axis=1)
    return (1 - (p * hot).sum(axis=1) ** concentration) / concentration


def concentrated_slope(p: Array, hot: Array) -> Array:
    """The derivative of (1 − p_y^q) / q with q = Σ p² held constant."""
    return -hot * p ** ((p**2).sum(axis=1, keepdims=True) - 1)


def exact_concentrated(row: Row, label: int) -> mpf:
    concentration = mp.fsum(p**2 for p in row.p)
    return -mp.expm1(concentration * row.at(label).log_p) / concentration


def exact_concentrated_slope(row: Row, label: int) -> list[mpf]:
    at = row.at(label)
    return row.along_margin(at.p ** mp.fsum(p**2 for p in row.p) * at.v, label)


def smooth(p: Array, hot: Array, alpha: float) -> Array:
    return (1 - alpha) * hot + alpha / p.shape[1]


def exact_ls_value(row: Row, label: int, alpha: mpf) -> mpf:
    return (1 - alpha) * row.surprise[label] + alpha / len(row.p) * mp.fsum(row.surprise)


def exact_ls_gradient(row: Row, label: int, alpha: mpf) -> list[mpf]:
    classes = len(row.p)
    return [alpha * (classes - 1) / classes - row.v[j] if j == label else p - alpha / classes for j, p in enumerate(row.p)]


def prior_of(p: Array, prior: Sequence[float] | None) -> Array:
    return np.full(p.shape[1], 1 / p.shape[1]) if prior is None else np.asarray(prior, dtype=np.float64)


def _exact_prior(row: Row, prior: Sequence[mpf] | None) -> tuple[int, Sequence[mpf]]:
    """The prior as (divisor, weights), because 1/C is not a binary fraction."""
    return (len(row.p), [mpf(1)] * len(row.p)) if prior is None else (1, prior)


def _largest_first(terms: Iterable[mpf]) -> mpf:
    """The sum, in the order in which ties cancel before small terms are added."""
    return mp.fsum(sorted(terms, key=abs, reverse=True))


def exact_cr_value(row: Row, label: int, beta: mpf, prior: Sequence[mpf] | None) -> mpf:
    divisor, weights = _exact_prior(row, prior)
    shares = [(divisor if i == label else 0) - beta * weight for i, weight in enumerate(weights)]
    return _largest_first(share * each for share, each in zip(shares, row.surprise, strict=True)) / divisor


def exact_cr_gradient(row: Row, label: int, beta: mpf, prior: Sequence[mpf] | None) -> list[mpf]:
    """A linear form in p, since 1 − p_j is the sum of the others."""
    divisor, weights = _exact_prior(row, prior)
    elsewhere = sums_of_others(weights)

    def slope(j: int) -> mpf:
        own, other = (0, -divisor) if j == label else (divisor, 0)
        terms = [p * (own - beta * elsewhere[j] if i == j else other + beta * weights[j]) for i, p in enumerate(row.p)]
        return _largest_first(terms) / divisor

    return [slope(j) for j in range(len(row.p))]
