"""Decide a condition from runs with several seeds: it held, it did not hold, or it is undecided.

A condition has a margin: the number of points by which it is true, negative if it is false. It is computed once for every seed that all
runs of the condition have, so differences between seeds that all runs share do not count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

HELD, FAILED, UNDECIDED, NOT_RUN = "held", "did not hold", "undecided", "not run yet"

SEEDS = 3
"""The number of seeds from which the spread of a margin is estimated."""

_CONFIDENCE = 0.95
_DECISIVE = 10.0
"""The margin, in points, that decides with fewer seeds."""


@dataclass(frozen=True)
class Verdict:
    """Whether a condition held.

    Args:
        words: "held", "did not hold", "undecided" or "not run yet".
        margin: the mean margin over seeds; None without a run.
        half_width: half the width of its 95 % confidence interval; None with fewer than three seeds.
        seeds: the number of seeds.
    """

    words: str
    margin: float | None = None
    half_width: float | None = None
    seeds: int = 0

    def __str__(self) -> str:
        if self.margin is None:
            return self.words
        spread = "" if self.half_width is None else f" ± {self.half_width:.1f}"
        return f"{self.words}: by {self.margin:.1f}{spread}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"


def judge(margins: Sequence[float]) -> Verdict:
    """Judge a condition by its margins, one for each seed.

    With three seeds or more, the confidence interval of the mean margin (Student's t) must not contain 0. With fewer, every margin must
    be above ten points, or every margin below minus ten.

    Example:
        >>> print(judge([2.0, 2.5, 3.0]), judge([2.0, -1.0, 3.0]), sep="; ")
        held: by 2.5 ± 1.2, 3 seeds; undecided: by 1.3 ± 5.2, 3 seeds
        >>> print(judge([-12.0]), judge([8.0]), judge([]), sep="; ")
        did not hold: by -12.0, 1 seed; undecided: by 8.0, 1 seed; not run yet
    """
    if not margins:
        return Verdict(NOT_RUN)
    mean, number = statistics.fmean(margins), len(margins)
    if number < SEEDS:
        words = HELD if min(margins) > _DECISIVE else FAILED if max(margins) < -_DECISIVE else UNDECIDED
        return Verdict(words, mean, None, number)
    half_width = _quantile(number - 1) * statistics.stdev(margins) / math.sqrt(number)
    words = HELD if mean - half_width > 0 else FAILED if mean + half_width < 0 else UNDECIDED
    return Verdict(words, mean, half_width, number)


def overall(verdicts: Sequence[str]) -> str:
    """The verdict on a claim: it held if all its conditions held, and did not hold if one of them did not.

    Example:
        >>> overall(["held", "undecided"]), overall(["held", "did not hold", "not run yet"]), overall(["not run yet"])
        ('undecided', 'did not hold', 'not run yet')
    """
    if FAILED in verdicts:
        return FAILED
    if set(verdicts) <= {HELD, NOT_RUN} and len(set(verdicts)) == 1:
        return verdicts[0]
    return UNDECIDED


def _quantile(freedom: int) -> float:
    """The quantile of Student's t distribution for a two-sided interval."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(freedom, (1 + _CONFIDENCE) / 2))
