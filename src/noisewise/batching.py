"""How the examples of an epoch are divided into batches."""

from __future__ import annotations

from torch import Tensor


def number_of_batches(examples: int, size: int) -> int:
    """How many batches an epoch has.

    A last batch of one example would have no variance to normalise it by: it is put into the batch before it, if there is one.

    Args:
        examples: of the epoch.
        size: of a batch; the last one has what is left, or one more.

    Example:
        >>> [number_of_batches(examples, 64) for examples in (1, 64, 65, 66, 128, 129)]
        [1, 1, 1, 2, 2, 2]
    """
    return max(1, examples // size + (examples % size > 1))


def cut(positions: Tensor, size: int) -> list[Tensor]:
    """The positions of an epoch, batch by batch.

    Example:
        >>> import torch
        >>> [batch.tolist() for batch in cut(torch.arange(7), 3)]
        [[0, 1, 2], [3, 4, 5, 6]]
    """
    starts = range(size, size * number_of_batches(len(positions), size), size)
    return list(positions.tensor_split(tuple(starts)))


def smallest_part(size: int, parts: int) -> int:
    """The least number of examples that a part of a batch has: two, because one has no variance, unless the batches are too small for that.

    Args:
        size: of a batch.
        parts: into how many it is divided.

    Example:
        >>> [smallest_part(size, 2) for size in (1, 3, 4, 128)]
        [1, 1, 2, 2]
    """
    return 2 if size >= 2 * parts else 1
