"""Split a data set in two."""

from __future__ import annotations

import torch

from noisewise.data._dataset import Dataset
from noisewise.errors import invalid_parameter
from noisewise.spec import as_int, real


def split(data: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split a data set in two at random, stratified by the given labels.

    Args:
        data: a data set in memory, or a stream.
        fraction: the share of the first part, between 0 and 1: fraction · N examples, a half rounded up, and the same share of each
            class to within one example.
        seed: any integer.

    Returns:
        The first part and the rest, each in the order of the data set.

    Example:
        >>> data = Dataset(torch.zeros(10, 2), torch.tensor([0] * 8 + [1] * 2), ("common", "rare"))
        >>> [part.labels.tolist() for part in split(data, 0.5, seed=0)]
        [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]
    """
    if not 0 < real(fraction) < 1:
        raise invalid_parameter("fraction", "split", "in (0, 1)", fraction)
    # The examples are sorted by class; one is chosen whenever the share of those before it passes an integer.
    share = (torch.arange(len(data) + 1, dtype=torch.float64) * fraction + 0.5).floor()
    if not 1 <= share[-1] < len(data):
        raise invalid_parameter("fraction", "split", f"such that neither part of {len(data)} examples is empty", fraction)
    shuffled = torch.randperm(len(data), generator=torch.Generator().manual_seed(as_int("seed", "split", seed) % 2**64))
    by_class = shuffled[data.labels.cpu()[shuffled].argsort(stable=True)]
    first = torch.zeros(len(data), dtype=torch.bool)
    first[by_class] = share.diff() > 0
    first = first.to(data.labels.device)
    return data.take(first), data.take(~first)
