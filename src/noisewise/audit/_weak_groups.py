"""Groups of examples in which a model is clearly worse than in the rest: values of columns, and clusters of features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._listing import Listing
from noisewise.audit._neighbours import as_features, comparable
from noisewise.errors import InputError, invalid_parameter
from noisewise.tables import ROWS, Block

_LEVEL = 0.05
_FEWEST = 10  # examples of a group
_VALUES = 50  # of a column; a text column with more distinct values names examples rather than groups
_PARTS = 4  # that a column of many numbers is cut into
_PER_CLUSTER = 50
_CLUSTERS = 50


@dataclass(frozen=True, eq=False, repr=False)
class WeakGroups(Listing):
    """The accuracy of groups, the most surprising first.

    Args:
        names: what the examples of each group share, such as "colour = red" or "cluster 3".
        members: the positions of the examples of each group.
        accuracy: the accuracy in each group.
        low: the lower end of its 95 % interval (Clopper and Pearson).
        high: the upper end.
        rest: the accuracy on all other examples.
        p_value: the chance of so few right answers in the group if it were like the rest, corrected for the number of groups (Holm).
        is_weak: the groups whose p-value is below 0.05.
    """

    names: tuple[str, ...]
    members: tuple[Ints, ...]
    accuracy: Floats
    low: Floats
    high: Floats
    rest: Floats
    p_value: Floats
    is_weak: Flags

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        worst = ""
        if self.is_weak.any():
            worst = f"; first {self.names[0]!r} with accuracy {100 * self.accuracy[0]:.1f} %, elsewhere {100 * self.rest[0]:.1f} %"
        return f"WeakGroups({int(self.is_weak.sum())} of {len(self)} groups are clearly worse than the rest{worst})"

    def _names(self) -> Sequence[str]:
        return "group", "examples", "is_weak", "accuracy", "low", "high", "accuracy_of_the_rest", "p_value"

    def _blocks(self) -> Iterator[Block]:
        for start in range(0, len(self), ROWS):
            part = slice(start, start + ROWS)
            numbers = (column[part].tolist() for column in (self.is_weak, self.accuracy, self.low, self.high, self.rest, self.p_value))
            yield list(self.names[part]), [len(rows) for rows in self.members[part]], *numbers


def weak_groups(correct: Any, columns: Any = None, features: Any = None, *, metric: str = "standardised", seed: int = 0) -> WeakGroups:
    """Find groups of examples in which held-out predictions are clearly worse than in the rest.

    Formula:
        p = P(at most as many right answers in the group), if the right answers were spread over all examples at random
        (hypergeometric), times the number of groups that are no more surprising (Holm);  is_weak = p < 0.05

    So the chance to report any group of a model that is equally good everywhere is at most 5 %. Groups of fewer than 10 examples, or with
    all examples, are left out.

    Args:
        correct: whether each held-out prediction equals the label: ``predicted == labels``.
        columns: values by name, a dict or a DataFrame. Each value of a column is a group; a column of more than 50 different numbers is
            cut into quarters, and a column of more than 50 different texts is left out. Gaps are a group too.
        features: numbers (N, columns), such as embeddings; they are cut into clusters of about 50 examples, at most 50 clusters.
        metric: of the features: "standardised", "euclidean" or "cosine", see `outliers`.
        seed: of the clusters.

    Returns:
        The groups, the most surprising first.

    Example:
        >>> camera = ["a"] * 60 + ["b"] * 20
        >>> weak_groups([True] * 57 + [False] * 3 + [True] * 10 + [False] * 10, {"camera": camera})
        WeakGroups(1 of 2 groups are clearly worse than the rest; first 'camera = b' with accuracy 50.0 %, elsewhere 95.0 %)

    Reference:
        Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.
    """
    right = np.asarray(correct)
    if right.ndim != 1 or not len(right) or right.dtype.kind not in "biu" or not np.isin(right, (0, 1)).all():
        raise invalid_parameter("correct", "weak_groups", "true or false for each example", correct)
    if columns is None and features is None:
        raise InputError("weak_groups needs groups of examples. Got neither columns nor features; give one of them.")
    groups: dict[str, Ints] = {}
    for name in () if columns is None else columns:
        groups |= _by_value(str(name), columns[name], len(right))
    if features is not None:
        groups |= _clusters(features, len(right), metric, seed)
    kept = {name: rows for name, rows in groups.items() if _FEWEST <= len(rows) < len(right)}
    return _tested(right.astype(bool), tuple(kept), tuple(kept.values()))


def _by_value(name: str, values: Any, number: int) -> dict[str, Ints]:
    """The examples with each value of a column, or in each quarter of its numbers."""
    cells = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(cells) != number:
        raise invalid_parameter("columns", "weak_groups", f"a value for each of the {number} examples", f"{len(cells)} in {name!r}")
    gaps = np.array([_is_gap(cell) for cell in cells])
    filled = [cell for cell, gap in zip(cells, gaps, strict=True) if not gap]
    texts = np.array([str(cell) for cell in cells], dtype=object)
    groups = {f"{name} is empty": np.flatnonzero(gaps)}
    distinct = sorted(set(texts[~gaps]))
    if len(distinct) <= _VALUES:
        return groups | {f"{name} = {text}": np.flatnonzero(~gaps & (texts == text)) for text in distinct}
    if not all(isinstance(cell, int | float) for cell in filled):
        return groups
    array = np.array([np.nan if gap else float(cell) for cell, gap in zip(cells, gaps, strict=True)])
    edges = np.unique(np.nanquantile(array, np.linspace(0, 1, _PARTS + 1)))
    inside = np.searchsorted(edges[1:-1], array, side="left")  # the quarter of each number; gaps are sorted last and taken out
    for quarter, (low, high) in enumerate(pairwise(edges)):
        opening = f"{low:.6g} ≤" if quarter == 0 else f"{low:.6g} <"
        groups[f"{opening} {name} ≤ {high:.6g}"] = np.flatnonzero(~gaps & (inside == quarter))
    return groups


def _is_gap(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _clusters(features: Any, number: int, metric: str, seed: int) -> dict[str, Ints]:
    from sklearn.cluster import MiniBatchKMeans

    rows = as_features(features, owner="weak_groups")
    if len(rows) != number:
        raise invalid_parameter("features", "weak_groups", f"one row for each of the {number} examples", f"{len(rows)} rows")
    scaled, _ = comparable(rows, None, metric, "weak_groups")
    clusters = min(_CLUSTERS, number // _PER_CLUSTER, len(np.unique(scaled, axis=0)))
    if clusters < 2:
        return {}
    inside = MiniBatchKMeans(clusters, random_state=seed, n_init=3, batch_size=1024).fit_predict(scaled)
    return {f"cluster {cluster}": np.flatnonzero(inside == cluster) for cluster in range(clusters)}


def _tested(right: Flags, names: tuple[str, ...], members: tuple[Ints, ...]) -> WeakGroups:
    from scipy.stats import beta, hypergeom  # type: ignore[import-untyped]

    sizes = np.array([len(rows) for rows in members], dtype=np.int64)
    hits = np.array([int(right[rows].sum()) for rows in members], dtype=np.int64)
    total, every = int(right.sum()), len(right)
    chance = hypergeom.cdf(hits, every, total, sizes)
    low = np.where(hits > 0, beta.ppf(_LEVEL / 2, hits, sizes - hits + 1), 0.0)
    high = np.where(hits < sizes, beta.ppf(1 - _LEVEL / 2, hits + 1, sizes - hits), 1.0)
    order = np.argsort(chance, kind="stable")
    corrected = np.minimum(1, np.maximum.accumulate(chance[order] * np.arange(len(names), 0, -1)))
    return WeakGroups(
        names=tuple(names[place] for place in order),
        members=tuple(members[place] for place in order),
        accuracy=(hits / np.maximum(sizes, 1))[order],
        low=low[order],
        high=high[order],
        rest=((total - hits) / np.maximum(every - sizes, 1))[order],
        p_value=corrected,
        is_weak=corrected < _LEVEL,
    )
