"""The numbers the papers print: what each is called, in what unit, and how it is read off a run of ours.

It must not know which recipe asks for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Numbers = Mapping[str, float | None]
"""The numbers of an `Outcome`, by name."""


def _times(factor: float, name: str) -> Callable[[Numbers], float | None]:
    def read(numbers: Numbers) -> float | None:
        value = numbers.get(name)
        return None if value is None else factor * value

    return read


@dataclass(frozen=True)
class Metric:
    """A number of the papers' tables.

    Args:
        words: what it is.
        unit: "%", "points", or "" for a plain number.
        read: gives it, in that unit, from the numbers of a run; None where no run of ours has it (yet).
    """

    words: str
    unit: str
    read: Callable[[Numbers], float | None] | None

    def of(self, numbers: Numbers) -> float | None:
        """The number of a run; None where the run has none."""
        return None if self.read is None else self.read(numbers)


METRICS: dict[str, Metric] = {
    "final": Metric("test accuracy at the end", "%", _times(100, "final")),
    "best": Metric("best test accuracy of the run", "%", _times(100, "best")),
    "clean_subset": Metric("training accuracy where labels are right", "%", _times(100, "clean_subset")),
    "noisy_subset": Metric("training accuracy, against the given labels, where they are wrong", "%", _times(100, "noisy_subset")),
    "fitting": Metric("training accuracy against the given labels", "%", _times(100, "fitting")),
    "validation": Metric("training accuracy against the true labels", "%", _times(100, "validation")),
    "hybrid": Metric("accuracy on test and training set together, against true labels", "%", _times(100, "hybrid")),
    "snr": Metric("mean emphasis of right over that of wrong labels", "", _times(1, "snr")),
    "alpha": Metric("mean ‖∂L/∂s‖₁ over training, times 10⁴", "", _times(1e4, "alpha")),
    "diff": Metric("test accuracy less that of the same loss without noise", "points", None),
    "spread": Metric("variance of ‖∂L/∂s‖₁ over uniform p", "", None),
    "retrained": Metric("test accuracy when trained again on corrected labels", "%", _times(100, "retrained")),
    "mAP": Metric("mean average precision of retrieval, as the makers of MARS compute it", "%", _times(100, "map_trapezoid")),
    "CMC-1": Metric("share of queries whose nearest answer is right", "%", _times(100, "cmc1")),
}
