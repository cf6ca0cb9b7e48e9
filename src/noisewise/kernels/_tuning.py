"""How a kernel is cut into pieces: every number that was measured or may be measured again, in one place.

``benchmarks/kernels.py --tune`` tries the neighbours of these and prints which is fastest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """How rows are given to programs.

    Args:
        rows: how many rows a program takes.
        block: how many columns it holds at once; a power of two.
        warps: how many warps it runs on.
        whole: whether a row lies within the block, so that it is read once.
    """

    rows: int
    block: int
    warps: int
    whole: bool


LONGEST_ON_CHIP = 32768
TILE = 2048  # scores of short rows that one program takes together
WARPS = {2048: 4, 4096: 8, 8192: 8, 16384: 16, 32768: 32}  # by scores a program holds
LONG = Cut(rows=1, block=32768, warps=32, whole=False)

COUNTING_BLOCK = 1024
COUNTING_PROGRAMS = 64  # a power of two: every program of the row kernel adds up this many numbers
SCALING_TILE = 4096
SCALING_PROGRAMS = 1056  # eight for each multiprocessor of an H200


def cut(classes: int) -> Cut:
    """How rows of so many classes are cut.

    Example:
        >>> cut(10)
        Cut(rows=128, block=16, warps=4, whole=True)
        >>> cut(128256)
        Cut(rows=1, block=32768, warps=32, whole=False)
    """
    if classes > LONGEST_ON_CHIP:
        return LONG
    block = 1 << (classes - 1).bit_length()
    rows = max(1, TILE // block)
    return Cut(rows, block, WARPS[max(TILE, rows * block)], whole=True)
