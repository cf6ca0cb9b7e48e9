"""Estimate which labels are wrong from margins alone, with a mixture of two normal distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise.arrays import Floats
from noisewise.errors import invalid_parameter

_GROUPS = 8192  # sorted values are put into this many groups of equal size, so that EM costs the same for any number of values
_VARIANCE = 1e-6  # the smallest variance of a component, as a share of the total, so that it cannot collapse onto one value
_GAIN = 1e-10
_ROUNDS = 2000


@dataclass(frozen=True)
class Estimate:
    """An estimate of which labels are wrong, from margins alone. Two groups are found even if there is only one.

    Args:
        noisy: the probability that each example belongs to the group of low margins; NaN if it has no margin.
        rate: the estimated share of wrong labels.
        means: the means of the low and the high group.
        deviations: the standard deviations of the two groups.
    """

    noisy: Floats
    rate: float
    means: tuple[float, float]
    deviations: tuple[float, float]

    @property
    def separation(self) -> float:
        """How far apart the groups are, in standard deviations (Ashman's D). Do not trust the split below 2."""
        return (self.means[1] - self.means[0]) / math.sqrt((self.deviations[0] ** 2 + self.deviations[1] ** 2) / 2)

    @property
    def clear(self) -> bool:
        """Whether the groups are far enough apart to trust the split."""
        return self.separation > 2

    def __str__(self) -> str:
        doubt = "" if self.clear else ", and the two groups are not clearly separated"
        return f"estimated from margins, not measured{doubt}: {100 * self.rate:.1f} % of the labels are wrong"


class _Mixture(NamedTuple):
    """Two normal distributions: shares, means and variances, the low one first."""

    share: Floats
    mean: Floats
    variance: Floats

    def log_density(self, values: Floats) -> Floats:
        """The log density of each component, times its share: (2, N), up to a constant."""
        return np.asarray(
            (np.log(self.share) - np.log(self.variance) / 2)[:, None] - (values - self.mean[:, None]) ** 2 / (2 * self.variance[:, None])
        )


def split_estimate(values: Any) -> Estimate:
    """Estimate which examples have wrong labels: those whose margins belong to the lower of two groups.

    Formula:
        density of the values = π N(μ₀, σ₀²) + (1 − π) N(μ₁, σ₁²),  μ₀ < μ₁
        P(noisy | value) = π N(value; μ₀, σ₀²) / density,  never rising with the value

    The mixture is fitted by expectation maximisation, which starts from the two groups of least variance and is deterministic. The tails of
    a wide component also reach beyond the other one; there the probability is kept constant.

    Args:
        values: one per example, such as the area under the margin; NaN if it has none.

    Returns:
        The probabilities, the estimated noise rate and the two groups.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> estimate = split_estimate(np.concatenate([rng.normal(-3, 1, 400), rng.normal(3, 1, 600)]))
        >>> print(estimate)
        estimated from margins, not measured: 40.1 % of the labels are wrong
        >>> estimate.noisy[[0, -1]].round(2)
        array([1., 0.])

    Reference:
        Arazo et al., Unsupervised label noise modeling and loss correction, ICML 2019 (a mixture of losses).
    """
    given = np.asarray(values, dtype=np.float64)
    kept = np.sort(given[np.isfinite(given)])
    if given.ndim != 1 or not len(kept) or kept[0] == kept[-1]:
        got = f"shape {given.shape} with {len(np.unique(kept))} different finite numbers"
        raise invalid_parameter("values", "split_estimate", "one row with at least two different finite numbers", got)
    centre, scale = kept.mean(), kept.std()
    mixture = _fitted(*_grouped((kept - centre) / scale))
    known = ~np.isnan(given)
    inside = np.clip(given[known], kept[0], kept[-1])  # treat ±inf as the largest finite value
    noisy = np.full(len(given), np.nan)
    noisy[known] = _falling_probability(mixture, (inside - centre) / scale)
    deviations = scale * np.sqrt(mixture.variance)
    means = centre + scale * mixture.mean
    return Estimate(
        noisy=noisy,
        rate=float(mixture.share[0]),
        means=(float(means[0]), float(means[1])),
        deviations=(float(deviations[0]), float(deviations[1])),
    )


def _grouped(ordered: Floats) -> tuple[Floats, Floats, Floats]:
    """Put neighbouring values into groups: the share, the mean and the mean square of each."""
    bounds = np.linspace(0, len(ordered), min(len(ordered), _GROUPS) + 1).astype(np.int64)
    number = np.diff(bounds)
    first, second = (np.add.reduceat(column, bounds[:-1]) / number for column in (ordered, ordered**2))
    return number / len(ordered), first, second


def _fitted(share: Floats, first: Floats, second: Floats) -> _Mixture:
    below, moment = np.cumsum(share)[:-1], np.cumsum(share * first)[:-1]
    between = (moment - below * np.sum(share * first)) ** 2 / (below * (1 - below))  # variance between the two sides of each cut
    low = (np.arange(len(share)) <= np.argmax(between)).astype(np.float64)
    reached = -np.inf
    for _ in range(_ROUNDS):
        mixture = _maximised(low * share, (1 - low) * share, first, second)
        densities = mixture.log_density(first)
        likelihood = float(share @ np.logaddexp(densities[0], densities[1]))
        low = _probability(densities)
        if likelihood - reached < _GAIN:
            break
        reached = likelihood
    return mixture if mixture.mean[0] < mixture.mean[1] else _Mixture(*(column[::-1] for column in mixture))


def _maximised(low: Floats, high: Floats, first: Floats, second: Floats) -> _Mixture:
    belongs = np.stack([low, high])
    share = np.maximum(belongs.sum(1), 1e-12)
    mean = belongs @ first / share
    return _Mixture(share, mean, np.maximum(belongs @ second / share - mean**2, _VARIANCE))


def _probability(densities: Floats) -> Floats:
    """The probability of the first component."""
    return np.asarray(np.exp(densities[0] - np.logaddexp(densities[0], densities[1])))


def _falling_probability(mixture: _Mixture, values: Floats) -> Floats:
    """The probability of the low component, constant beyond the point where the odds would rise again."""
    precision = 1 / mixture.variance
    if precision[0] != precision[1]:
        turn = (precision[0] * mixture.mean[0] - precision[1] * mixture.mean[1]) / (precision[0] - precision[1])
        values = np.maximum(values, turn) if precision[0] > precision[1] else np.minimum(values, turn)
    return _probability(mixture.log_density(values))
