"""Examples that are unlike all others, from features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._listing import Listing, as_ids, parts
from noisewise.audit._neighbours import NEIGHBOURS, as_features, comparable, nearest
from noisewise.errors import invalid_parameter
from noisewise.tables import Block

_UPPER = 0.9  # the quantile that, with the median, sets the scale: up to a tenth of the examples may be outliers


@dataclass(frozen=True, eq=False, repr=False)
class Outliers(Listing):
    """Examples far from all others. Rows of `table`, `to_frame` and `write` are ordered by `outlier_quality`, the lowest first.

    Args:
        is_outlier: the examples whose quality is below the share.
        outlier_quality: the chance that an ordinary example is as far from its neighbours. The lower, the more unusual.
        distance: the mean distance to the nearest neighbours.
        nearest_index: the position of the nearest neighbour.
        ids: the id of each example; its index if it has none.
        share: about the largest share of ordinary examples that are flagged by chance.
    """

    is_outlier: Flags
    outlier_quality: Floats
    distance: Floats
    nearest_index: Ints
    ids: tuple[str, ...]
    share: float

    def __len__(self) -> int:
        return len(self.distance)

    def __repr__(self) -> str:
        chance = f"up to about {self.share * len(self):,.0f} by chance"
        return f"Outliers({self.count:,} of {len(self):,} examples are far from all others; {chance})"

    @property
    def count(self) -> int:
        """How many examples are outliers."""
        return int(np.count_nonzero(self.is_outlier))

    @cached_property
    def order(self) -> Ints:
        """The positions of all examples, the most unusual first."""
        return np.argsort(-self.distance, kind="stable")

    def _names(self) -> Sequence[str]:
        return "index", "id", "is_outlier", "outlier_quality", "distance", "nearest_index"

    def _blocks(self) -> Iterator[Block]:
        for part in parts(self.order):
            columns = (self.is_outlier, self.outlier_quality, self.distance, self.nearest_index)
            yield part.tolist(), [self.ids[index] for index in part], *(column[part].tolist() for column in columns)


def outliers(
    features: Any,
    *,
    among: Any = None,
    share: float = 0.01,
    neighbours: int = NEIGHBOURS,
    metric: str = "standardised",
    ids: Sequence[Any] | None = None,
) -> Outliers:
    """Find examples that are far from all others.

    Formula:
        distance = mean distance to the nearest neighbours,  z = log distance − its median,  s = (its 90 % quantile − its median) / log 5
        outlier_quality = ½ exp(−z / s) above the median, 1 − ½ exp(z / s) below,  is_outlier = outlier_quality < share

    The tail is heavier than that of most data, so fewer than the share are flagged by chance. The median and the 90 % quantile set the
    scale, so up to a tenth of the examples may be outliers. More than ``neighbours`` outliers that are alike are each other's neighbours,
    and are not found.

    Args:
        features: numbers (N, columns), such as embeddings; images are flattened.
        among: the features of ordinary examples, such as the training set; by default the same examples.
        share: about the largest share of ordinary examples that may be flagged by chance.
        neighbours: how many neighbours are averaged over.
        metric: "standardised" (columns divided by their standard deviation), "euclidean" (for pixels) or "cosine".
        ids: a unique id for each example.

    Returns:
        The examples, the most unusual first.

    Example:
        >>> grid = [[row, column] for row in range(10) for column in range(10)]
        >>> outliers([*grid, [40, 40]])
        Outliers(1 of 101 examples are far from all others; up to about 1 by chance)

    Reference:
        Ramaswamy et al., Efficient Algorithms for Mining Outliers from Large Data Sets, SIGMOD 2000 (distance to the neighbours).
    """
    if not 0 < share < 1:
        raise invalid_parameter("share", "outliers", "in (0, 1)", share)
    rows = as_features(features, owner="outliers")
    ordinary = None if among is None else as_features(among, what="among", owner="outliers")
    base, queries = comparable(rows if ordinary is None else ordinary, None if ordinary is None else rows, metric, "outliers")
    most = len(base) - 1
    if not 1 <= neighbours <= most:
        raise invalid_parameter("neighbours", "outliers", f"from 1 to {most}, fewer than the examples", neighbours)
    own = nearest(base, neighbours)
    found = own if queries is None else nearest(base, neighbours, queries)
    distance = found.distances.mean(1)
    quality = _chance(distance, own.distances.mean(1))
    return Outliers(quality < share, quality, distance, found.indices[:, 0], as_ids(ids, len(rows), "outliers"), share)


def _chance(distance: Floats, ordinary: Floats) -> Floats:
    """The chance that an ordinary example is at this distance or farther."""
    spaced = ordinary[ordinary > 0]  # the neighbours of the others are all copies
    if not len(spaced):
        return np.where(distance > 0, 0.0, 1.0)
    middle, upper = np.log(np.quantile(spaced, (0.5, _UPPER)))
    scale = max(upper - middle, 1e-12) / np.log(0.5 / (1 - _UPPER))
    above = (np.log(np.maximum(distance, spaced.min())) - middle) / scale
    tail = np.exp(-np.abs(above)) / 2
    return np.asarray(np.where(above > 0, tail, 1 - tail))
