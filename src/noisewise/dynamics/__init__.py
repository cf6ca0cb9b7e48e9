"""Dynamics: what happened during training, read off a run folder.

`find_runs` finds run folders. `Record` reads the margins and predictions of every training example, one epoch at a time.
`Dynamics` turns them into the papers' quantities. `split_estimate` guesses which labels are wrong where the truth is not known.
`underfitting` says before training that a loss will hardly start, `unlearned_classes` says after it which classes were not learned.
Nothing here knows the engine: a run from another machine is read the same way.
"""

from noisewise.dynamics._classes import class_accuracies, unlearned_classes, unlearned_sentence
from noisewise.dynamics._dynamics import Dynamics, Histograms
from noisewise.dynamics._estimate import Estimate, split_estimate
from noisewise.dynamics._find_runs import find_runs
from noisewise.dynamics._measures import MEASURES, Measure
from noisewise.dynamics._record import Epoch, Record
from noisewise.dynamics._seeds import Spread, finished_or_all, over_seeds, worth_telling
from noisewise.dynamics._slope import emphasis_among
from noisewise.dynamics._underfitting import underfitting

__all__ = [
    "MEASURES",
    "Dynamics",
    "Epoch",
    "Estimate",
    "Histograms",
    "Measure",
    "Record",
    "Spread",
    "class_accuracies",
    "emphasis_among",
    "find_runs",
    "finished_or_all",
    "over_seeds",
    "split_estimate",
    "underfitting",
    "unlearned_classes",
    "unlearned_sentence",
    "worth_telling",
]
