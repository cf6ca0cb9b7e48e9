"""What arrays are called in signatures, by what they hold, the number that stands among labels for no class, and the places of names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_CLASS = -1
"""The true label of an example that is of no class: a noise replaced its input."""


def places_of(names: Iterable[str]) -> dict[str, int]:
    """The first place of every name, to look up many of them.

    Example:
        >>> places_of(["cat", "dog", "cat"])
        {'cat': 0, 'dog': 1}
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places
