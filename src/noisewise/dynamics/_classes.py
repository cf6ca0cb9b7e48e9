"""How a model does class by class: its accuracy on each, and the classes that it did not learn.

This module counts labels and predictions. It must not know run folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats, Whole
from noisewise.errors import listed

_ENOUGH_LABELS = 5
_FAR_LESS = 10  # a class is unlearned if it is predicted less often than once for every ten of its labels


def unlearned_classes(given: NDArray[Any], predicted: NDArray[Any], classes: int) -> Whole:
    """Find the classes that are predicted for fewer than a tenth as many examples as are labelled so.

    Classes with fewer than five labels are left out. Examples with a prediction of −1 were not seen and are ignored.

    Args:
        given: the label of every training example.
        predicted: the class predicted for every example.
        classes: how many classes there are.

    Returns:
        The numbers of these classes.

    Example:
        >>> unlearned_classes(np.array([0] * 90 + [1] * 10), np.zeros(100, dtype=int), 2)
        array([1])
    """
    seen = predicted >= 0
    labels, predictions = (np.bincount(values[seen], minlength=classes)[:classes] for values in (given, predicted))
    return np.flatnonzero((labels >= _ENOUGH_LABELS) & (_FAR_LESS * predictions < labels))


def unlearned_sentence(loss: str, names: Sequence[str], classes: int) -> str:
    """Say which classes a loss did not learn, and what to try.

    Args:
        loss: the spec of the loss.
        names: of the classes that were not learned.
        classes: how many classes there are.

    Example:
        >>> print(unlearned_sentence("gce(q=0.7)", ["rare"], 2))
        gce(q=0.7) did not learn 'rare' (1 of 2 classes): the model hardly ever predicts it. Train longer, or with another loss, such as ce.
    """
    them = "it" if len(names) == 1 else "them"
    advice = "Train longer, or with another learning rate." if loss == "ce" else "Train longer, or with another loss, such as ce."
    named = listed(map(repr, names))
    return f"{loss} did not learn {named} ({len(names):,} of {classes:,} classes): the model hardly ever predicts {them}. {advice}"


def class_accuracies(labels: NDArray[Any], predicted: NDArray[Any], classes: int) -> Floats:
    """The accuracy on the examples of every class (its recall); NaN for a class without examples.

    Args:
        labels: the class of every example.
        predicted: the class predicted for every example.
        classes: how many classes there are.

    Example:
        >>> class_accuracies(np.array([0, 0, 1]), np.array([0, 1, 1]), 3)
        array([0.5, 1. , nan])
    """
    number = np.bincount(labels, minlength=classes)
    correct = np.bincount(labels[labels == predicted], minlength=classes)
    return np.where(number > 0, correct / np.maximum(number, 1), np.nan)
