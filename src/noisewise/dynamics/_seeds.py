"""What is told of several runs: a number's mean, how far the seeds lie apart, and which numbers there are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and sample standard deviation, which one seed alone does not have."""

    mean: float
    deviation: float | None


def over_seeds(values: Iterable[float | None]) -> Spread | None:
    """Mean and standard deviation of the numbers that are known; None where none is.

    Example:
        >>> over_seeds([1.0, None, 2.0, 3.0])
        Spread(mean=2.0, deviation=1.0)
        >>> over_seeds([0.5]), over_seeds([None])
        (Spread(mean=0.5, deviation=None), None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def worth_telling(measures: Iterable[str], known: Callable[[str], bool]) -> list[str]:
    """The measures that are known of some run; labels learned, right or wrong, are left out where right and wrong are told apart.

    Example:
        >>> worth_telling(["final", "fitting", "clean_subset"], lambda name: name != "final")
        ['clean_subset']
    """
    found = list(filter(known, measures))
    return [name for name in found if name != "fitting" or "clean_subset" not in found]
