"""What the reference losses are made of: probabilities in float64 and in mpmath, chain rules and integrals.

Like reference.py, this file must not know the library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def label_probabilities(probabilities: Array, labels: Labels) -> Array:
    return probabilities[np.arange(len(labels)), labels]


def one_hot(probabilities: Array, labels: Labels) -> Array:
    hot = np.zeros_like(probabilities)
    hot[np.arange(len(labels)), labels] = 1.0
    return hot


@dataclass(frozen=True)
class Paper:
    """A loss in float64 p-space: functions of scores (N, C), labels (N,) and the hyper-parameters."""

    hyper: tuple[str, ...]
    value: Callable[..., Array]
    gradient: Callable[..., Array]


def of_label(l: Callable[..., Array], dl: Callable[..., Array]) -> Paper:  # noqa: E741
    """A loss of p_y alone: ∂L/∂s_i = l'(p_y)·p_y·(δ_iy − p_i)."""

    def value(scores: Array, labels: Labels, **hyper: Any) -> Array:
        return l(label_probabilities(softmax(scores), labels), **hyper)

    def gradient(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        own = label_probabilities(p, labels)
        return (dl(own, **hyper) * own)[:, None] * (one_hot(p, labels) - p)

    return Paper(tuple(inspect.signature(l).parameters)[1:], value, gradient)


def of_all(l: Callable[..., Array], dl: Callable[..., Array]) -> Paper:  # noqa: E741
    """A loss of all probabilities: ∂L/∂s_i = Σ_j ∂l/∂p_j·p_j·(δ_ij − p_i) = p_i·(∂l/∂p_i − Σ_j p_j ∂l/∂p_j)."""

    def value(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        return l(p, one_hot(p, labels), **hyper)

    def gradient(scores: Array, labels: Labels, **hyper: Any) -> Array:
        p = softmax(scores)
        slope = dl(p, one_hot(p, labels), **hyper)
        return p * (slope - (p * slope).sum(axis=1, keepdims=True))

    return Paper(tuple(inspect.signature(l).parameters)[2:], value, gradient)


def potential(emphasis: Callable[[Array, Array], Array], p: Array) -> Array:
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


def of_margin(value: Callable[..., mpf], emphasis: Callable[..., mpf]) -> Exact:
    return Exact(
        lambda row, label, **hyper: value(row.at(label), **hyper),
        lambda row, label, **hyper: row.along_margin(emphasis(row.at(label), **hyper), label),
        value,
        emphasis,
    )


def exact_potential(emphasis: Callable[[At], mpf], margin: mpf, centres: Sequence[mpf]) -> mpf:
    """−∫_0^Δ w by Gauss-Legendre panels that double in length away from the centres.

    As functions of a complex margin the emphases here are singular only at distance π above and below a centre, so each panel is
    no longer than its distance to the singularities; far out they are constant, which every panel integrates exactly.
    """
    low, high = sorted((mpf(0), margin))
    marks = {centre + sign * step for centre in centres for sign in (-1, 1) for step in (0, *(mpf(2) ** k for k in range(1, 64)))}
    points = [low, *sorted(mark for mark in marks if low < mark < high), high]
    integral = mp.quad(lambda t: emphasis(At.of(t)), points, method="gauss-legendre")
    return -integral if margin > 0 else integral


def fading_centres(saturation: mpf) -> list[mpf]:
    """Where exp(h)·v/(v + saturation) has its singular margins: below and above 0, and where v + saturation is zero."""
    return [mpf(0), mp.log(1 + 1 / saturation)] if saturation > 0 else [mpf(0)]
