"""Array types for signatures, the label that means "no class", and small functions on sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_CLASS = -1
"""The true label of an example that belongs to no class, because a noise replaced its input."""


def first_positions(names: Iterable[str]) -> dict[str, int]:
    """The first position of every name.

    Example:
        >>> first_positions(["cat", "dog", "cat"])
        {'cat': 0, 'dog': 1}
    """
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, position)
    return positions


def subsample(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """Evenly subsample a sequence, keeping the first and the last item.

    Args:
        items: any sequence.
        most: the largest number of items to keep; at least 2.

    Example:
        >>> subsample(range(1, 101), 4)
        (1, 34, 67, 100)
        >>> subsample("abc", 60)
        ('a', 'b', 'c')
    """
    if len(items) <= most:
        return tuple(items)
    return tuple(items[round(position * (len(items) - 1) / (most - 1))] for position in range(most))
