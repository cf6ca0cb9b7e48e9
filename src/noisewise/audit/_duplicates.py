"""Examples that occur more than once, exactly or nearly, in one set or in two, from features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._listing import Listing, as_ids, parts
from noisewise.audit._neighbours import as_features, comparable, nearest
from noisewise.data import Column
from noisewise.errors import invalid_parameter
from noisewise.tables import Block

_BY_CHANCE = 0.05  # how many near-duplicates to expect among examples that are all different
_LARGEST = 0.4  # of the distance to the farthest of the neighbours that are compared
_AROUND = 50  # neighbours that show how dense the data are; more near copies than that look like a dense cluster
_FEWEST = 12  # different examples, from which distances can be judged


@dataclass(frozen=True, eq=False, repr=False)
class NearDuplicates(Listing):
    """Groups of examples that are the same or nearly the same; all arrays have an entry for each example in a group.

    Groups with different labels come first, then groups in both sets, then the others; within them, the nearest first.

    Args:
        group: the number of the group, from 0.
        index: the position in its set.
        in_other: whether it is from the second set.
        is_exact: whether another example has exactly the same features.
        distance: the distance to the nearest other example of the group.
        labels: the label, or None without labels.
        labels_differ: whether the labels of the group differ.
        crosses: whether the group has examples of both sets.
        ids: the id of the example; its index if it has none.
        limit: the largest distance that two examples may have to be near-duplicates; lower where the data are dense.
    """

    group: Ints
    index: Ints
    in_other: Flags
    is_exact: Flags
    distance: Floats
    labels: tuple[str, ...] | None
    labels_differ: Flags
    crosses: Flags
    ids: tuple[str, ...]
    limit: float

    def __len__(self) -> int:
        """The number of groups."""
        return int(self.group[-1]) + 1 if len(self.group) else 0

    def __repr__(self) -> str:
        first = np.unique(self.group, return_index=True)[1]
        crossing, differing = int(self.crosses[first].sum()), int(self.labels_differ[first].sum())
        crossed = f", {crossing:,} across the two sets" if crossing else ""
        differ = f", {differing:,} with different labels" if differing else ""
        return f"NearDuplicates({len(self):,} groups of {len(self.group):,} examples{crossed}{differ})"

    @property
    def groups(self) -> list[Ints]:
        """The entries of each group."""
        return np.split(np.arange(len(self.group)), np.flatnonzero(np.diff(self.group)) + 1) if len(self.group) else []

    def copies(self) -> Ints:
        """The positions in the first set of all but one example of each group; all of them if the group is also in the second set.

        Without these examples, no example of the first set has a duplicate. Groups with different labels are included: look at them first.
        """
        own = np.flatnonzero(~self.in_other)
        kept = own[np.unique(self.group[own], return_index=True)[1]]
        return np.sort(self.index[np.setdiff1d(own, kept[~self.crosses[kept]])])

    def _names(self) -> Sequence[str]:
        return "group", "set", "index", "id", "label", "labels_differ", "crosses_sets", "is_exact", "distance"

    def _blocks(self) -> Iterator[Block]:
        for part in parts(np.arange(len(self.group))):
            sets = ["other" if other else "first" for other in self.in_other[part]]
            labels = [None if self.labels is None else self.labels[entry] for entry in part]
            flags = (column[part].tolist() for column in (self.labels_differ, self.crosses, self.is_exact, self.distance))
            yield self.group[part].tolist(), sets, self.index[part].tolist(), [self.ids[entry] for entry in part], labels, *flags


def near_duplicates(
    features: Any,
    other: Any = None,
    *,
    labels: Any = None,
    other_labels: Any = None,
    ids: Sequence[Any] | None = None,
    other_ids: Sequence[Any] | None = None,
    metric: str = "standardised",
    limit: float | None = None,
) -> NearDuplicates:
    """Find examples that occur more than once, exactly or nearly, also across training and test set.

    Formula:
        near if distance ≤ t · r of both examples,  r = the distance to the 50th neighbour, at most the median of these distances
        t = (1 − (1 − 0.05 / N)^(1/49))^(1/d), at most 0.4,  d = the dimension of the data around an example

    The limit follows from the data: among N different examples, spread evenly around each of them in d dimensions, 0.05 are expected to be
    that near to another one. With few dimensions, such as two columns, it is so small that only exact copies are found. A group is a chain
    of near examples. More than 50 near copies of one example look like a dense cluster, and are not found unless they are exact.

    Args:
        features: numbers (N, columns), such as embeddings; images are flattened.
        other: features of a second set with the same columns, such as the test set.
        labels: the labels of the first set, to mark groups whose labels differ.
        other_labels: the labels of the second set.
        ids: a unique id for each example.
        other_ids: a unique id for each example of the second set.
        metric: "standardised" (columns divided by their standard deviation), "euclidean" (for pixels) or "cosine".
        limit: the largest distance of a near-duplicate, in the units of the metric; 0 finds exact copies only.

    Returns:
        The groups, those with different labels first.

    Example:
        >>> near_duplicates([[0, 0], [5, 1], [0, 0], [2, 7]], labels=["cat", "dog", "dog", "cat"])
        NearDuplicates(1 groups of 2 examples, 1 with different labels)

    Reference:
        Levina and Bickel, Maximum Likelihood Estimation of Intrinsic Dimension, NeurIPS 2004 (d).
    """
    owner = "near_duplicates"
    if limit is not None and not limit >= 0:
        raise invalid_parameter("limit", owner, "0 or more", limit)
    first = as_features(features, owner=owner)
    second = None if other is None else as_features(other, what="other", owner=owner)
    scaled, more = comparable(first, second, metric, owner)
    together = scaled if more is None else np.concatenate([scaled, more])
    number = len(first), 0 if second is None else len(second)
    names = as_ids(ids, number[0], owner) + (as_ids(other_ids, number[1], owner) if second is not None else ())
    classes = _labels(labels, other_labels, number)
    distinct, copy_of = _distinct(first if second is None else np.concatenate([first, second]))
    joined, distance, limit = _joined(together[distinct], limit)
    return _sorted(joined[copy_of], distance[copy_of], copy_of, number[0], classes, names, limit)


def _labels(labels: Any, other_labels: Any, number: tuple[int, int]) -> tuple[str, ...] | None:
    if labels is None and other_labels is None:
        return None
    texts: list[str] = []
    for name, values, expected in (("labels", labels, number[0]), ("other_labels", other_labels, number[1])):
        if values is None and expected:
            raise invalid_parameter(name, "near_duplicates", "given for both sets or for none", None)
        keys = [] if values is None else list(map(str, Column(values, f"the {name.replace('_', ' ')}").keys()))
        if len(keys) != expected:
            raise invalid_parameter(name, "near_duplicates", f"one for each of the {expected} examples", f"{len(keys)} labels")
        texts += keys
    return tuple(texts)


def _distinct(rows: Floats) -> tuple[Ints, Ints]:
    """The position of one example of each kind, and the kind of every example."""
    exact = np.ascontiguousarray(rows + 0.0)  # without negative zeros
    keys: NDArray[Any] = exact.view(np.dtype((np.void, exact.dtype.itemsize * exact.shape[1]))).ravel()
    _, positions, kinds = np.unique(keys, return_index=True, return_inverse=True)
    return positions.astype(np.int64), kinds.astype(np.int64)


def _joined(rows: Floats, limit: float | None) -> tuple[Ints, Floats, float]:
    """The group of each row, its distance to the nearest one, and the largest distance of near-duplicates."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    number = len(rows)
    if limit == 0 or number < 2 or (limit is None and number < _FEWEST):
        return np.arange(number), np.full(number, np.inf), 0.0
    distances, indices = nearest(rows, min(_AROUND, max(_FEWEST, number // 3), number - 1))
    limits = _limits(distances) if limit is None else np.full(number, float(limit))
    row, column = np.nonzero(distances <= np.minimum(limits[:, None], limits[indices]))
    pairs = coo_array((np.ones(len(row), dtype=np.int8), (row, indices[row, column])), shape=(number, number))
    return connected_components(pairs, directed=False)[1].astype(np.int64), distances[:, 0], float(limits.max())


def _limits(distances: Floats) -> Floats:
    """The distance from each row below which, in all rows together, 0.05 near-duplicates are expected by chance."""
    number, k = distances.shape
    farthest = distances[:, -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(farthest[:, None] / distances[:, :-1]).sum(1)
    known = np.isfinite(logs) & (logs > 0)
    if not known.any():
        return np.zeros(number)
    dimension = float(np.median((k - 2) / logs[known]))
    chance = 1 - (1 - _BY_CHANCE / number) ** (1 / (k - 1))
    return np.asarray(min(chance ** (1 / dimension), _LARGEST) * np.minimum(farthest, np.median(farthest)))


def _sorted(
    joined: Ints, distance: Floats, kinds: Ints, first: int, labels: tuple[str, ...] | None, ids: tuple[str, ...], limit: float
) -> NearDuplicates:
    """The examples of groups with more than one, in the order of the list."""
    members = np.flatnonzero(np.bincount(joined)[joined] > 1)
    number = int(joined.max()) + 1
    exact = np.bincount(kinds)[kinds] > 1
    apart = np.where(exact, 0.0, distance)
    codes = np.zeros(len(joined), dtype=np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    differ, crosses = _varies(joined, codes, number), _varies(joined, np.arange(len(joined)) >= first, number)
    closest = np.full(number, np.inf)
    np.minimum.at(closest, joined, apart)
    order = members[np.lexsort((members, joined[members], closest[joined[members]], ~crosses[joined[members]], ~differ[joined[members]]))]
    group = np.cumsum(np.diff(joined[order], prepend=joined[order[:1]]) != 0)
    return NearDuplicates(
        group=group,
        index=np.where(order < first, order, order - first),
        in_other=order >= first,
        is_exact=exact[order],
        distance=apart[order],
        labels=None if labels is None else tuple(labels[position] for position in order),
        labels_differ=differ[joined[order]],
        crosses=crosses[joined[order]],
        ids=tuple(ids[position] for position in order),
        limit=limit,
    )


def _varies(group: Ints, values: NDArray[Any], number: int) -> Flags:
    """Whether the values in each group are not all the same."""
    low, high = np.full(number, np.iinfo(np.int64).max), np.full(number, -1)
    np.minimum.at(low, group, values.astype(np.int64))
    np.maximum.at(high, group, values.astype(np.int64))
    return low < high
