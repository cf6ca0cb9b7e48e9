"""A data set from a torch DataLoader: its examples are read once, in order, into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, WeightedRandomSampler

from noisewise.data._arrays import from_arrays
from noisewise.data._dataset import Dataset
from noisewise.errors import InputError, warn


def from_loader(loader: DataLoader[Any], *, classes: Sequence[str] | None = None, name: str = "loader") -> Dataset:
    """Read the data set of a DataLoader into memory, in the order of the data set.

    Random transforms are drawn once, here; for new ones in every epoch pass ``augment=`` to `noisewise.fit`.

    Args:
        loader: returns pairs of inputs and class indices.
        classes: the name of every class.
        name: the name of the data set.

    Example:
        >>> pairs = torch.utils.data.TensorDataset(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> from_loader(torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True)).labels
        tensor([0, 1, 2, 0, 1, 2])
    """
    if isinstance(loader.dataset, IterableDataset):
        raise InputError("A DataLoader over an IterableDataset has no numbered examples. Give one over a map-style data set.")
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    number = len(loader.dataset)  # type: ignore[arg-type]
    if not number:
        raise InputError("The data set of the DataLoader is empty. Give one with at least one example.")
    if len(sampler) < number and not isinstance(sampler, DistributedSampler):
        raise InputError(
            f"The sampler of the DataLoader takes {len(sampler)} of {number} examples, but all would be read. "
            "Give a DataLoader without a sampler, over torch.utils.data.Subset(data, indices)."
        )
    if isinstance(sampler, WeightedRandomSampler):
        text = "The weights of the WeightedRandomSampler are ignored: every epoch has every example once. Set class weights in the loss."
        warn(text)
    ordered: DataLoader[Any] = DataLoader(
        loader.dataset, batch_size=loader.batch_size or 1, shuffle=False, num_workers=loader.num_workers, collate_fn=loader.collate_fn
    )
    inputs, labels = [], []
    for batch in ordered:
        if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
            raise InputError(f"A DataLoader must return pairs (inputs, labels) of tensors. Got a {type(batch).__name__} instead.")
        inputs.append(batch[0])
        labels.append(batch[1])
    if len({part.shape[1:] for part in inputs}) > 1:
        raise InputError("The examples of a DataLoader must all have the same shape. Got several shapes; pad or cut them to one.")
    return from_arrays(torch.cat(inputs), torch.cat(labels), classes=classes, name=name)
