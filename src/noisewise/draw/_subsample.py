"""As many of many things as a picture can show, evenly spaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from noisewise.errors import invalid_parameter

Thing = TypeVar("Thing")


def thinned(things: Sequence[Thing], most: int) -> tuple[Thing, ...]:
    """So many things at most, evenly spaced, the first and the last among them.

    Example:
        >>> thinned(range(1, 101), 4)
        (1, 34, 67, 100)
        >>> thinned("abc", 60)
        ('a', 'b', 'c')
    """
    if most < 2:
        raise invalid_parameter("most", "thinned", "at least 2", most)
    if len(things) <= most:
        return tuple(things)
    return tuple(things[round(place * (len(things) - 1) / (most - 1))] for place in range(most))
