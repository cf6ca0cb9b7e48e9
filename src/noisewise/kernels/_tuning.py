"""Block sizes of the kernels. ``benchmarks/kernels.py --tune`` and ``benchmarks/residual.py --tune`` measure alternatives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """How rows are distributed over programs.

    Args:
        rows: rows per program.
        block: columns per block; a power of two.
        warps: warps per program.
        whole: whether a row fits into a block, so that it is read once.
    """

    rows: int
    block: int
    warps: int
    whole: bool


SHORT = 128  # longest row of which one program takes several
ROWS_OF_A_THREAD = 4  # of short rows
LONGEST_ON_CHIP = 8192
SCORES_PER_WARP = 1024  # of a row on chip
LONGER = 65536  # rows with more scores than this use blocks four times as large
LONG_BYTES = 8192  # per block of a long row
LONG_WARPS = 8

COUNTING_BLOCK = 1024
ADDING_BLOCK = 16384
MOST_ADDED_BY_ONE = 131072  # torch adds up more losses than this
COUNTING_PROGRAMS = 64  # a power of two
SCALING_TILE = 4096
SCALING_PROGRAMS = 1056  # eight per multiprocessor of an H200


def cut(classes: int, size: int) -> Cut:
    """The cut for rows with this number of classes and this many bytes per score.

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
    # A row must not be split between warps. With several warps, Triton guarantees that only if a row is no wider than one warp.
    warps = 4 if block <= 32 else 1
    return Cut(ROWS_OF_A_THREAD * max(1, 32 // block) * warps, block, warps, whole=True)


@dataclass(frozen=True)
class Tile:
    """How a convolution is distributed over programs.

    Args:
        pixels: pixels per block; a power of two, at least 16.
        depth: pairs of a tap and a channel per block; a power of two, at least 16.
        warps: warps per program.
        stages: pipelined steps of the loop.
    """

    pixels: int
    depth: int
    warps: int
    stages: int


# For convolutions and their gradients by input and by weight, by the number of channels of the pixels.
CONVOLVE = {16: Tile(256, 16, 4, 3), 32: Tile(128, 32, 4, 3), 64: Tile(64, 64, 8, 3)}
PROPAGATE = {16: Tile(256, 16, 4, 3), 32: Tile(128, 32, 4, 3), 64: Tile(64, 64, 8, 3)}
CORRELATE = {16: Tile(256, 64, 4, 2), 32: Tile(128, 128, 4, 2), 64: Tile(64, 64, 4, 3)}
SHARES = {16: 88, 32: 66, 64: 24}  # partial sums of a weight's gradient

ELEMENTS = {16: 2048, 32: 2048, 64: 2048}  # numbers per program of an elementwise kernel
ADDED_ROWS = 1024
ADDED_STATISTICS = 8  # columns per program: the smallest unit of a memory read
ADDED_WEIGHTS = 32
ADDED_WARPS = 8
