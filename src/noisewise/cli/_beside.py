"""What an audit says beside label errors: rows that are unlike all others, and rows that occur more than once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from noisewise.data import Dataset

_MOST = 20_000  # examples; the time grows with their square
_SHOWN = 5
_BY_CHANCE = 0.2  # ordinary examples that may be called outliers, in the whole data set


class Beside(NamedTuple):
    """What was found, by the ids of the examples.

    Args:
        outliers: examples that are unlike all others, the most unusual first.
        copies: groups of examples with exactly the same features, those with different labels first.
        differing: how many of these groups have different labels.
    """

    outliers: Sequence[str]
    copies: Sequence[Sequence[str]]
    differing: int

    def sentences(self) -> list[str]:
        """What to print; nothing where nothing was found."""
        said = []
        if number := len(self.copies):
            differ = f", {self.differing:,} with different labels" if self.differing else ""
            groups = _first([" = ".join(group[:_SHOWN]) for group in self.copies])
            said.append(f"{number:,} {'row occurs' if number == 1 else 'rows occur'} more than once{differ}: {groups}.")
        if number := len(self.outliers):
            said.append(f"{number:,} {'row is' if number == 1 else 'rows are'} far from all others: {_first(self.outliers)}.")
        return said

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {"outliers": list(self.outliers), "copies": [list(group) for group in self.copies]}


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def find_beside(data: Dataset) -> Beside:
    """Look at the features of a data set; nothing is found in images, in very many rows and in few."""
    from noisewise.audit import near_duplicates, outliers

    if data.inputs.is_meta or data.inputs.ndim != 2 or not 20 <= len(data) <= _MOST:
        return Beside((), (), 0)
    features, ids = data.inputs.numpy(), data.ids or tuple(map(str, range(len(data))))
    metric = "cosine" if data.embedder is not None else "standardised" if data.encoding is None or data.encoding.plain else "euclidean"
    unusual = outliers(features, metric=metric, share=_BY_CHANCE / len(data), ids=ids)
    copies = near_duplicates(features, labels=[data.classes[label] for label in data.labels.tolist()], ids=ids, metric=metric, limit=0)
    groups = [[copies.ids[entry] for entry in group] for group in copies.groups]
    differing = sum(bool(copies.labels_differ[group[0]]) for group in copies.groups)
    return Beside([unusual.ids[row] for row in unusual.order if unusual.is_outlier[row]], groups, differing)
