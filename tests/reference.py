"""Slow, independent implementations of every loss, with which the library is compared.

There are two. `value` and `gradient` use float64 NumPy in p-space, as the papers write the losses: p = softmax(scores), l(p), and the
chain rule by hand. They are right for moderate scores and any number of classes. `exact_value` and `exact_gradient` use mpmath, one
row at a time, and are right for any scores: 1 − p is the sum of the other probabilities, log p is a log1p, and differences that
would cancel were removed on paper. Where a sum can still be small by coincidence, the digits are doubled until the result no longer
changes.

This file must not know the library: it imports nothing from it and shares no formula with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp, mpf

from reference_arithmetic import (
    Array,
    At,
    Exact,
    Labels,
    Paper,
    Row,
    exact_potential,
    fading_centres,
    label_probabilities,
    of_all,
    of_label,
    of_margin,
    potential,
    softmax,
)
from reference_classes import (
    concentrated,
    concentrated_slope,
    exact_concentrated,
    exact_concentrated_slope,
    exact_cr_gradient,
    exact_cr_value,
    exact_ls_gradient,
    exact_ls_value,
    exact_squared,
    exact_squared_slope,
    prior_of,
    smooth,
    squared,
    squared_slope,
)
from reference_normalised import (
    anl_slope,
    anl_value,
    exact_anl_gradient,
    exact_anl_value,
    exact_nfl_gradient,
    exact_nfl_value,
    focal,
    focal_slope,
    share,
    share_slope,
)

DIGITS = 60  # working digits of the exact oracle; its results keep them, but arithmetic on a result needs `mp.workdps(DIGITS)`


def _gr_value(p: Array, beta: float, lam: float, g: str, saturation: float) -> Array:
    if g == "exp":
        return potential(lambda p, v: np.exp(beta * p**lam * v) * v / (v + saturation) / 2, p)
    return -beta / 2 * np.log(p) if lam == 0 else beta / 2 * (1 - p**lam) / lam


def _gr_slope(p: Array, beta: float, lam: float, g: str, saturation: float) -> Array:
    l1_norm = np.exp(beta * p**lam * (1 - p)) * (1 - p) / (1 - p + saturation) if g == "exp" else beta * p**lam * (1 - p)
    return -l1_norm / (2 * p * (1 - p))


def _exact_gr_emphasis(at: At, beta: mpf, lam: mpf, g: str, saturation: mpf) -> mpf:
    inside = beta * at.p**lam * at.v
    return mp.exp(inside) * at.v / (at.v + saturation) / 2 if g == "exp" else inside / 2


def _exact_gr_value(at: At, beta: mpf, lam: mpf, g: str, saturation: mpf) -> mpf:
    if g == "exp":
        return exact_potential(lambda t: _exact_gr_emphasis(t, beta, lam, g, saturation), at.margin, fading_centres(saturation))
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


def _top_bonus(p: Array, hot: Array, m: float) -> Array:
    """p_y, raised by m where the label is the (first) arg max."""
    return (p * hot).sum(axis=1) + m * label_probabilities(hot, p.argmax(axis=1))


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


def _backward_value(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> Array:
    every = [value(inner[0], scores, np.full_like(labels, label), **inner[1]) for label in range(scores.shape[1])]
    return (np.linalg.inv(matrix)[labels] * np.stack(every, axis=1)).sum(axis=1)


def _backward_gradient(scores: Array, labels: Labels, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> Array:
    every = [gradient(inner[0], scores, np.full_like(labels, label), **inner[1]) for label in range(scores.shape[1])]
    return (np.linalg.inv(matrix)[labels][:, :, None] * np.stack(every, axis=1)).sum(axis=1)


def _exact_inverse(label: int, matrix: Matrix) -> list[mpf]:
    """A row of the inverse of T."""
    return list((mp.matrix([[mpf(entry) for entry in row] for row in matrix]) ** -1)[label, :])


def _exact_backward_value(row: Row, label: int, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> mpf:
    every = [LOSSES[inner[0]].exact.value(row, other, **_exactly(inner[1])) for other in range(len(row.p))]
    return mp.fdot(_exact_inverse(label, matrix), every)


def _exact_backward_gradient(row: Row, label: int, inner: tuple[str, dict[str, Any]], matrix: Matrix) -> list[mpf]:
    every = [LOSSES[inner[0]].exact.gradient(row, other, **_exactly(inner[1])) for other in range(len(row.p))]
    return [mp.fdot(_exact_inverse(label, matrix), slopes) for slopes in zip(*every, strict=True)]


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

    return Reference(of_label(moved_value, moved_slope), of_margin(exact_value, exact_emphasis))


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
        of_label(lambda p: -np.log(p), lambda p: -1 / p),
        of_margin(lambda at: -at.log_p, lambda at: at.v),
    ),
    # Lin et al. 2017.
    "focal": Reference(
        of_label(focal, focal_slope),
        of_margin(lambda at, q: -(at.v**q) * at.log_p, lambda at, q: at.v**q * (at.v - q * at.p * at.log_p)),
    ),
    # Lin et al. 2017 with the modulator held constant: the gradient is v^q times that of cross entropy.
    "focal_detached": Reference(
        of_label(lambda p, q: potential(lambda _, v: v ** (1 + q), p), lambda p, q: -((1 - p) ** q) / p),
        of_margin(
            lambda at, q: exact_potential(lambda t: t.v ** (1 + q), at.margin, [mpf(0)]),
            lambda at, q: at.v ** (1 + q),
        ),
    ),
    # Ghosh et al. 2017, in the scale of the IMAE and GR papers: the sum of |p_i − [i = y]|.
    "mae": Reference(
        of_label(lambda p: 2 * (1 - p), lambda p: np.full_like(p, -2.0)),
        of_margin(lambda at: 2 * at.v, lambda at: 2 * at.p * at.v),
    ),
    # Wu et al. 2025 (dynamic fine-tuning): the gradient of cross entropy times p.
    "dft": Reference(
        of_label(lambda p: 1 - p, lambda p: np.full_like(p, -1.0)),
        of_margin(lambda at: at.v, lambda at: at.p * at.v),
    ),
    # Wang et al. 2019 (symmetric cross entropy).
    "rce": Reference(
        of_label(lambda p, A: -A * (1 - p), lambda p, A: np.full_like(p, A)),
        of_margin(lambda at, A: -A * at.v, lambda at, A: -A * at.p * at.v),
    ),
    "sce": Reference(
        of_label(
            lambda p, alpha, beta, A: -alpha * np.log(p) - beta * A * (1 - p),
            lambda p, alpha, beta, A: -alpha / p + beta * A,
        ),
        of_margin(
            lambda at, alpha, beta, A: -alpha * at.log_p - beta * A * at.v,
            lambda at, alpha, beta, A: (alpha - beta * A * at.p) * at.v,
        ),
    ),
    # Zhang & Sabuncu 2018.
    # The power of Li et al. 2025 is the same function, with q above 1.
    **dict.fromkeys(
        ("gce", "power"),
        Reference(
            of_label(lambda p, q: (1 - p**q) / q, lambda p, q: -(p ** (q - 1))),
            of_margin(lambda at, q: -mp.expm1(q * at.log_p) / q, lambda at, q: at.p**q * at.v),
        ),
    ),
    "truncated_gce": Reference(
        of_label(
            lambda p, q, kappa: (1 - np.maximum(p, kappa) ** q) / q,
            lambda p, q, kappa: np.where(p > kappa, -(p ** (q - 1)), 0.0),
        ),
        of_margin(
            lambda at, q, kappa: -mp.expm1(q * (at.log_p if at.p > kappa else mp.log(kappa))) / q,
            lambda at, q, kappa: at.p**q * at.v if at.p > kappa else mpf(0),
        ),
    ),
    # Zhou et al. 2021 (asymmetric loss functions); a − p = (a − 1) + v and a + p = (a + 1) − v.
    "aul": Reference(
        of_label(lambda p, a, q: ((a - p) ** q - (a - 1) ** q) / q, lambda p, a, q: -((a - p) ** (q - 1))),
        of_margin(
            lambda at, a, q: (a - 1) ** q * mp.expm1(q * mp.log1p(at.v / (a - 1))) / q,
            lambda at, a, q: at.p * at.v * (a - at.p) ** (q - 1),
        ),
    ),
    "agce": Reference(
        of_label(lambda p, a, q: ((a + 1) ** q - (a + p) ** q) / q, lambda p, a, q: -((a + p) ** (q - 1))),
        of_margin(
            lambda at, a, q: -((a + 1) ** q) * mp.expm1(q * mp.log1p(-at.v / (a + 1))) / q,
            lambda at, a, q: at.p * at.v * (a + at.p) ** (q - 1),
        ),
    ),
    "ael": Reference(
        of_label(lambda p, q: np.exp(-p / q), lambda p, q: -np.exp(-p / q) / q),
        of_margin(lambda at, q: mp.exp(-at.p / q), lambda at, q: at.p * at.v * mp.exp(-at.p / q) / q),
    ),
    # Wang et al. 2026 (variation-bounded losses); log((1 + a) / (p + a)) = −log(1 − v / (1 + a)).
    "vce": Reference(
        of_label(lambda p, a: np.log(1 + a) - np.log(p + a), lambda p, a: -1 / (p + a)),
        of_margin(lambda at, a: -mp.log1p(-at.v / (1 + a)), lambda at, a: at.p * at.v / (at.p + a)),
    ),
    # Feng et al. 2020 (Taylor cross entropy).
    "tce": Reference(
        of_label(
            lambda p, q: sum((1 - p) ** i / i for i in range(1, q + 1)),
            lambda p, q: -sum((1 - p) ** (i - 1) for i in range(1, q + 1)),
        ),
        of_margin(
            lambda at, q: mp.fsum(at.v**i / i for i in range(1, int(q) + 1)),
            lambda at, q: at.p * mp.fsum(at.v**i for i in range(1, int(q) + 1)),
        ),
    ),
    # Wang et al. 2019 (IMAE) and 2019 (gradient rescaling), with the saturation of the authors' code.
    "imae": Reference(
        of_label(
            lambda p, T, saturation: potential(lambda p, v: np.exp(T * p * v) * v / (v + saturation) / 2, p),
            lambda p, T, saturation: -np.exp(T * p * (1 - p)) / (2 * p * (1 - p + saturation)),
        ),
        of_margin(
            lambda at, T, saturation: exact_potential(
                lambda t: mp.exp(T * t.p * t.v) * t.v / (t.v + saturation) / 2, at.margin, fading_centres(saturation)
            ),
            lambda at, T, saturation: mp.exp(T * at.p * at.v) * at.v / (at.v + saturation) / 2,
        ),
    ),
    "gr": Reference(of_label(_gr_value, _gr_slope), of_margin(_exact_gr_value, _exact_gr_emphasis)),
    # Englesson & Azizpour 2021.
    "js": Reference(
        of_all(_js_value, _js_slope),
        of_margin(_exact_js_value, lambda at, pi: at.p * at.v * mp.log1p(pi / ((1 - pi) * at.p)) / -mp.log1p(-pi)),
    ),
    # Menon et al. 2020 (partially Huberised cross entropy).
    "phuber_ce": Reference(
        of_label(
            lambda p, tau: np.where(p > 1 / tau, -np.log(p), -tau * p + np.log(tau) + 1),
            lambda p, tau: np.where(p > 1 / tau, -1 / p, -tau),
        ),
        of_margin(
            lambda at, tau: -at.log_p if at.p > 1 / tau else mp.log(tau) + 1 - tau * at.p,
            lambda at, tau: at.v if at.p > 1 / tau else tau * at.p * at.v,
        ),
    ),
    # Wang et al. 2024 (ε-softmax).
    "eps_softmax": Reference(
        of_all(
            lambda p, hot, m: -np.log(_top_bonus(p, hot, m) / (1 + m)),
            lambda p, hot, m: -hot / _top_bonus(p, hot, m)[:, None],
        ),
        Exact(_exact_eps_value, _exact_eps_gradient),
    ),
    # Ma et al. 2020 (normalised losses).
    "nce": Reference(
        of_all(lambda p, hot: share(-np.log(p), hot), lambda p, hot: share_slope(-np.log(p), -1 / p, hot)),
        Exact(
            lambda row, label: exact_nfl_value(row, label, mpf(0)),
            lambda row, label: exact_nfl_gradient(row, label, mpf(0)),
        ),
    ),
    "nfl": Reference(
        of_all(lambda p, hot, q: share(focal(p, q), hot), lambda p, hot, q: share_slope(focal(p, q), focal_slope(p, q), hot)),
        Exact(exact_nfl_value, exact_nfl_gradient),
    ),
    # Ye et al. 2023 (active negative loss).
    "anl_ce": Reference(
        of_all(
            lambda p, hot, alpha, beta, p_min: anl_value(p, hot, alpha, beta, 0.0, p_min),
            lambda p, hot, alpha, beta, p_min: anl_slope(p, hot, alpha, beta, 0.0, p_min),
        ),
        Exact(
            lambda row, label, alpha, beta, p_min: exact_anl_value(row, label, alpha, beta, mpf(0), p_min),
            lambda row, label, alpha, beta, p_min: exact_anl_gradient(row, label, alpha, beta, mpf(0), p_min),
        ),
    ),
    "anl_fl": Reference(of_all(anl_value, anl_slope), Exact(exact_anl_value, exact_anl_gradient)),
    "mse": Reference(
        of_all(lambda p, hot: squared(p, hot, 1.0), lambda p, hot: squared_slope(p, hot, 1.0)),
        Exact(lambda row, label: exact_squared(row, label, mpf(1)), lambda row, label: exact_squared_slope(row, label, mpf(1))),
    ),
    # Wang et al. 2025 (joint asymmetric loss).
    "amse": Reference(
        of_all(lambda p, hot, a: squared(p, hot, a) / p.shape[1], lambda p, hot, a: squared_slope(p, hot, a) / p.shape[1]),
        Exact(
            lambda row, label, a: exact_squared(row, label, a) / len(row.p),
            lambda row, label, a: [slope / len(row.p) for slope in exact_squared_slope(row, label, a)],
        ),
    ),
    # Wang et al. 2026 (dynamic entropy fine-tuning).
    "deft": Reference(of_all(concentrated, concentrated_slope), Exact(exact_concentrated, exact_concentrated_slope)),
    # Szegedy et al. 2016; Wei et al. 2022 (generalised label smoothing: alpha may be negative).
    **dict.fromkeys(
        ("ls", "gls"),
        Reference(
            of_all(
                lambda p, hot, alpha: -(smooth(p, hot, alpha) * np.log(p)).sum(axis=1),
                lambda p, hot, alpha: -smooth(p, hot, alpha) / p,
            ),
            Exact(exact_ls_value, exact_ls_gradient),
        ),
    ),
    # Cheng et al. 2021 (confidence regulariser); `prior` is a list, or None for the uniform one.
    "cr": Reference(
        of_all(
            lambda p, hot, beta, prior: ((beta * prior_of(p, prior) - hot) * np.log(p)).sum(axis=1),
            lambda p, hot, beta, prior: (beta * prior_of(p, prior) - hot) / p,
        ),
        Exact(exact_cr_value, exact_cr_gradient),
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
    # The same paper (backward correction); `inner` is any loss.
    "backward": Reference(
        Paper(("inner", "matrix"), _backward_value, _backward_gradient),
        Exact(_exact_backward_value, _exact_backward_gradient),
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
    """The result of `compute` with as many digits as it takes: doubled until the first forty no longer change."""
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
