"""Measure costs that must not grow quadratically: comparisons of names, and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any


class Compared(str):
    """A name that counts how often it is compared with another."""

    times = 0

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def with_peak(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and the peak memory of Python and NumPy during it, in bytes."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
