"""Array types for signatures, the label that means "no class", and a lookup of names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_CLASS = -1
"""The true label of an example that belongs to no class, because a noise replaced its input."""


def places_of(names: Iterable[str]) -> dict[str, int]:
    """The first position of every name.

    Example:
        >>> places_of(["cat", "dog", "cat"])
        {'cat': 0, 'dog': 1}
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places
