"""Slow, independent transcriptions of every loss: what the library's answers are compared with.

Two oracles. `value` and `gradient` are float64 NumPy in p-space, as the papers write the losses: p = softmax(scores), l(p), and the
chain rule by hand; right for moderate scores and any number of classes, wrong where p-space itself fails. `exact_value` and
`exact_gradient` are mpmath, one row at a time, right for any scores: 1 − p is the sum of the other probabilities, log p is a
log1p, and differences that would cancel were removed on paper first; where a sum can still come out small by coincidence (a loss of
more than the margin), the digits double until the answer stands still.

This file must not know the library: it imports nothing from it and shares no formula with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DIGITS = 60  # working digits of the exact oracle; its results keep them, but arithmetic on a result needs `mp.workdps(DIGITS)`


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _own(probabilities: Array, labels: Labels) -> Array:
    return probabilities[np.arange(len(labels)), labels]


def _one_hot(probabilities: Array, labels: Labels) -> Array:
    hot = np.zeros_like(probabilities)
    hot[np.arange(len(labels)), labels] = 1.0
    return hot


@dataclass(frozen=True)
class Paper:
    """A loss in float64 p-space: functions of scores (N, C), labels (N,) and the hyper-parameters."""

    hyper: tuple[str, ...]
    value: Callable[..., Array]
    gradient: Callable[..., Array]


def _of_label(l: Callable[..., Array], dl: Callable[..., Array]) -> Paper:  # noqa: E741
    """A loss of p_y alone: ∂L/∂s_i = l'(p_y)·p_y·(δ_iy − p_i)."""

    def value(scores: Array, labels: Labels, **hyper: Any) -> Array:
        return l(_own(softmax(scores), labels), **hyper)

    def gradient(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        own = _own(p, labels)
        return (dl(own, **hyper) * own)[:, None] * (_one_hot(p, labels) - p)

    return Paper(tuple(inspect.signature(l).parameters)[1:], value, gradient)


def _of_all(l: Callable[..., Array], dl: Callable[..., Array]) -> Paper:  # noqa: E741
    """A loss of all probabilities: ∂L/∂s_i = Σ_j ∂l/∂p_j·p_j·(δ_ij − p_i) = p_i·(∂l/∂p_i − Σ_j p_j ∂l/∂p_j)."""

    def value(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        return l(p, _one_hot(p, labels), **hyper)

    def gradient(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        slope = dl(p, _one_hot(p, labels), **hyper)
        return p * (slope - (p * slope).sum(axis=1, keepdims=True))

    return Paper(tuple(inspect.signature(l).parameters)[2:], value, gradient)


def _potential(emphasis: Callable[[Array, Array], Array], p: Array) -> Array:
    """−∫ of emphasis(p, 1 − p) over the margin, from 0 to the margin of p: 64 panels of 20 Gauss-Legendre nodes."""
    margin = np.log(p / (1 - p))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    places = ((np.arange(64)[:, None] + (nodes + 1) / 2) / 64).ravel()
    t = margin[:, None] * places
    return -margin * (emphasis(1 / (1 + np.exp(-t)), 1 / (1 + np.exp(t))) @ np.tile(weights / 128, 64))


@dataclass(frozen=True)
class At:
    """A margin Δ and what follows from it, each to full relative precision."""

    margin: mpf
    ratio: mpf  # (1 − p)/p = exp(−Δ)

    @classmethod
    def of(cls, margin: mpf) -> At:
        return cls(margin, mp.exp(-margin))

    @cached_property
    def p(self) -> mpf:
        return 1 / (1 + self.ratio)

    @cached_property
    def v(self) -> mpf:
        return self.ratio / (1 + self.ratio)

    @cached_property
    def log_p(self) -> mpf:
        return -mp.log1p(self.ratio)


def sums_of_others(terms: Sequence[mpf]) -> list[mpf]:
    """Σ_{i≠j} terms_i for every j, by sums from the left and from the right: nothing is ever subtracted."""
    left, right = [mpf(0)], [mpf(0)]
    for ahead, behind in zip(terms, reversed(terms), strict=True):
        left.append(left[-1] + ahead)
        right.append(right[-1] + behind)
    return [before + after for before, after in zip(left[:-1], right[-2::-1], strict=True)]


@dataclass(frozen=True)
class Row:
    """One row of scores and its probabilities, with 1 − p_i as the sum of the others."""

    scores: list[mpf]

    @cached_property
    def p(self) -> list[mpf]:
        top = max(self.scores)
        raised = [mp.exp(score - top) for score in self.scores]
        total = mp.fsum(raised)
        return [each / total for each in raised]

    @cached_property
    def v(self) -> list[mpf]:
        return sums_of_others(self.p)

    @cached_property
    def surprise(self) -> list[mpf]:
        """−log p_i."""
        return [mp.log1p(v / p) for p, v in zip(self.p, self.v, strict=True)]

    def at(self, label: int) -> At:
        ratio = self.v[label] / self.p[label]
        return At(-mp.log(ratio), ratio)

    def along_margin(self, emphasis: mpf, label: int) -> list[mpf]:
        """−w·∂Δ/∂s: ∂Δ/∂s_y = 1 and ∂Δ/∂s_j = −p_j/(1 − p_y)."""
        return [-emphasis if j == label else emphasis * p / self.v[label] for j, p in enumerate(self.p)]


@dataclass(frozen=True)
class Exact:
    """A loss in mpmath: functions of a `Row` and a label, and, if it is a function of the margin alone, of an `At`."""

    value: Callable[..., mpf]
    gradient: Callable[..., list[mpf]]
    value_at: Callable[..., mpf] | None = None
    emphasis_at: Callable[..., mpf] | None = None


def _of_margin(value: Callable[..., mpf], emphasis: Callable[..., mpf]) -> Exact:
    return Exact(
        lambda row, label, **hyper: value(row.at(label), **hyper),
        lambda row, label, **hyper: row.along_margin(emphasis(row.at(label), **hyper), label),
        value,
        emphasis,
    )


def _exact_potential(emphasis: Callable[[At], mpf], margin: mpf, centres: Sequence[mpf]) -> mpf:
    """−∫_0^Δ w by Gauss-Legendre panels that double in length away from the centres.

    As functions of a complex margin the emphases here are singular only at distance π above and below a centre, so each panel is
    no longer than its distance to the singularities; far out they are constant, which every panel integrates exactly.
    """
    low, high = sorted((mpf(0), margin))
    marks = {centre + sign * step for centre in centres for sign in (-1, 1) for step in (0, *(mpf(2) ** k for k in range(1, 64)))}
    points = [low, *sorted(mark for mark in marks if low < mark < high), high]
    integral = mp.quad(lambda t: emphasis(At.of(t)), points, method="gauss-legendre")
    return -integral if margin > 0 else integral


def _fading_centres(saturation: mpf) -> list[mpf]:
    """Where exp(h)·v/(v + saturation) has its singular margins: below and above 0, and where v + saturation is zero."""
    return [mpf(0), mp.log(1 + 1 / saturation)] if saturation > 0 else [mpf(0)]


def _gr_value(p: Array, beta: float, lam: float, g: str, saturation: float) -> Array:
    if g == "exp":
        return _potential(lambda p, v: np.exp(beta * p**lam * v) * v / (v + saturation) / 2, p)
    return -beta / 2 * np.log(p) if lam == 0 else beta / 2 * (1 - p**lam) / lam


def _gr_slope(p: Array, beta: float, lam: float, g: str, saturation: float) -> Array:
    l1_norm = np.exp(beta * p**lam * (1 - p)) * (1 - p) / (1 - p + saturation) if g == "exp" else beta * p**lam * (1 - p)
    return -l1_norm / (2 * p * (1 - p))


def _exact_gr_emphasis(at: At, beta: mpf, lam: mpf, g: str, saturation: mpf) -> mpf:
    inside = beta * at.p**lam * at.v
    return mp.exp(inside) * at.v / (at.v + saturation) / 2 if g == "exp" else inside / 2


def _exact_gr_value(at: At, beta: mpf, lam: mpf, g: str, saturation: mpf) -> mpf:
    if g == "exp":
        return _exact_potential(lambda t: _exact_gr_emphasis(t, beta, lam, g, saturation), at.margin, _fading_centres(saturation))
    return beta / 2 * (-at.log_p if lam == 0 else -mp.expm1(lam * at.log_p) / lam)


def _js_value(p: Array, hot: Array, pi: float) -> Array:
    """H(m) − π H(e_y) − (1−π) H(p), over −(1−π) log(1−π); H(e_y) = 0."""
    mixture = pi * hot + (1 - pi) * p
    entropies = -(mixture * np.log(mixture)).sum(axis=1) + (1 - pi) * (p * np.log(p)).sum(axis=1)
    return entropies / (-(1 - pi) * np.log(1 - pi))


def _js_slope(p: Array, hot: Array, pi: float) -> Array:
    return (np.log(p) - np.log(pi * hot + (1 - pi) * p)) / -np.log(1 - pi)


def _exact_js_value(at: At, pi: mpf) -> mpf:
    """The classes that are not the label leave H(m) − (1−π)H(p) as −m log m + (1−π)(p log p − v log(1−π)), m = 1 − (1−π)v."""
    rest = 1 - pi
    entropies = -(1 - rest * at.v) * mp.log1p(-rest * at.v) + rest * (at.p * at.log_p - at.v * mp.log1p(-pi))
    return entropies / (-rest * mp.log1p(-pi))


def _focal(p: Array, q: float) -> Array:
    return -((1 - p) ** q) * np.log(p)


def _focal_slope(p: Array, q: float) -> Array:
    return q * (1 - p) ** (q - 1) * np.log(p) - (1 - p) ** q / p


def _share(part: Array, hot: Array) -> Array:
    """part_y / Σ_i part_i."""
    return (part * hot).sum(axis=1) / part.sum(axis=1)


def _share_slope(part: Array, slope: Array, hot: Array) -> Array:
    """The quotient rule, where ∂part_i/∂p_i = slope_i."""
    total = part.sum(axis=1, keepdims=True)
    own = (part * hot).sum(axis=1, keepdims=True)
    return slope * (hot * total - own) / total**2


def _room(p: Array, q: float, p_min: float) -> Array:
    """A − ℓ_k of the active negative loss: how far below its ceiling each focal loss is."""
    return _focal(np.float64(p_min), q) - _focal(np.maximum(p, p_min), q)


def _anl_value(p: Array, hot: Array, alpha: float, beta: float, q: float, p_min: float) -> Array:
    return alpha * _share(_focal(p, q), hot) + beta * (1 - _share(_room(p, q, p_min), hot))


def _anl_slope(p: Array, hot: Array, alpha: float, beta: float, q: float, p_min: float) -> Array:
    slope = _focal_slope(p, q)
    negative = _share_slope(_room(p, q, p_min), np.where(p > p_min, -slope, 0.0), hot)
    return alpha * _share_slope(_focal(p, q), slope, hot) - beta * negative


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


def _exact_nfl_value(row: Row, label: int, q: mpf) -> mpf:
    part, _ = _exact_focal(row, q)
    return part[label] / mp.fsum(part)


def _exact_nfl_gradient(row: Row, label: int, q: mpf) -> list[mpf]:
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


def _exact_anl_value(row: Row, label: int, alpha: mpf, beta: mpf, q: mpf, p_min: mpf) -> mpf:
    room, _ = _exact_room(row, q, p_min)
    return alpha * _exact_nfl_value(row, label, q) + beta * sums_of_others(room)[label] / mp.fsum(room)


def _exact_anl_gradient(row: Row, label: int, alpha: mpf, beta: mpf, q: mpf, p_min: mpf) -> list[mpf]:
    """1 − room_y/Σ room: the room's pull has the opposite sign, and so has the share, so the share's gradient serves as it is."""
    room, pull = _exact_room(row, q, p_min)
    crossed = [pull[label] * each - towards * room[label] for each, towards in zip(room, pull, strict=True)]
    negative = _exact_share_gradient(row, label, room, pull, crossed)
    return [alpha * n + beta * nn for n, nn in zip(_exact_nfl_gradient(row, label, q), negative, strict=True)]


def _exact_mse_gradient(row: Row, label: int) -> list[mpf]:
    """−2 p_y Σ_{i≠y} p_i (v_y + p_i), and 2 p_j (2 p_y p_j + Σ_{i≠y,j} p_i (p_y + p_j − p_i)) with v_y written out as the others' sum."""
    p, v, others = row.p, row.v, [i for i in range(len(row.p)) if i != label]

    def balance(i: int, j: int) -> mpf:
        """p_y + p_j − p_i, where a tie with the larger of the two must leave the smaller one whole."""
        return max(p[label], p[j]) - p[i] + min(p[label], p[j])

    gradient = [2 * p[j] * (2 * p[label] * p[j] + mp.fsum(p[i] * balance(i, j) for i in others if i != j)) for j in range(len(p))]
    gradient[label] = -2 * p[label] * mp.fsum(p[i] * (v[label] + p[i]) for i in others)
    return gradient


def _smooth(p: Array, hot: Array, alpha: float) -> Array:
    return (1 - alpha) * hot + alpha / p.shape[1]


def _exact_ls_value(row: Row, label: int, alpha: mpf) -> mpf:
    return (1 - alpha) * row.surprise[label] + alpha / len(row.p) * mp.fsum(row.surprise)


def _exact_ls_gradient(row: Row, label: int, alpha: mpf) -> list[mpf]:
    classes = len(row.p)
    return [alpha * (classes - 1) / classes - row.v[j] if j == label else p - alpha / classes for j, p in enumerate(row.p)]


def _prior(p: Array, prior: Sequence[float] | None) -> Array:
    return np.full(p.shape[1], 1 / p.shape[1]) if prior is None else np.asarray(prior, dtype=np.float64)


def _exact_prior(row: Row, prior: Sequence[mpf] | None) -> tuple[int, Sequence[mpf]]:
    """The prior as (divisor, weights), because 1/C is not a binary fraction."""
    return (len(row.p), [mpf(1)] * len(row.p)) if prior is None else (1, prior)


def _largest_first(terms: Iterable[mpf]) -> mpf:
    """The sum, in the order in which ties cancel before small terms are added."""
    return mp.fsum(sorted(terms, key=abs, reverse=True))


def _exact_cr_value(row: Row, label: int, beta: mpf, prior: Sequence[mpf] | None) -> mpf:
    divisor, weights = _exact_prior(row, prior)
    shares = [(divisor if i == label else 0) - beta * weight for i, weight in enumerate(weights)]
    return _largest_first(share * each for share, each in zip(shares, row.surprise, strict=True)) / divisor


def _exact_cr_gradient(row: Row, label: int, beta: mpf, prior: Sequence[mpf] | None) -> list[mpf]:
    """A linear form in p, since 1 − p_j is the sum of the others."""
    divisor, weights = _exact_prior(row, prior)
    elsewhere = sums_of_others(weights)

    def slope(j: int) -> mpf:
        own, other = (0, -divisor) if j == label else (divisor, 0)
        terms = [p * (own - beta * elsewhere[j] if i == j else other + beta * weights[j]) for i, p in enumerate(row.p)]
        return _largest_first(terms) / divisor

    return [slope(j) for j in range(len(row.p))]


def _top_bonus(p: Array, hot: Array, m: float) -> Array:
    """p_y, raised by m where the label is the (first) arg max."""
    return (p * hot).sum(axis=1) + m * _own(hot, p.argmax(axis=1))


def _is_top(row: Row, label: int) -> bool:
    return row.scores.index(max(row.scores)) == label


def _exact_eps_value(row: Row, label: int, m: mpf) -> mpf:
    return -mp.log1p(-row.v[label] / (1 + m)) if _is_top(row, label) else row.surprise[label] + mp.log1p(m)


def _exact_eps_gradient(row: Row, label: int, m: mpf) -> list[mpf]:
    p, v = row.p[label], row.v[label]
    return row.along_margin(p * v / (p + m) if _is_top(row, label) else v, label)


def _clip_value(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], tau: float) -> Array:
    norm = np.linalg.norm(scores, axis=1, keepdims=True)
    return value(inner[0], scores * tau / np.maximum(norm, tau), labels, **inner[1])


def _clip_gradient(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], tau: float) -> Array:
    norm = np.linalg.norm(scores, axis=1, keepdims=True)
    length = np.maximum(norm, tau)
    upstream = gradient(inner[0], scores * tau / length, labels, **inner[1])
    direction = scores / length
    clipped = tau / length * (upstream - direction * (direction * upstream).sum(axis=1, keepdims=True))
    return np.where(norm > tau, clipped, upstream)


def _exact_clip(row: Row, tau: mpf) -> tuple[mpf, Row]:
    norm = mp.sqrt(mp.fsum(score**2 for score in row.scores))
    return norm, Row([score * tau / norm for score in row.scores]) if norm > tau else row


def _exact_clip_value(row: Row, label: int, inner: tuple[str, dict[str, Any]], tau: mpf) -> mpf:
    _, clipped = _exact_clip(row, tau)
    return LOSSES[inner[0]].exact.value(clipped, label, **_exactly(inner[1]))


def _exact_clip_gradient(row: Row, label: int, inner: tuple[str, dict[str, Any]], tau: mpf) -> list[mpf]:
    """τ/‖s‖³·Σ_k s_k (s_k g_j − s_j g_k): the projection off the direction of s, as pairs."""
    norm, clipped = _exact_clip(row, tau)
    upstream = LOSSES[inner[0]].exact.gradient(clipped, label, **_exactly(inner[1]))
    if clipped is row:
        return upstream
    pairs = list(zip(row.scores, upstream, strict=True))
    return [tau / norm**3 * mp.fsum(s_k * (s_k * g_j - s_j * g_k) for s_k, g_k in pairs) for s_j, g_j in pairs]


Matrix = tuple[tuple[float, ...], ...]


def _forward_scores(scores: Array, labels: Labels, matrix: Matrix) -> tuple[Array, Array, Array]:
    """p, the probability p′ = Σ_i p_i T_iy of the given label, and the two-class scores whose margin is that of p′."""
    p = softmax(scores)
    given = (p * np.array(matrix)[:, labels].T).sum(axis=1)
    return p, given, np.stack([np.log(given / (1 - given)), np.zeros_like(given)], axis=1)


def _forward_value(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> Array:
    return value(inner[0], _forward_scores(scores, labels, matrix)[2], np.zeros_like(labels), **inner[1])


def _forward_gradient(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> Array:
    """dL/ds_i = −w ∂Δ′/∂s_i with ∂p′/∂s_i = p_i (T_iy − p′) and Δ′ = log(p′/(1 − p′))."""
    p, given, moved = _forward_scores(scores, labels, matrix)
    slope = gradient(inner[0], moved, np.zeros_like(labels), **inner[1])[:, 0] / (given * (1 - given))
    return slope[:, None] * p * (np.array(matrix)[:, labels].T - given[:, None])


def _exact_forward(row: Row, label: int, matrix: Matrix) -> tuple[At, list[mpf], list[mpf]]:
    """The margin of the given label, and what every class adds to p′ and to 1 − p′."""
    share = [mpf(kept[label]) for kept in matrix]
    given = [p * t for p, t in zip(row.p, share, strict=True)]
    other = [p * (1 - t) for p, t in zip(row.p, share, strict=True)]
    ratio = mp.fsum(other) / mp.fsum(given)
    return At(-mp.log(ratio), ratio), given, other


def _exact_forward_value(row: Row, label: int, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> mpf:
    return _margin_form(inner[0], "value_at")(_exact_forward(row, label, matrix)[0], **_exactly(inner[1]))


def _exact_forward_gradient(row: Row, label: int, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> list[mpf]:
    at, given, other = _exact_forward(row, label, matrix)
    emphasis = _margin_form(inner[0], "emphasis_at")(at, **_exactly(inner[1]))
    return [-emphasis * (g / mp.fsum(given) - o / mp.fsum(other)) for g, o in zip(given, other, strict=True)]


def _moved(move: Callable[..., tuple[Any, Any]]) -> Reference:
    """A curriculum that moves the margin by an affine map: w becomes w(rate·Δ + offset), V becomes V(rate·Δ + offset)/rate.

    In p-space the inner loss is taken at the two-class scores (moved margin, 0), whose margin is the first of them.
    """

    def moved_scores(p: Array, tau: float, expected: float) -> Array:
        rate, offset = move(tau, expected)
        return np.stack([rate * np.log(p / (1 - p)) + offset, np.zeros_like(p)], axis=1)

    def moved_value(p: Array, inner: tuple[str, dict[str, Any]], tau: float, expected: float) -> Array:
        labels = np.zeros(len(p), dtype=np.int64)
        return value(inner[0], moved_scores(p, tau, expected), labels, **inner[1]) / move(tau, expected)[0]

    def moved_slope(p: Array, inner: tuple[str, dict[str, Any]], tau: float, expected: float) -> Array:
        labels = np.zeros(len(p), dtype=np.int64)
        return gradient(inner[0], moved_scores(p, tau, expected), labels, **inner[1])[:, 0] / (p * (1 - p))

    def exact_at(at: At, tau: mpf, expected: mpf) -> tuple[mpf, At]:
        rate, offset = move(tau, expected)
        return rate, At.of(rate * at.margin + offset)

    def exact_value(at: At, inner: tuple[str, dict[str, Any]], tau: mpf, expected: mpf) -> mpf:
        rate, moved = exact_at(at, tau, expected)
        return _margin_form(inner[0], "value_at")(moved, **_exactly(inner[1])) / rate

    def exact_emphasis(at: At, inner: tuple[str, dict[str, Any]], tau: mpf, expected: mpf) -> mpf:
        _, moved = exact_at(at, tau, expected)
        return _margin_form(inner[0], "emphasis_at")(moved, **_exactly(inner[1]))

    return Reference(_of_label(moved_value, moved_slope), _of_margin(exact_value, exact_emphasis))


@dataclass(frozen=True)
class Reference:
    """One loss, twice: as its paper writes it in float64, and exactly."""

    paper: Paper
    exact: Exact

    @property
    def hyper(self) -> tuple[str, ...]:
        """The names of the hyper-parameters; none has a default here."""
        return self.paper.hyper

    @property
    def is_margin(self) -> bool:
        """Whether the loss is a function of the margin alone."""
        return self.exact.emphasis_at is not None


LOSSES: dict[str, Reference] = {
    "ce": Reference(
        _of_label(lambda p: -np.log(p), lambda p: -1 / p),
        _of_margin(lambda at: -at.log_p, lambda at: at.v),
    ),
    # Lin et al. 2017.
    "focal": Reference(
        _of_label(_focal, _focal_slope),
        _of_margin(lambda at, q: -(at.v**q) * at.log_p, lambda at, q: at.v**q * (at.v - q * at.p * at.log_p)),
    ),
    # Lin et al. 2017 with the modulator held constant: the gradient is v^q times that of cross entropy.
    "focal_detached": Reference(
        _of_label(lambda p, q: _potential(lambda _, v: v ** (1 + q), p), lambda p, q: -((1 - p) ** q) / p),
        _of_margin(
            lambda at, q: _exact_potential(lambda t: t.v ** (1 + q), at.margin, [mpf(0)]),
            lambda at, q: at.v ** (1 + q),
        ),
    ),
    # Ghosh et al. 2017, in the scale of the IMAE and GR papers: the sum of |p_i − [i = y]|.
    "mae": Reference(
        _of_label(lambda p: 2 * (1 - p), lambda p: np.full_like(p, -2.0)),
        _of_margin(lambda at: 2 * at.v, lambda at: 2 * at.p * at.v),
    ),
    # Wang et al. 2019 (symmetric cross entropy).
    "rce": Reference(
        _of_label(lambda p, A: -A * (1 - p), lambda p, A: np.full_like(p, A)),
        _of_margin(lambda at, A: -A * at.v, lambda at, A: -A * at.p * at.v),
    ),
    "sce": Reference(
        _of_label(
            lambda p, alpha, beta, A: -alpha * np.log(p) - beta * A * (1 - p),
            lambda p, alpha, beta, A: -alpha / p + beta * A,
        ),
        _of_margin(
            lambda at, alpha, beta, A: -alpha * at.log_p - beta * A * at.v,
            lambda at, alpha, beta, A: (alpha - beta * A * at.p) * at.v,
        ),
    ),
    # Zhang & Sabuncu 2018.
    "gce": Reference(
        _of_label(lambda p, q: (1 - p**q) / q, lambda p, q: -(p ** (q - 1))),
        _of_margin(lambda at, q: -mp.expm1(q * at.log_p) / q, lambda at, q: at.p**q * at.v),
    ),
    "truncated_gce": Reference(
        _of_label(
            lambda p, q, kappa: (1 - np.maximum(p, kappa) ** q) / q,
            lambda p, q, kappa: np.where(p > kappa, -(p ** (q - 1)), 0.0),
        ),
        _of_margin(
            lambda at, q, kappa: -mp.expm1(q * (at.log_p if at.p > kappa else mp.log(kappa))) / q,
            lambda at, q, kappa: at.p**q * at.v if at.p > kappa else mpf(0),
        ),
    ),
    # Zhou et al. 2021 (asymmetric loss functions); a − p = (a − 1) + v and a + p = (a + 1) − v.
    "aul": Reference(
        _of_label(lambda p, a, q: ((a - p) ** q - (a - 1) ** q) / q, lambda p, a, q: -((a - p) ** (q - 1))),
        _of_margin(
            lambda at, a, q: (a - 1) ** q * mp.expm1(q * mp.log1p(at.v / (a - 1))) / q,
            lambda at, a, q: at.p * at.v * (a - at.p) ** (q - 1),
        ),
    ),
    "agce": Reference(
        _of_label(lambda p, a, q: ((a + 1) ** q - (a + p) ** q) / q, lambda p, a, q: -((a + p) ** (q - 1))),
        _of_margin(
            lambda at, a, q: -((a + 1) ** q) * mp.expm1(q * mp.log1p(-at.v / (a + 1))) / q,
            lambda at, a, q: at.p * at.v * (a + at.p) ** (q - 1),
        ),
    ),
    "ael": Reference(
        _of_label(lambda p, q: np.exp(-p / q), lambda p, q: -np.exp(-p / q) / q),
        _of_margin(lambda at, q: mp.exp(-at.p / q), lambda at, q: at.p * at.v * mp.exp(-at.p / q) / q),
    ),
    # Feng et al. 2020 (Taylor cross entropy).
    "tce": Reference(
        _of_label(
            lambda p, q: sum((1 - p) ** i / i for i in range(1, q + 1)),
            lambda p, q: -sum((1 - p) ** (i - 1) for i in range(1, q + 1)),
        ),
        _of_margin(
            lambda at, q: mp.fsum(at.v**i / i for i in range(1, int(q) + 1)),
            lambda at, q: at.p * mp.fsum(at.v**i for i in range(1, int(q) + 1)),
        ),
    ),
    # Wang et al. 2019 (IMAE) and 2019 (gradient rescaling), with the saturation of the authors' code.
    "imae": Reference(
        _of_label(
            lambda p, T, saturation: _potential(lambda p, v: np.exp(T * p * v) * v / (v + saturation) / 2, p),
            lambda p, T, saturation: -np.exp(T * p * (1 - p)) / (2 * p * (1 - p + saturation)),
        ),
        _of_margin(
            lambda at, T, saturation: _exact_potential(
                lambda t: mp.exp(T * t.p * t.v) * t.v / (t.v + saturation) / 2, at.margin, _fading_centres(saturation)
            ),
            lambda at, T, saturation: mp.exp(T * at.p * at.v) * at.v / (at.v + saturation) / 2,
        ),
    ),
    "gr": Reference(_of_label(_gr_value, _gr_slope), _of_margin(_exact_gr_value, _exact_gr_emphasis)),
    # Englesson & Azizpour 2021.
    "js": Reference(
        _of_all(_js_value, _js_slope),
        _of_margin(_exact_js_value, lambda at, pi: at.p * at.v * mp.log1p(pi / ((1 - pi) * at.p)) / -mp.log1p(-pi)),
    ),
    # Menon et al. 2020 (partially Huberised cross entropy).
    "phuber_ce": Reference(
        _of_label(
            lambda p, tau: np.where(p > 1 / tau, -np.log(p), -tau * p + np.log(tau) + 1),
            lambda p, tau: np.where(p > 1 / tau, -1 / p, -tau),
        ),
        _of_margin(
            lambda at, tau: -at.log_p if at.p > 1 / tau else mp.log(tau) + 1 - tau * at.p,
            lambda at, tau: at.v if at.p > 1 / tau else tau * at.p * at.v,
        ),
    ),
    # Wang et al. 2024 (ε-softmax).
    "eps_softmax": Reference(
        _of_all(
            lambda p, hot, m: -np.log(_top_bonus(p, hot, m) / (1 + m)),
            lambda p, hot, m: -hot / _top_bonus(p, hot, m)[:, None],
        ),
        Exact(_exact_eps_value, _exact_eps_gradient),
    ),
    # Ma et al. 2020 (normalised losses).
    "nce": Reference(
        _of_all(lambda p, hot: _share(-np.log(p), hot), lambda p, hot: _share_slope(-np.log(p), -1 / p, hot)),
        Exact(
            lambda row, label: _exact_nfl_value(row, label, mpf(0)),
            lambda row, label: _exact_nfl_gradient(row, label, mpf(0)),
        ),
    ),
    "nfl": Reference(
        _of_all(lambda p, hot, q: _share(_focal(p, q), hot), lambda p, hot, q: _share_slope(_focal(p, q), _focal_slope(p, q), hot)),
        Exact(_exact_nfl_value, _exact_nfl_gradient),
    ),
    # Ye et al. 2023 (active negative loss).
    "anl_ce": Reference(
        _of_all(
            lambda p, hot, alpha, beta, p_min: _anl_value(p, hot, alpha, beta, 0.0, p_min),
            lambda p, hot, alpha, beta, p_min: _anl_slope(p, hot, alpha, beta, 0.0, p_min),
        ),
        Exact(
            lambda row, label, alpha, beta, p_min: _exact_anl_value(row, label, alpha, beta, mpf(0), p_min),
            lambda row, label, alpha, beta, p_min: _exact_anl_gradient(row, label, alpha, beta, mpf(0), p_min),
        ),
    ),
    "anl_fl": Reference(_of_all(_anl_value, _anl_slope), Exact(_exact_anl_value, _exact_anl_gradient)),
    "mse": Reference(
        _of_all(lambda p, hot: ((p - hot) ** 2).sum(axis=1), lambda p, hot: 2 * (p - hot)),
        Exact(
            lambda row, label: row.v[label] ** 2 + mp.fsum(p**2 for i, p in enumerate(row.p) if i != label),
            _exact_mse_gradient,
        ),
    ),
    # Szegedy et al. 2016; Wei et al. 2022 (generalised label smoothing: alpha may be negative).
    **dict.fromkeys(
        ("ls", "gls"),
        Reference(
            _of_all(
                lambda p, hot, alpha: -(_smooth(p, hot, alpha) * np.log(p)).sum(axis=1),
                lambda p, hot, alpha: -_smooth(p, hot, alpha) / p,
            ),
            Exact(_exact_ls_value, _exact_ls_gradient),
        ),
    ),
    # Cheng et al. 2021 (confidence regulariser); `prior` is a list, or None for the uniform one.
    "cr": Reference(
        _of_all(
            lambda p, hot, beta, prior: ((beta * _prior(p, prior) - hot) * np.log(p)).sum(axis=1),
            lambda p, hot, beta, prior: (beta * _prior(p, prior) - hot) / p,
        ),
        Exact(_exact_cr_value, _exact_cr_gradient),
    ),
    # Wei et al. 2023 (logit clipping); `inner` is (name, hyper-parameters).
    "logit_clip": Reference(
        Paper(("inner", "tau"), _clip_value, _clip_gradient),
        Exact(_exact_clip_value, _exact_clip_gradient),
    ),
    # Patrini et al. 2017 (forward correction); `inner` is (name, hyper-parameters) of a loss of the margin alone, `matrix` has T[i][j].
    "forward": Reference(
        Paper(("inner", "matrix"), _forward_value, _forward_gradient),
        Exact(_exact_forward_value, _exact_forward_gradient),
    ),
    # The curriculum paper, section 5.1.1; `inner` is (name, hyper-parameters) of a loss of the margin alone, `expected` is E[Δ].
    "scaled": _moved(lambda tau, expected: (tau / abs(expected), 0)),
    "shifted": _moved(lambda tau, expected: (1, abs(expected) - tau)),
}


def _exactly(hyper: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters as mpf, so that 1 − q or 1/tau is not first rounded to float64."""

    def exactly(setting: Any) -> Any:
        if isinstance(setting, (int, float, mpf)):
            return mpf(setting)
        return [mpf(each) for each in setting] if isinstance(setting, list) else setting

    return {key: exactly(setting) for key, setting in hyper.items()}


def _margin_form(name: str, which: str) -> Callable[..., mpf]:
    form: Callable[..., mpf] | None = getattr(LOSSES[name].exact, which)
    if form is None:
        raise ValueError(f"{name} is not a function of the margin alone: use exact_value and exact_gradient.")
    return form


def value(name: str, scores: Array, labels: Labels, **hyper: Any) -> Array:
    """The loss of each row, float64, in p-space.

    Example:
        >>> value("gce", np.array([[1.0, 0.0, -1.0]]), np.array([0]), q=1.0).round(6)
        array([0.334759])
    """
    return LOSSES[name].paper.value(scores, labels, **hyper)


def gradient(name: str, scores: Array, labels: Labels, **hyper: Any) -> Array:
    """The gradient of each row's loss with respect to its scores, (N, C) float64, in p-space."""
    return LOSSES[name].paper.gradient(scores, labels, **hyper)


def _settled(compute: Callable[[], list[mpf]], rows: Sequence[Sequence[float | mpf]]) -> list[mpf]:
    """What `compute` gives once twice the digits change nothing in the first forty, or the scores' range can hide no more of them."""
    reach = max(max(row) - min(row) for row in rows)
    digits, enough = DIGITS, DIGITS + 2 * reach / math.log(10)
    with mp.workdps(digits):
        now = compute()
    while digits < enough:
        digits *= 2
        with mp.workdps(digits):
            before, now = now, compute()
            if all(abs(old - new) <= mpf(10) ** -40 * abs(new) for old, new in zip(before, now, strict=True)):
                break
    return now


def exact_value(name: str, scores_row: Sequence[float | mpf], label: int, **hyper: Any) -> mpf:
    """The loss of one row of any size; the floats are taken exactly.

    Example:
        >>> with mp.workdps(5):
        ...     print(exact_value("ce", [1e4, 0.0], 0))
        1.1355e-4343
    """
    return _exactly_at(name, scores_row, lambda row, exact: [exact.value(row, label, **_exactly(hyper))])[0]


def exact_gradient(name: str, scores_row: Sequence[float | mpf], label: int, **hyper: Any) -> list[mpf]:
    """The gradient of one row's loss with respect to its scores."""
    return _exactly_at(name, scores_row, lambda row, exact: exact.gradient(row, label, **_exactly(hyper)))


def _exactly_at(name: str, scores_row: Sequence[float | mpf], read: Callable[[Row, Exact], list[mpf]]) -> list[mpf]:
    def compute() -> list[mpf]:
        return read(Row([mpf(score) for score in scores_row]), LOSSES[name].exact)

    if not LOSSES[name].is_margin:
        return _settled(compute, [scores_row])
    with mp.workdps(DIGITS):
        return compute()


def exact_value_at(name: str, margin: float | mpf, **hyper: Any) -> mpf:
    """The value V(Δ) of a loss of the margin alone."""
    with mp.workdps(DIGITS):
        return _margin_form(name, "value_at")(At.of(mpf(margin)), **_exactly(hyper))


def exact_emphasis_at(name: str, margin: float | mpf, **hyper: Any) -> mpf:
    """The emphasis w(Δ) = −dV/dΔ of a loss of the margin alone."""
    with mp.workdps(DIGITS):
        return _margin_form(name, "emphasis_at")(At.of(mpf(margin)), **_exactly(hyper))


def exact_gjs(views: Sequence[Sequence[float | mpf]], label: int, pi: float) -> mpf:
    """Generalised Jensen-Shannon divergence of the label (weight π) and M − 1 views (weight (1−π)/(M−1) each), over Z of `js`.

    Written as π KL(e_y‖m) + Σ_k weight·KL(p_k‖m) with KL(p‖m) = Σ_i m_i φ(p_i/m_i), φ(x) = x log x − x + 1 ≥ 0: no term is negative.
    """
    with mp.workdps(DIGITS):
        rows = [Row([mpf(score) for score in view]) for view in views]
        rest = 1 - mpf(pi)
        weight = rest / len(rows)
        away = weight * mp.fsum(row.v[label] for row in rows)  # 1 − m_y
        total = -pi * mp.log1p(-away)
        for i in range(len(rows[0].p)):
            mixture = 1 - away if i == label else weight * mp.fsum(row.p[i] for row in rows)
            for row in rows:
                times = row.p[i] / mixture
                excess = (away - row.v[i] if i == label else row.p[i] - mixture) / mixture  # times − 1
                total += weight * mixture * (times * (mp.log1p(excess) if 2 * times > 1 else mp.log(times)) - excess)
        return total / (-rest * mp.log(rest))


def exact_gjs_gradient(views: Sequence[Sequence[float | mpf]], label: int, pi: float) -> list[list[mpf]]:
    """The gradient of `exact_gjs` with respect to every view's scores: ∂/∂p_i of a view is weight·log(p_i/m_i)/Z."""
    classes = len(views[0])

    def compute() -> list[mpf]:
        rows = [Row([mpf(score) for score in view]) for view in views]
        rest = 1 - mpf(pi)
        mixture = [rest / len(rows) * mp.fsum(row.p[i] for row in rows) + (pi if i == label else 0) for i in range(classes)]
        slopes = []
        for row in rows:
            pull = [mp.log(p / m) / (-mp.log(rest) * len(rows)) for p, m in zip(row.p, mixture, strict=True)]
            slopes += [p * mp.fsum(row.p[i] * (pull[j] - each) for i, each in enumerate(pull)) for j, p in enumerate(row.p)]
        return slopes

    slopes = _settled(compute, views)
    return [slopes[start : start + classes] for start in range(0, len(slopes), classes)]


# Variance of ‖∂L/∂s‖₁ = 2w under uniform p, as printed: IMAE paper, table 4 of the supplement (IMAE), section 4.1 (MAE, as 0.09);
# CE's 1/3 is that of 2(1 − p). The papers' IMAE has no saturation.
UNIFORM_VARIANCES: tuple[tuple[str, dict[str, float], float], ...] = (
    ("ce", {}, 1 / 3),
    ("mae", {}, 4 / 45),
    *(
        ("imae", {"T": T, "saturation": 0.0}, variance)
        for T, variance in ((16.0, 354.113), (8.0, 4.546), (4.0, 0.299), (2.0, 0.040), (1.0, 0.007), (0.5, 0.002), (0.0, 0.0))
    ),
)


def uniform_variance(name: str, **hyper: Any) -> mpf:
    """Variance of ‖∂L/∂s‖₁ when p is uniform on (0, 1) (IMAE paper, equations 15 and 16)."""
    with mp.workdps(30):

        def moment(power: int) -> mpf:
            return mp.quad(lambda p: (2 * exact_emphasis_at(name, mp.log(p / (1 - p)), **hyper)) ** power, [0, 1], method="gauss-legendre")

        return moment(2) - moment(1) ** 2


# ψ = argmax over p of the emphasis: GR paper, table 1 and definition 1, with λ/(1 + λ) and q/(1 + q) where it prints a range.
FOCI: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("ce", {}, 0.0),
    ("mae", {}, 0.5),
    ("rce", {"A": -4.0}, 0.5),
    ("imae", {"T": 8.0, "saturation": 0.0}, 0.5),
    *(("gce", {"q": q}, q / (1 + q)) for q in (0.3, 0.7, 1.0)),
    *(
        ("gr", {"beta": beta, "lam": lam, "g": g, "saturation": 0.0}, lam / (1 + lam))
        for beta, lam in ((2.0, 0.0), (8.0, 0.5), (12.0, 1.0), (8.0, 2.0))
        for g in ("exp", "identity")
    ),
)


def expected_margin(classes: int, deviation: float = 1.0) -> float:
    """E[Δ] for independent normal scores, approximately: the curriculum paper, equation 4."""
    variance = deviation**2
    return -math.log(classes - 1) - variance / 2 + math.expm1(variance) / (2 * (classes - 1))


# (classes, equation 4 at unit deviation, simulated, |E[Δ]| the curriculum paper used in its table 9).
EXPECTED_MARGINS = ((10, -2.602, -2.617, 2.717), (100, -5.086, -5.084, 5.097))


def printed_nce_bound(scores: Array, labels: Labels) -> Array:
    """2γ(1+ε)·w_CE, which the curriculum paper's equation 3 prints as an upper bound of ‖∂L_NCE/∂s‖₁: it is not one (see `nce_bound`)."""
    gamma, epsilon, difficulty = _nce_factors(scores, labels)
    return 2 * gamma * (1 + epsilon) * difficulty


def nce_bound(scores: Array, labels: Labels) -> Array:
    """2γ(w_CE + ε(k−1)/k) ≥ ‖∂L_NCE/∂s‖₁: equation 3 with its slip mended.

    The derivation (appendix A.5.1) averages w_CE(Δ_i) over the classes i and then writes w_CE(Δ_y) for every one of them;
    the average of 1 − p_i is (k−1)/k.
    """
    gamma, epsilon, difficulty = _nce_factors(scores, labels)
    classes = scores.shape[1]
    return 2 * gamma * (difficulty + epsilon * (classes - 1) / classes)


def _nce_factors(scores: Array, labels: Labels) -> tuple[Array, Array, Array]:
    p = softmax(scores)
    own = _own(p, labels)
    gamma = -1 / np.log(p).sum(axis=1)
    return gamma, -scores.shape[1] * np.log(own) * gamma, 1 - own
