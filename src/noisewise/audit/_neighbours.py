"""The nearest neighbours of examples in a space of features, exact and in bounded memory. It knows nothing about labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from noisewise.arrays import Floats, Ints
from noisewise.errors import InputError, invalid_parameter

METRICS = ("standardised", "euclidean", "cosine")
NEIGHBOURS = 10
_TREE = 8  # columns; with more, a k-d tree visits most of its leaves and is slower than comparing all pairs in blocks
_CELLS = 1 << 22  # numbers in memory at a time while distances are computed again


class Neighbours(NamedTuple):
    """The nearest neighbours of each example, the nearest first.

    Args:
        distances: (N, k).
        indices: their positions (N, k).
    """

    distances: Floats
    indices: Ints


def as_features(values: Any, *, what: str = "features", owner: str) -> Floats:
    """Features as a matrix of finite numbers with a row per example; images and other arrays are flattened.

    Example:
        >>> as_features([[1, 2], [3, float("nan")]], owner="outliers")
        Traceback (most recent call last):
        noisewise.errors.InputError: The features given to outliers must be finite numbers. Row 1 has nan in column 1; fill it in or leave \
the row out.
    """
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid_parameter(what, owner, "an array of numbers with a row for each example", str(error)) from None
    if array.ndim < 2 or not array.size:
        raise invalid_parameter(what, owner, "an array of numbers with a row for each example", f"an array shaped {array.shape}")
    array = array.reshape(len(array), -1)
    if not np.isfinite(array).all():
        row, column = (int(number) for number in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"The {what} given to {owner} must be finite numbers. Row {row} has {array[row, column]} in column {column}; "
            "fill it in or leave the row out."
        )
    return array


def comparable(rows: Floats, more: Floats | None, metric: str, owner: str) -> tuple[Floats, Floats | None]:
    """Scale features so that Euclidean distances between them are those of the metric. The first array decides the scale.

    Args:
        rows: the features.
        more: other features with the same columns, or None.
        metric: "standardised" divides each column by its standard deviation, "euclidean" changes nothing but the origin, and "cosine"
            scales each row to length 1.
        owner: the name of the function, for errors.
    """
    if metric not in METRICS:
        raise invalid_parameter("metric", owner, "one of " + ", ".join(map(repr, METRICS)), metric)
    if more is not None and more.shape[1] != rows.shape[1]:
        raise invalid_parameter("features", owner, f"arrays with the same columns, here {rows.shape[1]}", f"{more.shape[1]} columns")
    if metric == "cosine":
        return _unit(rows, owner), None if more is None else _unit(more, owner)
    mean, spread = rows.mean(0), rows.std(0) if metric == "standardised" else np.ones(rows.shape[1])
    spread[spread <= 1e-12 * np.abs(mean)] = 1  # a constant column, up to rounding
    return (rows - mean) / spread, None if more is None else (more - mean) / spread


def _unit(rows: Floats, owner: str) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not lengths.all():
        row = int(np.flatnonzero(lengths == 0)[0])
        raise invalid_parameter("metric", owner, "'standardised' or 'euclidean' for rows of zeros", f"'cosine', and row {row} is zero")
    return np.asarray(rows / lengths)


def nearest(rows: Floats, k: int, queries: Floats | None = None) -> Neighbours:
    """The nearest rows of each query, or of each row without itself.

    Pairs are compared in blocks, so memory does not grow with the square of the number of rows. Distances of the neighbours that were
    found are computed again from differences, because the fast formula rounds distances of near rows.
    """
    from sklearn.neighbors import NearestNeighbors

    narrow = rows.shape[1] <= _TREE
    kind = np.float64 if narrow else np.float32
    search = NearestNeighbors(n_neighbors=k, algorithm="kd_tree" if narrow else "brute").fit(rows.astype(kind))
    indices: NDArray[Any] = search.kneighbors(None if queries is None else queries.astype(kind), return_distance=False)
    own = rows if queries is None else queries
    distances = np.empty(indices.shape)
    step = max(1, _CELLS // (k * rows.shape[1]))
    for start in range(0, len(own), step):
        part = slice(start, start + step)
        distances[part] = np.linalg.norm(own[part, None] - rows[indices[part]], axis=2)
    order = np.argsort(distances, axis=1, kind="stable")
    return Neighbours(np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1).astype(np.int64))
