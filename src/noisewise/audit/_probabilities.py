"""Find doubtful labels from the class probabilities of any model, with the same rule as an audit or with cleanlab."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._evidence import judge_labels
from noisewise.data import Column, encode
from noisewise.errors import InputError, invalid_parameter
from noisewise.tables import ROWS, Block, write_blocks
from noisewise.transition import as_labels, as_probabilities

_METHODS = ("self_confidence", "normalised_margin", "confident_learning")
_ARRAYS = ("is_label_issue", "label_quality", "given_label", "predicted_label")
_COLUMNS = ("index", "id", *_ARRAYS)  # the first columns of an audit's list


@dataclass(frozen=True, eq=False, repr=False)
class LabelIssues:
    """The doubtful labels, with cleanlab's names; ``pandas.DataFrame(issues.columns())`` is cleanlab's table.

    Args:
        is_label_issue: the labels that are probably wrong.
        label_quality: the lower, the more doubtful.
        given_label: the given labels, as class indices.
        predicted_label: the most probable class.
        classes: the names of the classes.
        ids: the id of each example; its index if it has none.
        interval: the range of several estimates of the number of wrong labels; None for confident learning.
    """

    is_label_issue: Flags
    label_quality: Floats
    given_label: Ints
    predicted_label: Ints
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    interval: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.given_label)

    def __repr__(self) -> str:
        wrong = "" if self.interval is None else "; between {:,.0f} and {:,.0f} may be wrong".format(*self.interval)
        return f"LabelIssues({self.count:,} of {len(self):,} labels look doubtful{wrong})"

    @property
    def count(self) -> int:
        """How many labels are doubtful."""
        return int(np.count_nonzero(self.is_label_issue))

    @cached_property
    def order(self) -> Ints:
        """The positions of all examples, the most doubtful first."""
        return np.argsort(self.label_quality, kind="stable")

    def columns(self) -> dict[str, Any]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write all examples to a file, the most doubtful first, with the first columns of an audit's list and class names.

        Args:
            path: ends in .csv, .json or .parquet.

        Returns:
            The path.
        """
        return write_blocks(path, self._blocks(), _COLUMNS)

    def _blocks(self) -> Iterator[Block]:
        for start in range(0, len(self), ROWS):
            part = self.order[start : start + ROWS]
            labels = ([self.classes[label] for label in numbers[part]] for numbers in (self.given_label, self.predicted_label))
            flags, quality = self.is_label_issue[part].tolist(), self.label_quality[part].tolist()
            yield part.tolist(), [self.ids[index] for index in part], flags, quality, *labels


def find_label_issues(
    labels: Any,
    pred_probs: Any,
    *,
    method: str = "normalised_margin",
    classes: Sequence[str] | None = None,
    ids: Sequence[Any] | None = None,
) -> LabelIssues:
    """Find doubtful labels from class probabilities.

    Formula:
        self_confidence: belief = p_given;  normalised_margin: belief = (p_given − max p_other + 1) / 2
        label_quality = 1 − P(the lower of two groups of beliefs | belief) · (1 − belief)

    Args:
        labels: the given labels (N,): column indices of ``pred_probs``, or names if classes are given.
        pred_probs: class probabilities (N, classes), preferably from a model that was not trained on the example, as
            `sklearn.model_selection.cross_val_predict` returns them.
        method: "self_confidence", "normalised_margin", or "confident_learning", which needs cleanlab.
        classes: the names of the columns of ``pred_probs``, such as scikit-learn's ``classes_``. Integer labels are then column indices,
            unless the name of a class is a number.
        ids: a unique id for each example.

    Returns:
        Flags and qualities, in the order of the labels.

    Example:
        >>> issues = find_label_issues([0, 0, 1, 1], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
        >>> issues.is_label_issue
        array([False, True, False, False])
        >>> find_label_issues(["cat", "dog", "cat"], [[0.9, 0.1], [0.1, 0.9], [0.0, 1.0]], classes=["cat", "dog"])
        LabelIssues(1 of 3 labels look doubtful; between 0 and 3 may be wrong)

    Reference:
        Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    if method not in _METHODS:
        raise invalid_parameter("method", "find_label_issues", "one of " + ", ".join(map(repr, _METHODS)), method)
    probabilities = as_probabilities(pred_probs, what="pred_probs", owner="find_label_issues").numpy()
    given, names = _numbered(labels, classes, probabilities.shape[1])
    if len(given) != len(probabilities):
        raise invalid_parameter(
            "pred_probs", "find_label_issues", f"one row for each of the {len(given)} labels", f"{len(probabilities)} rows"
        )
    if ids is not None and len(ids) != len(given):
        raise invalid_parameter("ids", "find_label_issues", f"one for each of the {len(given)} labels", f"{len(ids)} ids")
    example_ids = Column(range(len(given)) if ids is None else ids, "the ids").ids()
    predicted = probabilities.argmax(1)
    if method == "confident_learning":
        flags, quality = _confident_learning(given, probabilities)
        return LabelIssues(flags, quality, given, predicted, names, example_ids)
    examples = np.arange(len(given))
    own = probabilities[examples, given]
    probabilities[examples, given] = -1  # a copy
    rival = probabilities.max(1)
    belief = own if method == "self_confidence" else (own - rival + 1) / 2
    judgement = judge_labels(belief, rival > own)
    return LabelIssues(judgement.is_issue, judgement.quality, given, predicted, names, example_ids, judgement.interval)


def _numbered(labels: Any, classes: Sequence[str] | None, number: int) -> tuple[Ints, tuple[str, ...]]:
    """The labels as column indices, and the names of the columns."""
    owner = "find_label_issues"
    if classes is None:
        try:
            return as_labels(labels, owner=owner, num_classes=number).numpy(), tuple(map(str, range(number)))
        except InputError:
            if isinstance(labels, Iterable) and any(isinstance(label, str) for label in labels):
                needed = "given if labels are names: the name of each column of pred_probs, in order"
                raise invalid_parameter("classes", owner, needed, classes) from None
            raise
    if len(classes) != number or len(set(map(str, classes))) != number:
        raise invalid_parameter("classes", owner, f"the {number} different names of the columns of pred_probs", list(classes))
    if np.ndim(labels) != 1 or not len(labels):
        raise invalid_parameter("labels", owner, "names or numbers in one row, at least one", f"labels shaped {tuple(np.shape(labels))}")
    numbered, _, names = encode(Column(labels, "the labels"), None, classes)
    return numbered.numpy(), names


def _confident_learning(given: Ints, probabilities: Floats) -> tuple[Flags, Floats]:
    try:
        from cleanlab import filter as confident  # type: ignore[import-untyped]
        from cleanlab import rank
    except ImportError:
        raise InputError("Confident learning needs cleanlab, which is not installed; run: pip install 'noisewise[cleanlab]'.") from None
    flags = confident.find_label_issues(given, probabilities, n_jobs=1)
    return np.asarray(flags, dtype=bool), np.asarray(rank.get_label_quality_scores(given, probabilities), dtype=np.float64)
