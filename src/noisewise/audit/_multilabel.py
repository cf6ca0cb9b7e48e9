"""Wrong labels where an example may have several classes: each yes or no is judged as a label of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._issues import LabelIssues
from noisewise.audit._listing import Listing, as_ids, parts
from noisewise.audit._probabilities import find_label_issues
from noisewise.errors import InputError, invalid_parameter
from noisewise.tables import Block

_OWNER = "find_multilabel_issues"


@dataclass(frozen=True, eq=False, repr=False)
class MultilabelIssues(Listing):
    """Doubtful yes-or-no labels (N, classes). `table`, `to_frame` and `write` have a row per example and class, the most doubtful first.

    Args:
        is_label_issue: the labels that are probably wrong.
        label_quality: the lower, the more doubtful.
        given_label: whether the example has the class according to its labels.
        predicted_label: whether it has the class according to the model.
        classes: the names of the classes.
        ids: the id of each example; its index if it has none.
        interval: the range of the number of wrong labels, added up over the classes; None if the judgement has none.
    """

    is_label_issue: Flags
    label_quality: Floats
    given_label: Flags
    predicted_label: Flags
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    interval: tuple[float, float] | None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.ids)

    def __repr__(self) -> str:
        rows = int(self.example_is_issue.sum())
        return (
            f"MultilabelIssues({self.count:,} of {self.is_label_issue.size:,} labels look doubtful, in {rows:,} of {len(self):,} examples)"
        )

    @property
    def count(self) -> int:
        """How many labels are doubtful."""
        return int(np.count_nonzero(self.is_label_issue))

    @property
    def example_is_issue(self) -> Flags:
        """The examples with a doubtful label."""
        return np.asarray(self.is_label_issue.any(1))

    @property
    def example_quality(self) -> Floats:
        """The lowest quality of the labels of each example."""
        return np.asarray(self.label_quality.min(1))

    @cached_property
    def order(self) -> Ints:
        """The positions of all examples, the most doubtful first."""
        return np.lexsort((self.label_quality.mean(1), self.example_quality))

    @cached_property
    def by_class(self) -> list[dict[str, Any]]:
        """For each class how many labels look missing (no, but probably yes) and superfluous (yes, but probably no)."""
        missing, superfluous = (self.is_label_issue & ~self.given_label).sum(0), (self.is_label_issue & self.given_label).sum(0)
        counts = zip(self.classes, self.given_label.sum(0).tolist(), missing.tolist(), superfluous.tolist(), strict=True)
        return [dict(zip(("class", "labels", "missing", "superfluous"), row, strict=True)) for row in counts]

    def _names(self) -> Sequence[str]:
        return "index", "id", "class", "is_label_issue", "label_quality", "given_label", "predicted_label"

    def _blocks(self) -> Iterator[Block]:
        number = len(self.classes)
        flat = [array.ravel() for array in (self.is_label_issue, self.label_quality, self.given_label, self.predicted_label)]
        for part in parts(np.argsort(self.label_quality, axis=None, kind="stable")):
            index, column = np.divmod(part, number)
            named = [self.ids[place] for place in index], [self.classes[place] for place in column]
            yield index.tolist(), *named, *(array[part].tolist() for array in flat)


def find_multilabel_issues(
    labels: Any, pred_probs: Any, *, classes: Sequence[str] | None = None, ids: Sequence[Any] | None = None
) -> MultilabelIssues:
    """Find doubtful labels where an example may have any number of classes.

    Each class is a question with the answers no and yes, which `find_label_issues` judges from the probabilities 1 − p and p. The quality
    of an example is the lowest of its classes.

    Args:
        labels: 0 or 1 for each example and class (N, classes), or the list of classes that each example has, by number or name.
        pred_probs: the probability of each class (N, classes), which need not sum to one, preferably from a model that was not trained on
            the example.
        classes: the names of the classes.
        ids: a unique id for each example.

    Returns:
        The labels by example and class.

    Example:
        >>> labels = [[1, 0], [0, 1], [0, 1], [0, 1]] * 20 + [[0, 1], [0, 1]]
        >>> probabilities = [[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.8]] * 20 + [[0.9, 0.9], [0.9, 0.9]]
        >>> issues = find_multilabel_issues(labels, probabilities, classes=["cat", "dog"])
        >>> issues
        MultilabelIssues(2 of 164 labels look doubtful, in 2 of 82 examples)
        >>> issues.table(1)[0]["index"], issues.table(1)[0]["class"]
        (80, 'cat')
    """
    probabilities = _as_chances(pred_probs)
    rows, columns = probabilities.shape
    names = tuple(map(str, range(columns) if classes is None else classes))
    if len(names) != columns or len(set(names)) != columns:
        raise invalid_parameter("classes", _OWNER, f"the {columns} different names of the columns of pred_probs", list(names))
    given = _as_flags(labels, rows, names)
    example_ids = as_ids(ids, rows, _OWNER)
    judged = [_judged(given[:, column], probabilities[:, column]) for column in range(columns)]
    intervals = [one.interval for one in judged if one.interval is not None]
    return MultilabelIssues(
        is_label_issue=np.stack([one.is_label_issue for one in judged], 1),
        label_quality=np.stack([one.label_quality for one in judged], 1),
        given_label=given,
        predicted_label=probabilities > 0.5,
        classes=names,
        ids=example_ids,
        interval=None if len(intervals) < columns else (sum(low for low, _ in intervals), sum(high for _, high in intervals)),
    )


def _judged(given: Flags, chance: Floats) -> LabelIssues:
    return find_label_issues(given.astype(np.int64), np.stack([1 - chance, chance], 1))


def _as_chances(pred_probs: Any) -> Floats:
    try:
        array = np.asarray(pred_probs.detach().cpu() if isinstance(pred_probs, Tensor) else pred_probs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid_parameter("pred_probs", _OWNER, "numbers shaped (examples, classes)", str(error)) from None
    if array.ndim != 2 or not array.size:
        raise invalid_parameter("pred_probs", _OWNER, "shaped (examples, classes)", array.shape)
    if not ((array >= 0) & (array <= 1)).all():
        row = int(np.argwhere(~((array >= 0) & (array <= 1)))[0, 0])
        raise invalid_parameter("pred_probs", _OWNER, "from 0 to 1", f"row {row}: {array[row].tolist()[:10]}")
    return array


def _as_flags(labels: Any, rows: int, classes: tuple[str, ...]) -> Flags:
    """Labels as a matrix of yes and no."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
    if len(values) != rows:
        raise invalid_parameter("labels", _OWNER, f"one row for each of the {rows} rows of pred_probs", f"{len(values)} rows")
    if getattr(values, "ndim", None) == 2 or _is_matrix(values, len(classes)):
        array = np.asarray(values)
        if array.shape != (rows, len(classes)) or not np.isin(array, (0, 1)).all():
            raise invalid_parameter("labels", _OWNER, f"0 or 1, shaped ({rows}, {len(classes)})", f"an array shaped {array.shape}")
        return array.astype(bool)
    flags = np.zeros((rows, len(classes)), dtype=bool)
    positions = {name: place for place, name in enumerate(classes)}
    for row, names in enumerate(values):
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InputError(f"Row {row} of the labels given to {_OWNER} must be a list of classes. Got {names!r} instead.")
        for name in names:
            if str(name) not in positions:
                raise InputError(f"Row {row} of the labels given to {_OWNER} has {name!r}, which is not one of the {len(classes)} classes.")
            flags[row, positions[str(name)]] = True
    return flags


def _is_matrix(values: Any, columns: int) -> bool:
    """Whether lists are rows of 0 and 1, and not lists of class numbers."""
    return all(
        isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) and len(row) == columns and all(cell in (0, 1) for cell in row)
        for row in values
    )
