"""How a kernel is cut into pieces: every number that was measured or may be measured again, in one place.

``benchmarks/kernels.py --tune`` and ``benchmarks/residual.py --tune`` try the neighbours of these and print which are fastest.
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


TILE = 2048  # scores of short rows that one program takes together
TILE_WARPS = 4
LONGEST_ON_CHIP = 8192
SCORES_PER_WARP = 1024  # of a row that is on chip
LONGER = 65536  # rows beyond this many scores are held twice as much of at once, unless the loss looks at every class
LONG_BYTES = 8192  # of a row that one program holds at once
LONG_WARPS = 8

COUNTING_BLOCK = 1024
ADDING_BLOCK = 16384
MOST_ADDED_BY_ONE = 131072  # more losses than this are added up by torch, with many programs
COUNTING_PROGRAMS = 64  # a power of two: every program of the row kernel adds up this many numbers
SCALING_TILE = 4096
SCALING_PROGRAMS = 1056  # eight for each multiprocessor of an H200


def cut(classes: int, size: int, every_class: bool) -> Cut:
    """How rows of so many classes are cut, a score taking so many bytes; whether the loss looks at every class.

    Example:
        >>> cut(10, 4, False)
        Cut(rows=128, block=16, warps=4, whole=True)
        >>> cut(1000, 4, False)
        Cut(rows=1, block=1024, warps=2, whole=True)
        >>> cut(128256, 2, False)
        Cut(rows=1, block=8192, warps=16, whole=False)
    """
    if classes > LONGEST_ON_CHIP:
        longer = classes > LONGER
        return Cut(1, (4 if longer else 1) * LONG_BYTES // size, (2 if longer else 1) * LONG_WARPS, whole=False)
    block = 1 << (classes - 1).bit_length()
    if 2 * block <= TILE // 2:
        return Cut(TILE // block, block, TILE_WARPS, whole=True)
    return Cut(1, block, min(16, max(1, block // SCORES_PER_WARP)), whole=True)


@dataclass(frozen=True)
class Tile:
    """How a convolution is given to programs.

    Args:
        pixels: how many pixels a program takes at once; a power of two, 16 at least.
        depth: how many pairs of a tap and a channel it takes at once; a power of two, 16 at least.
        warps: how many warps it runs on.
        stages: how many steps of its loop are under way at once.
    """

    pixels: int
    depth: int
    warps: int
    stages: int


# Convolutions, their gradients by what they read and by their weights; by the number of channels at the pixels that are cut.
CONVOLVE = {16: Tile(256, 16, 4, 3), 32: Tile(128, 32, 4, 3), 64: Tile(64, 64, 8, 3)}
PROPAGATE = {16: Tile(256, 16, 4, 3), 32: Tile(128, 32, 4, 3), 64: Tile(64, 64, 8, 3)}
CORRELATE = {16: Tile(256, 64, 4, 2), 32: Tile(128, 128, 4, 2), 64: Tile(64, 64, 4, 3)}
SHARES = {16: 88, 32: 66, 64: 24}  # sums that a weight's gradient is made in, all of which are kept until the end

ELEMENTS = {16: 2048, 32: 2048, 64: 2048}  # numbers that a program takes which looks at each by itself
ADDED_ROWS = 1024
ADDED_STATISTICS = 8  # columns a program adds up: the smallest piece that memory is read in
ADDED_WEIGHTS = 32
ADDED_WARPS = 8
