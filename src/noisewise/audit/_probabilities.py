"""Doubtful labels from class probabilities of any model, held-out ones best.

The own scores draw the line as an audit does; confident learning is cleanlab's. This module must not know runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.audit._issues import Flags, Floats, Whole, draw_line
from noisewise.errors import InputError, must
from noisewise.transition import as_labels, as_probabilities

_METHODS = ("self_confidence", "normalised_margin", "confident_learning")


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """What probabilities say about labels, by cleanlab's names; ``pandas.DataFrame(found.columns())`` is its table.

    Args:
        is_label_issue: the labels that are probably wrong.
        label_quality: the lower, the more doubtful.
        given_label: as given.
        predicted_label: the most probable class.
    """

    is_label_issue: Flags
    label_quality: Floats
    given_label: Whole
    predicted_label: Whole

    @cached_property
    def order(self) -> Whole:
        """The positions of all examples, the most doubtful first."""
        return np.argsort(self.label_quality, kind="stable")

    def columns(self) -> dict[str, Any]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in ("is_label_issue", "label_quality", "given_label", "predicted_label")}


def find_label_issues(labels: Any, pred_probs: Any, *, method: str = "normalised_margin") -> LabelIssues:
    """Find doubtful labels from class probabilities.

    Formula:
        self_confidence: belief = p_given;  normalised_margin: belief = (p_given − max p_other + 1) / 2
        label_quality = 1 − P(the lower of two groups of beliefs | belief) · (1 − belief)

    Args:
        labels: the given labels, whole numbers (N,).
        pred_probs: probabilities of every class for every example (N, classes), best from a model that was not trained on the
            example, as `sklearn.model_selection.cross_val_predict` makes them.
        method: "self_confidence", "normalised_margin", or "confident_learning", for which cleanlab must be installed.

    Returns:
        Flags and qualities, in the order of the labels.

    Example:
        >>> found = find_label_issues([0, 0, 1, 1], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
        >>> found.is_label_issue
        array([False, True, False, False])

    Reference:
        Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    if method not in _METHODS:
        raise must("method", "find_label_issues", "one of " + ", ".join(map(repr, _METHODS)), method)
    given, probabilities = _checked(labels, pred_probs)
    predicted = probabilities.argmax(1)
    if method == "confident_learning":
        flags, quality = _confident_learning(given, probabilities)
        return LabelIssues(flags, quality, given, predicted)
    here = np.arange(len(given))
    own, beside = probabilities[here, given], probabilities.copy()
    beside[here, given] = -1
    rival = beside.max(1)
    belief = own if method == "self_confidence" else (own - rival + 1) / 2
    line = draw_line(belief, rival > own)
    return LabelIssues(line.is_issue, line.quality, given, predicted)


def _checked(labels: Any, pred_probs: Any) -> tuple[Whole, Floats]:
    owner = "find_label_issues"
    probabilities = as_probabilities(pred_probs, what="pred_probs", owner=owner).numpy()
    given = as_labels(labels, owner=owner, num_classes=probabilities.shape[1]).numpy()
    if len(given) != len(probabilities):
        raise must("pred_probs", owner, f"one row for each of the {len(given)} labels", f"{len(probabilities)} rows")
    return given, probabilities


def _confident_learning(given: Whole, probabilities: Floats) -> tuple[Flags, Floats]:
    try:
        from cleanlab import filter as confident  # type: ignore[import-untyped]
        from cleanlab import rank
    except ImportError:
        raise InputError("Confident learning needs cleanlab, which is not installed; run: pip install 'noisewise[cleanlab]'.") from None
    flags = confident.find_label_issues(given, probabilities, n_jobs=1)
    return np.asarray(flags, dtype=bool), np.asarray(rank.get_label_quality_scores(given, probabilities), dtype=np.float64)
