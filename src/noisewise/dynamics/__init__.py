"""Dynamics: what happened during training, read from a run folder.

`find_runs` finds run folders. `Record` reads the margins and predictions of all training examples, one epoch at a time. `Dynamics` turns
them into the papers' quantities. `split_estimate` estimates which labels are wrong if the truth is not known. `underfitting` warns before
training that a loss will hardly learn, and `unlearned_classes` finds the classes that were not learned.
"""

from noisewise.dynamics._dynamics import Dynamics, Histograms, number_data_sets, with_original_settings
from noisewise.dynamics._estimate import Estimate, split_estimate
from noisewise.dynamics._measures import (
    MEASURES,
    Measure,
    Spread,
    balance_matters,
    class_accuracies,
    emphasis_at,
    informative_measures,
    over_seeds,
    prefer_finished,
    underfitting,
    unlearned_classes,
    unlearned_sentence,
)
from noisewise.runs import Epoch, Record, find_runs

__all__ = [
    "MEASURES",
    "Dynamics",
    "Epoch",
    "Estimate",
    "Histograms",
    "Measure",
    "Record",
    "Spread",
    "balance_matters",
    "class_accuracies",
    "emphasis_at",
    "find_runs",
    "informative_measures",
    "number_data_sets",
    "over_seeds",
    "prefer_finished",
    "split_estimate",
    "underfitting",
    "unlearned_classes",
    "unlearned_sentence",
    "with_original_settings",
]
