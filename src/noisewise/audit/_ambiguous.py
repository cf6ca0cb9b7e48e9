"""Examples that two classes could claim: the model is torn between them, and so are the neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._listing import Listing, as_ids, parts
from noisewise.audit._neighbours import NEIGHBOURS, as_features, comparable, nearest
from noisewise.data import Column, encode
from noisewise.errors import invalid_parameter
from noisewise.tables import Block
from noisewise.transition import as_labels, as_probabilities

_AT_LEAST = 0.5  # the chance of the second class, relative to the first


@dataclass(frozen=True, eq=False, repr=False)
class Ambiguous(Listing):
    """Examples between two classes. Rows of `table`, `to_frame` and `write` are ordered by `ambiguity`, the highest first.

    Args:
        is_ambiguous: the examples whose ambiguity is at least one half.
        ambiguity: the chance of the second class relative to the first, from 0 to 1.
        first: the most probable class.
        second: the second most probable class.
        given: the given label.
        classes: the names of the classes.
        ids: the id of each example; its index if it has none.
    """

    is_ambiguous: Flags
    ambiguity: Floats
    first: Ints
    second: Ints
    given: Ints
    classes: tuple[str, ...]
    ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ambiguity)

    def __repr__(self) -> str:
        pairs = self.pairs
        most = f"; most often {pairs[0][0]!r} and {pairs[0][1]!r}, {pairs[0][2]:,} times" if pairs else ""
        return f"Ambiguous({self.count:,} of {len(self):,} examples are between two classes{most})"

    @property
    def count(self) -> int:
        """How many examples are ambiguous."""
        return int(np.count_nonzero(self.is_ambiguous))

    @cached_property
    def order(self) -> Ints:
        """The positions of all examples, the most ambiguous first."""
        return np.argsort(-self.ambiguity, kind="stable")

    @cached_property
    def pairs(self) -> list[tuple[str, str, int]]:
        """The pairs of classes between which there are ambiguous examples, and how many, the most frequent first."""
        both = np.sort(np.stack([self.first, self.second], 1)[self.is_ambiguous], axis=1)
        pairs, counts = np.unique(both, axis=0, return_counts=True)
        ranked = np.argsort(-counts, kind="stable")
        return [(self.classes[pairs[place][0]], self.classes[pairs[place][1]], int(counts[place])) for place in ranked]

    def _names(self) -> Sequence[str]:
        return "index", "id", "is_ambiguous", "ambiguity", "first_class", "second_class", "given_label"

    def _blocks(self) -> Iterator[Block]:
        for part in parts(self.order):
            named = ([self.classes[label] for label in labels[part]] for labels in (self.first, self.second, self.given))
            yield (
                part.tolist(),
                [self.ids[index] for index in part],
                self.is_ambiguous[part].tolist(),
                self.ambiguity[part].tolist(),
                *named,
            )


def ambiguous(
    labels: Any,
    pred_probs: Any,
    features: Any = None,
    *,
    classes: Sequence[str] | None = None,
    ids: Sequence[Any] | None = None,
    metric: str = "standardised",
) -> Ambiguous:
    """Find examples that two classes could claim.

    Formula:
        first, second = the two most probable classes
        ambiguity = min(p_second / p_first, n_low / n_high),  is_ambiguous = ambiguity ≥ ½
        where n_low ≤ n_high are the numbers of labels of these two classes among the 10 nearest neighbours

    Without features, the probabilities decide alone. A label of either class may be right: such examples need a clearer definition of the
    classes more than another label.

    Args:
        labels: the given labels (N,): column indices of ``pred_probs``, or names if classes are given.
        pred_probs: class probabilities (N, classes) from a model that was not trained on the example, such as
            `sklearn.model_selection.cross_val_predict` returns.
        features: numbers (N, columns), such as embeddings, or None.
        classes: the names of the columns of ``pred_probs``.
        ids: a unique id for each example.
        metric: "standardised", "euclidean" or "cosine", see `outliers`.

    Returns:
        The examples, the most ambiguous first.

    Example:
        >>> ambiguous(["cat", "dog", "cat"], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], classes=["cat", "dog"])
        Ambiguous(1 of 3 examples are between two classes; most often 'cat' and 'dog', 1 times)
    """
    owner = "ambiguous"
    probabilities = as_probabilities(pred_probs, what="pred_probs", owner=owner).numpy()
    given, names = _numbered(labels, classes, probabilities.shape[1])
    if len(given) != len(probabilities):
        raise invalid_parameter("pred_probs", owner, f"one row for each of the {len(given)} labels", f"{len(probabilities)} rows")
    ranked = np.argsort(-probabilities, axis=1, kind="stable")
    first, second = ranked[:, 0], ranked[:, 1]
    rows = np.arange(len(given))
    ambiguity = probabilities[rows, second] / probabilities[rows, first]
    if features is not None:
        ambiguity = np.minimum(ambiguity, _split(as_features(features, owner=owner), given, first, second, metric))
    return Ambiguous(ambiguity >= _AT_LEAST, ambiguity, first, second, given, names, as_ids(ids, len(given), owner))


def _numbered(labels: Any, classes: Sequence[str] | None, number: int) -> tuple[Ints, tuple[str, ...]]:
    if classes is None:
        return as_labels(labels, owner="ambiguous", num_classes=number).numpy(), tuple(map(str, range(number)))
    if len(classes) != number:
        raise invalid_parameter("classes", "ambiguous", f"the names of the {number} columns of pred_probs", list(classes))
    given, _, names = encode(Column(labels, "the labels"), None, classes)
    return given.numpy(), names


def _split(features: Floats, given: Ints, first: Ints, second: Ints, metric: str) -> Floats:
    """How evenly the labels of the neighbours are split between two classes, from 0 to 1."""
    if len(features) != len(given):
        raise invalid_parameter("features", "ambiguous", f"one row for each of the {len(given)} labels", f"{len(features)} rows")
    scaled, _ = comparable(features, None, metric, "ambiguous")
    around = given[nearest(scaled, min(NEIGHBOURS, len(given) - 1)).indices]
    counts = np.stack([(around == label[:, None]).sum(1) for label in (first, second)])
    return np.asarray(counts.min(0) / np.maximum(counts.max(0), 1))
