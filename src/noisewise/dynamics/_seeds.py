"""What is told of several runs: a number's mean, how far the seeds lie apart, and which numbers there are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from noisewise.dynamics._unlearned import balance_matters

Run = TypeVar("Run")


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


def finished_or_all(runs: Sequence[Run], finished: Callable[[Run], bool]) -> list[Run]:
    """The runs an average is over: the finished ones, or all if none is.

    Example:
        >>> finished_or_all([1, 2, 3], lambda run: run > 1), finished_or_all([1, 2], lambda run: False)
        ([2, 3], [1, 2])
    """
    return [run for run in runs if finished(run)] or list(runs)


def worth_telling(measures: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measures that some row has, without those that add nothing.

    Labels learned are left out where all rows have right and wrong labels separately, balanced accuracy where it is within a point of the
    test accuracy in all rows.

    Args:
        measures: their names.
        rows: of runs (numbers), or of averages (mappings with a "mean").

    Example:
        >>> known, unknown = {"final": None, "fitting": 0.6, "clean_subset": 0.9}, {"final": None, "fitting": 0.8, "clean_subset": None}
        >>> worth_telling(known, [known]), worth_telling(known, [known, unknown])
        (['clean_subset'], ['fitting', 'clean_subset'])
        >>> worth_telling(["balanced"], [{"final": 0.95, "kept": None, "balanced": 0.5, "fitting": None}])
        ['balanced']
    """
    needed = {
        "fitting": any(row["fitting"] is not None and row["clean_subset"] is None for row in rows),
        "balanced": any(map(balance_matters, rows)),
    }
    return [name for name in measures if any(row[name] is not None for row in rows) and needed.get(name, True)]
