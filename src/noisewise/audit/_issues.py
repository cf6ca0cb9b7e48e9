"""Where the line is drawn, without a single label known to be right: which labels are doubtful, and how many may be wrong.

This module knows beliefs. It must not know runs, records or classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noisewise.arrays import Flags, Floats
from noisewise.dynamics import split_estimate

_LEAST = 1e-3  # keeps the order of the labels that nearly surely belong to the upper group


class Line(NamedTuple):
    """Which labels lie on which side, and how sure that is.

    Args:
        quality: one minus the chance that the label is wrong; NaN where there is no belief.
        is_issue: the labels that are probably wrong.
        interval: of the number of wrong labels.
    """

    quality: Floats
    is_issue: Flags
    interval: tuple[float, float]


def draw_line(belief: Floats, against: Flags, mistakes: float = 0.0) -> Line:
    """Tell doubtful labels from the others.

    Formula:
        low = P(the lower of two normal distributions of beliefs | belief), and at least 0.001: nothing is beyond doubt
        chance = low · (1 − belief),  quality = 1 − chance
        doubtful if chance > ½ and another class is more probable

    Either factor alone claims too much: two groups are found whether or not there are two, and a model that is unsure of
    everything believes little. The interval spans estimates of the number of wrong labels that err in different ways (how many are
    doubtful, how many another class beats, Σ chance, and Σ low where that group is believed less than not; and how many another class
    would beat if the model made no more mistakes here than where the labels are right) and two standard deviations of a binomial
    count more.

    Args:
        belief: how far the given label is believed, from 0 to 1; NaN for an example nothing is known of.
        against: whether another class is more probable than the given one.
        mistakes: the share of right labels the model does not predict, where that was measured.

    Example:
        >>> beliefs = np.array([0.9, 0.8, 0.9, 0.1, np.nan])
        >>> line = draw_line(beliefs, beliefs < 0.5)
        >>> line.is_issue, line.quality.round(2)
        (array([False, False, False, True, False]), array([1. , 1. , 1. , 0.1, nan]))

    Reference:
        Arazo et al., Unsupervised label noise modeling and loss correction, ICML 2019 (the two groups).
    """
    known = ~np.isnan(belief)
    low = _in_lower_group(belief, known)
    chance = low * (1 - belief)
    doubtful = known & against & (chance > 0.5)
    number, expected, grouped = int(known.sum()), float(chance[known].sum()), float(low[known].sum())
    beaten = float(np.count_nonzero(known & against))
    estimates = [float(np.count_nonzero(doubtful)), beaten, expected, max(0.0, beaten - mistakes * number) / max(1 - mistakes, _LEAST)]
    if expected > grouped / 2:  # the mean belief in the lower group is below ½
        estimates.append(grouped)
    return Line(1 - chance, doubtful, _span(estimates, number))


def _in_lower_group(belief: Floats, known: Flags) -> Floats:
    """How probably each belongs to the lower of two groups; where all are alike there is one group, and all belong to it."""
    if len(np.unique(belief[known])) < 2:
        return np.ones(len(belief))
    return _LEAST + (1 - _LEAST) * split_estimate(belief).noisy


def _span(estimates: list[float], number: int) -> tuple[float, float]:
    low, high = min(estimates), max(estimates)
    below, above = (2 * math.sqrt(max(0.0, count * (1 - count / max(1, number)))) for count in (low, high))
    return max(0.0, low - below), min(float(number), high + above)
