"""The numbers the papers print: what each means, its unit, and how it is read from the numbers of a run.

It must not know which recipe asks for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noisewise.dynamics import MEASURES

Numbers = Mapping[str, float | None]
"""The numbers of an `Outcome`, by name."""

RETRAINED = "retrained"
"""The number of a run that was trained again: the test accuracy at the end of the second training."""

RETRIEVAL = ("mAP", "CMC-1")
"""The numbers of networks that are tested by retrieval."""


def _times(factor: float, name: str) -> Callable[[Numbers], float | None]:
    def read(numbers: Numbers) -> float | None:
        value = numbers.get(name)
        return None if value is None else factor * value

    return read


@dataclass(frozen=True)
class Metric:
    """A number of the papers' tables.

    Args:
        words: what it means.
        unit: "%", "points", or "" for a plain number.
        read: computes it, in that unit, from the numbers of a run; None where a run alone does not give it.
    """

    words: str
    unit: str
    read: Callable[[Numbers], float | None] | None

    def of(self, numbers: Numbers) -> float | None:
        """The number of a run; None where the run has none."""
        return None if self.read is None else self.read(numbers)


def _measure(name: str) -> Metric:
    """A number that reports show too."""
    _, meaning, unit = MEASURES[name]
    return Metric(meaning.removesuffix("."), unit, _times(100 if unit == "%" else 1, name))


METRICS: dict[str, Metric] = {
    **{name: _measure(name) for name in ("final", "best", "clean_subset", "noisy_subset", "fitting")},
    "validation": Metric("Training accuracy against the true labels", "%", _times(100, "validation")),
    **{name: _measure(name) for name in ("hybrid", "snr")},
    "alpha": Metric("Mean of ‖∂L/∂s‖₁ over all of training, times 10⁴", "", _times(1e4, "alpha")),
    "diff": Metric("Test accuracy minus that of the same loss without noise", "points", None),
    "spread": Metric("Variance of ‖∂L/∂s‖₁ over uniform p", "", None),
    RETRAINED: Metric("Test accuracy when trained again on corrected labels", "%", _times(100, RETRAINED)),
    "mAP": Metric("Mean average precision of retrieval, as the authors of MARS compute it", "%", _times(100, "map_trapezoid")),
    "CMC-1": Metric("Share of queries whose nearest answer is right", "%", _times(100, "cmc1")),
}
