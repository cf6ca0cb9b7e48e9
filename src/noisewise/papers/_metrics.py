"""The numbers that the papers print: what each means, its unit, and how it is computed from the numbers of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from noisewise.dynamics import MEASURES

Numbers = Mapping[str, float | None]
"""The numbers of an `Outcome`, by name."""

RETRAINED = "retrained"
"""The number of a run that was trained again: the test accuracy at the end of the second training."""

RETRIEVAL = ("mAP", "plain_mAP", "CMC-1", "CMC-5")
"""The numbers of networks that are tested by retrieval."""


@dataclass(frozen=True)
class Metric:
    """A number of the papers' tables.

    Args:
        words: what it means.
        unit: "%", "points", or "" for a plain number.
        name: its name among the numbers of a run; None if a run alone does not have it.
        factor: what that number is multiplied by.
    """

    words: str
    unit: str
    name: str | None = None
    factor: float = 100

    def of(self, numbers: Numbers) -> float | None:
        """The number of a run, or None if the run does not have it."""
        value = None if self.name is None else numbers.get(self.name)
        return None if value is None else self.factor * value


def _measure(name: str) -> Metric:
    _, meaning, unit = MEASURES[name]
    return Metric(meaning.removesuffix("."), unit, name, 100 if unit == "%" else 1)


METRICS: dict[str, Metric] = {
    **{name: _measure(name) for name in ("final", "best", "clean_subset", "noisy_subset", "fitting")},
    "validation": Metric("Training accuracy against the true labels", "%", "validation"),
    **{name: _measure(name) for name in ("hybrid", "snr")},
    "alpha": Metric("Mean of ‖∂L/∂s‖₁ over all of training, times 10⁴", "", "alpha", 1e4),
    "diff": Metric("Test accuracy minus that of the same loss without noise", "points"),
    "unlearned": Metric("Classes that are predicted less than a tenth as often as they are labels", "", "unlearned", 1),
    "focus": Metric("The p with the largest emphasis", ""),
    "spread": Metric("Variance of ‖∂L/∂s‖₁ over uniform p", ""),
    RETRAINED: Metric("Test accuracy when trained again on corrected labels", "%", RETRAINED),
    "mAP": Metric("Mean average precision of retrieval, as the authors of MARS compute it", "%", "map_trapezoid"),
    "plain_mAP": Metric("Mean average precision of retrieval, without trapezoids", "%", "map"),
    "CMC-1": Metric("Share of queries whose nearest answer is right", "%", "cmc1"),
    "CMC-5": Metric("Share of queries with a right answer among the first five", "%", "cmc5"),
}
