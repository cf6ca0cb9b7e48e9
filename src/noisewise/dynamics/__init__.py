"""Dynamics: what happened during training, read off a run folder.

`find_runs` finds run folders. `Record` reads the margins and predictions of every training example, one epoch at a time.
`Dynamics` turns them into the papers' quantities. `split_estimate` guesses which labels are wrong where the truth is not known.
`underfitting` says before training that a loss will hardly start, `unlearned_classes` says after it which classes were not learned.
Nothing here knows the engine: a run from another machine is read the same way.
"""

from noisewise.dynamics._compared import as_compared, number_data_sets
from noisewise.dynamics._dynamics import Dynamics, Histograms
from noisewise.dynamics._estimate import Estimate, split_estimate
from noisewise.dynamics._measures import MEASURES, Measure
from noisewise.dynamics._seeds import Spread, finished_or_all, over_seeds, worth_telling
from noisewise.dynamics._unlearned import (
    balance_matters,
    class_accuracies,
    emphasis_among,
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
    "as_compared",
    "balance_matters",
    "class_accuracies",
    "emphasis_among",
    "find_runs",
    "finished_or_all",
    "number_data_sets",
    "over_seeds",
    "split_estimate",
    "underfitting",
    "unlearned_classes",
    "unlearned_sentence",
    "worth_telling",
]
