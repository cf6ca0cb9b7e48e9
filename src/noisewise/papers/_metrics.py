"""The numbers the papers print: what each is called, in what unit, and how it is read off a run of ours.

It must not know which recipe asks for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]
"""What `Dynamics.summary` gives."""


def _share(name: str) -> Callable[[Summary], float | None]:
    return lambda summary: None if summary[name] is None else 100 * summary[name]


@dataclass(frozen=True)
class Metric:
    """A number of the papers' tables.

    Args:
        words: what it is.
        unit: "%", "points", or "" for a plain number.
        read: gives it, in that unit, from a run's summary; None where no run of ours has it (yet).
    """

    words: str
    unit: str
    read: Callable[[Summary], float | None] | None

    def of(self, summary: Summary) -> float | None:
        """The number of a run; None where the run has none."""
        return None if self.read is None else self.read(summary)


METRICS: dict[str, Metric] = {
    "final": Metric("test accuracy at the end", "%", _share("final")),
    "best": Metric("best test accuracy of the run", "%", _share("best")),
    "clean_subset": Metric("training accuracy where labels are right", "%", _share("clean_subset")),
    "noisy_subset": Metric("training accuracy, against the given labels, where they are wrong", "%", _share("noisy_subset")),
    "fitting": Metric("training accuracy against the given labels", "%", _share("fitting")),
    "validation": Metric("training accuracy against the true labels", "%", _share("validation")),
    "hybrid": Metric("accuracy on test and training set together, against true labels", "%", _share("hybrid")),
    "snr": Metric("mean emphasis of right over that of wrong labels", "", lambda summary: summary["snr"]),
    "alpha": Metric(
        "mean ‖∂L/∂s‖₁ over training, times 10⁴", "", lambda summary: None if summary["alpha"] is None else 1e4 * summary["alpha"]
    ),
    "diff": Metric("test accuracy less that of the same loss without noise", "points", None),
    "spread": Metric("variance of ‖∂L/∂s‖₁ over uniform p", "", None),
    "retrained": Metric("test accuracy when trained again on corrected labels", "%", None),
    "mAP": Metric("mean average precision of retrieval", "%", None),
    "CMC-1": Metric("share of queries whose nearest answer is right", "%", None),
}
