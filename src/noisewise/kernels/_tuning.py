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


SHORT = 128  # scores of a row, at most, of which one program takes several
ROWS_OF_A_THREAD = 4  # of short rows: what is worked out once for a row is worked out by every thread that has a part of it
LONGEST_ON_CHIP = 8192
SCORES_PER_WARP = 1024  # of a row that is on chip
LONGER = 65536  # rows beyond this many scores are held four times as much of at once
LONG_BYTES = 8192  # of a row that one program holds at once
LONG_WARPS = 8

COUNTING_BLOCK = 1024
ADDING_BLOCK = 16384
MOST_ADDED_BY_ONE = 131072  # more losses than this are added up by torch, with many programs
COUNTING_PROGRAMS = 64  # a power of two: every program of the row kernel adds up this many numbers
SCALING_TILE = 4096
SCALING_PROGRAMS = 1056  # eight for each multiprocessor of an H200


def cut(classes: int, size: int) -> Cut:
    """How rows of so many classes are cut, a score taking so many bytes.

    Example:
        >>> cut(10, 4)
        Cut(rows=32, block=16, warps=4, whole=True)
        >>> cut(100, 4)
        Cut(rows=4, block=128, warps=1, whole=True)
        >>> cut(1000, 4)
        Cut(rows=1, block=1024, warps=1, whole=True)
        >>> cut(128256, 2)
        Cut(rows=1, block=16384, warps=16, whole=False)
    """
    if classes > LONGEST_ON_CHIP:
        longer = classes > LONGER
        return Cut(1, (4 if longer else 1) * LONG_BYTES // size, (2 if longer else 1) * LONG_WARPS, whole=False)
    block = 1 << (classes - 1).bit_length()
    if block > SHORT:
        return Cut(1, block, min(16, max(1, block // SCORES_PER_WARP)), whole=True)
    # A row must not be split among warps, and Triton gives several of them whole rows only where a row is no wider than one.
    warps = 4 if block <= 32 else 1
    return Cut(ROWS_OF_A_THREAD * max(1, 32 // block) * warps, block, warps, whole=True)


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
