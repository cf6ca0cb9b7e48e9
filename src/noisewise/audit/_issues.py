"""The list of labels that look wrong: one result for runs, features and probabilities, with cleanlab's names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._listing import Listing, parts
from noisewise.spec import as_int
from noisewise.tables import Block, write_blocks

LIST_COLUMNS = ("index", "id", "is_label_issue", "label_quality", "given_label", "predicted_label")
_ARRAYS = LIST_COLUMNS[2:]
_UNSURE = 0.25  # the width of an interval, as a share of the labels, that says too little
_UNEXPLAINED = 0.12  # the share of labels that are contradicted and probably right
_BEYOND, _MANY = 0.02, 0.1  # labels contradicted beyond the interval, if that ends above this share


@dataclass(frozen=True, eq=False, repr=False)
class LabelIssues(Listing):
    """Which labels look wrong; all arrays are in the order of the examples, and lists begin with the most doubtful label.

    Args:
        is_label_issue: the labels to check: as many as give the highest expected F1, none with a chance below 0.4 of being wrong.
        label_quality: one minus the chance that the label is wrong. The lower, the more doubtful; NaN if nothing is known.
        given_label: the given labels, as class numbers.
        predicted_label: the class that the evidence predicts; −1 if nothing is known.
        suggested_label: the most probable class given the evidence and the label; for a doubtful label, the most probable other class.
        suggestion_probability: its probability.
        interval: a confidence interval of the number of wrong labels; None for confident learning.
        classes: the names of the classes.
        example_ids: the id of each example; None for its index.
        judged: whether the evidence says anything about the labels.
    """

    is_label_issue: Flags
    label_quality: Floats
    given_label: Ints
    predicted_label: Ints
    suggested_label: Ints
    suggestion_probability: Floats
    interval: tuple[float, float] | None
    classes: tuple[str, ...]
    example_ids: Sequence[str] | None
    judged: bool

    def __len__(self) -> int:
        return len(self.given_label)

    def __repr__(self) -> str:
        wrong = "" if self.interval is None else "; between {:,.0f} and {:,.0f} may be wrong".format(*self.interval)
        caution = "" if self.caution is None else f". {self.caution}"
        return f"LabelIssues({self.count:,} of {len(self):,} labels look doubtful{wrong}{caution})"

    @property
    def count(self) -> int:
        """How many labels are doubtful."""
        return int(np.count_nonzero(self.is_label_issue))

    @property
    def expected_count(self) -> float:
        """How many labels are wrong, expected: the sum of the chances."""
        return float(np.nansum(1 - self.label_quality))

    @property
    def expected_precision(self) -> float:
        """The mean chance that a doubtful label is wrong; NaN if none is doubtful."""
        return float(1 - self.label_quality[self.is_label_issue].mean()) if self.count else float("nan")

    @cached_property
    def order(self) -> Ints:
        """The positions of all examples, the most doubtful first."""
        return np.argsort(self.label_quality, kind="stable")

    @cached_property
    def index(self) -> Ints:
        """The index of each example in its source."""
        return np.arange(len(self))

    @cached_property
    def ids(self) -> list[str]:
        """The id of each example; its index if it has none."""
        return [str(index) for index in self.index] if self.example_ids is None else list(self.example_ids)

    @property
    def best(self) -> Ints:
        """The best label for each example: the suggested one if the given one is doubtful."""
        return np.where(self.is_label_issue, self.suggested_label, self.given_label)

    @cached_property
    def matrix(self) -> Ints:
        """How many examples have each given label (row) and each best label (column)."""
        return pair_counts(self.given_label, self.best, len(self.classes))

    @property
    def agreement(self) -> float:
        """The share of labels that the evidence predicts."""
        known = self.predicted_label >= 0
        return float((self.predicted_label == self.given_label)[known].mean()) if known.any() else 0.0

    @property
    def caution(self) -> str | None:
        """A warning that these labels cannot be judged, or not fully, or None."""
        return None if self.interval is None else self._caution(*self.interval)

    def _caution(self, low: float, high: float) -> str | None:
        number, agreed = len(self), self.agreement
        if not self.judged:
            return (
                f"These labels cannot be judged: models of the other examples predict {100 * agreed:.0f} % of them, hardly more than by "
                "chance. Use features that say more about the classes."
            )
        contradicted = int(np.count_nonzero(self.predicted_label != self.given_label))
        beyond = high > _MANY * number and contradicted - high > _BEYOND * number
        if beyond or high - low > _UNSURE * number or contradicted - self.expected_count > _UNEXPLAINED * number:
            return (
                f"Models of the other examples contradict {contradicted:,} labels. Where classes overlap, wrong labels look like "
                "right ones of a similar class, so it cannot be told how many of these are wrong. Check the first ones by hand."
            )
        return None

    def review_first(self, number: int) -> Ints:
        """The positions of the labels to review if there is time for this many: those most likely to be wrong.

        Args:
            number: how many.
        """
        return self.order[: as_int("number", "review_first", number, 1)]

    def columns(self) -> dict[str, Any]:
        """The arrays by cleanlab's names."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def write(self, path: str | os.PathLike[str], *, limit: int | None = None) -> Path:
        """Write the examples to a file, the most doubtful first.

        In a CSV file, text that a spreadsheet would run as a formula (it starts with =, +, - or @ and is not a number) gets an apostrophe
        in front. JSON and Parquet files contain the text unchanged.

        Args:
            path: ends in .csv, .json or .parquet.
            limit: the number of examples; by default all.

        Returns:
            The path.
        """
        number = None if limit is None else as_int("limit", "write", limit, 1)
        return write_blocks(path, self._blocks(number), self._names())

    def _names(self) -> Sequence[str]:
        return LIST_COLUMNS

    def _blocks(self, limit: int | None = None) -> Iterator[Block]:
        return (self._block(part) for part in parts(self.order[:limit]))

    def _block(self, part: Ints) -> Block:
        """The columns of the list for some examples."""
        names = (*self.classes, None)  # the last for a prediction of −1
        return [
            self.index[part].tolist(),
            [self.ids[position] for position in part],
            self.is_label_issue[part].tolist(),
            self.label_quality[part].tolist(),
            *([names[label] for label in labels[part]] for labels in (self.given_label, self.predicted_label)),
        ]


def pair_counts(rows: Ints, columns: Ints, number: int) -> Ints:
    """Count pairs of row and column in a square matrix of this size."""
    return np.bincount(rows * number + columns, minlength=number**2).reshape(number, number)
