"""The measures of a run: one table for the report, the command line, the figures and the papers' tables."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """A number that a run is compared by.

    Args:
        title: its name in tables and figures.
        meaning: one sentence.
        unit: "%" for a share between 0 and 1, "" for a plain number.
    """

    title: str
    meaning: str
    unit: str


MEASURES: dict[str, Measure] = {
    "final": Measure("Test, final", "Test accuracy at the end of training.", "%"),
    "balanced": Measure(
        "Test, balanced", "The mean of the test accuracies on every class, so that rare classes count as much as others.", "%"
    ),
    "kept": Measure("Test, kept", "Test accuracy of the model that the run keeps: the best on its held-out share.", "%"),
    "best": Measure("Test, best", "The best test accuracy of any epoch: what an oracle would have stopped at.", "%"),
    "held_out": Measure("Held out", "Accuracy on the examples kept out of training, by their given labels.", "%"),
    "fitting": Measure("Labels learned", "Training accuracy by the given labels, right or wrong.", "%"),
    "clean_subset": Measure("Right labels learned", "Training accuracy on the examples whose labels are right.", "%"),
    "noisy_subset": Measure("Wrong labels learned", "Wrongly labelled training examples predicted as labelled: memorised.", "%"),
    "hybrid": Measure("Hybrid", "Accuracy on the test set and the training set together, against true labels.", "%"),
    "snr": Measure("snr", "Mean emphasis of rightly over that of wrongly labelled examples, over all of training.", ""),
    "alpha": Measure("α", "Mean of ‖∂L/∂s‖₁ over all of training: how hard the loss pulled.", ""),
}
"""The measures by the names of `Dynamics`."""
