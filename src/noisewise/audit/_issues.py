"""The list of labels that look wrong: one result for runs, features and probabilities, with cleanlab's names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.spec import as_int
from noisewise.tables import ROWS, Block, rows_of, write_blocks

if TYPE_CHECKING:
    import pandas

LIST_COLUMNS = ("index", "id", "is_label_issue", "label_quality", "given_label", "predicted_label")
_ARRAYS = LIST_COLUMNS[2:]
_UNSURE = 0.25  # an interval wider than this share of the labels says nothing
_OVERLAP = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class LabelIssues:
    """Which labels look wrong; all arrays are in the order of the examples.

    Args:
        is_label_issue: the labels that are probably wrong.
        label_quality: one minus the chance that the label is wrong. The lower, the more doubtful; NaN if nothing is known.
        given_label: the given labels, as class numbers.
        predicted_label: the class that the evidence predicts; −1 if nothing is known.
        suggested_label: the most probable class given the evidence and the label; the given label where no other is more probable.
        suggestion_probability: its probability.
        interval: a confidence interval of the number of wrong labels; None for confident learning.
        classes: the names of the classes.
        example_ids: the id of each example; None for its index.
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

    def __len__(self) -> int:
        return len(self.given_label)

    def __repr__(self) -> str:
        wrong = "" if self.interval is None else "; between {:,.0f} and {:,.0f} may be wrong".format(*self.interval)
        caution = "" if self.caution is None else f". {self.caution}"
        return f"{type(self).__name__}({self.count:,} of {len(self):,} labels look doubtful{wrong}{caution})"

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
    def agreement(self) -> float:
        """The share of labels that the evidence predicts."""
        known = self.predicted_label >= 0
        return float((self.predicted_label == self.given_label)[known].mean()) if known.any() else 0.0

    @property
    def caution(self) -> str | None:
        """A warning that these labels cannot be judged, or not fully, or None."""
        if self.interval is None:
            return None
        number, (low, high) = len(self), self.interval
        largest = float(np.bincount(self.given_label).max()) / number
        if self.agreement - largest < 2 * np.sqrt(self.agreement * (1 - self.agreement) / number):
            return (
                f"These labels cannot be judged: models of other examples predict {100 * self.agreement:.0f} % of them, hardly more than "
                f"the largest class has ({100 * largest:.0f} %). Use features that say more about the classes."
            )
        if high - low > _UNSURE * number:
            return (
                f"How many labels are wrong cannot be told: models of other examples predict {100 * self.agreement:.0f} % of them, and "
                "wrong labels look like their mistakes. Check the first labels of the list by hand, or use features that say more."
            )
        contradicted = int(np.count_nonzero(self.predicted_label != self.given_label))
        if contradicted - high > _OVERLAP * number:
            return (
                f"The evidence contradicts {contradicted:,} labels, mostly where classes overlap. Wrong labels there look like right labels "
                "of similar classes, so more than the interval says may be wrong."
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

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame in the order of the examples: cleanlab's columns with class names, suggestions, and ids as the index. Needs pandas."""
        import pandas

        names = np.array([*self.classes, None], dtype=object)  # the last for a prediction of −1
        columns = self.columns() | {"suggested_label": self.suggested_label, "suggestion_probability": self.suggestion_probability}
        shown = {name: names[values] if name in ("given_label", "predicted_label", "suggested_label") else values for name, values in columns.items()}
        return pandas.DataFrame(shown, index=pandas.Index(self.ids, name="id"))

    @property
    def list_columns(self) -> tuple[str, ...]:
        """The columns of the list."""
        return LIST_COLUMNS

    def table(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The examples as rows, the most doubtful first, with the columns of the list.

        Args:
            limit: the number of rows; by default all.
        """
        number = None if limit is None else as_int("limit", "table", limit, 0)
        return list(rows_of(self._blocks(self.order[:number]), self.list_columns))

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
        return write_blocks(path, self._blocks(self.order[:number]), self.list_columns)

    def _blocks(self, positions: Ints) -> Iterator[Block]:
        for start in range(0, len(positions), ROWS):
            yield self._block(positions[start : start + ROWS])

    def _block(self, part: Ints) -> Block:
        """The columns of the list for some examples."""
        names = (*self.classes, None)
        return [
            self.index[part].tolist(),
            [self.ids[position] for position in part],
            self.is_label_issue[part].tolist(),
            self.label_quality[part].tolist(),
            *([names[label] for label in labels[part]] for labels in (self.given_label, self.predicted_label)),
        ]
