"""A torch DataLoader as a data set: its examples are read once, in order, into memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, WeightedRandomSampler

from noisewise.data._arrays import from_arrays
from noisewise.data._dataset import Dataset
from noisewise.errors import InputError


def from_loader(loader: DataLoader[Any], *, classes: Sequence[str] | None = None, name: str = "loader") -> Dataset:
    """Read a DataLoader's data set into memory, in its own order.

    Its random transforms are drawn once, here; for fresh ones in every epoch give ``augment=`` to `noisewise.fit`.

    Args:
        loader: gives pairs of inputs and class indices.
        classes: the name of every class.
        name: what the data set is called.

    Example:
        >>> pairs = torch.utils.data.TensorDataset(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> from_loader(torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True)).labels
        tensor([0, 1, 2, 0, 1, 2])
    """
    if isinstance(loader.dataset, IterableDataset):
        raise InputError("A DataLoader over an IterableDataset has no numbered examples to record. Give one over a map-style data set.")
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if len(sampler) < len(loader.dataset) and not isinstance(sampler, DistributedSampler):  # type: ignore[arg-type]
        raise InputError(
            f"The sampler of the DataLoader takes {len(sampler)} of {len(loader.dataset)} examples, and all are read. "  # type: ignore[arg-type]
            "Give a DataLoader without a sampler, over torch.utils.data.Subset(data, indices)."
        )
    if isinstance(sampler, WeightedRandomSampler):
        text = "The weights of a WeightedRandomSampler are ignored: every example comes once an epoch. Give class weights to the loss."
        warnings.warn(text, stacklevel=2)
    ordered: DataLoader[Any] = DataLoader(
        loader.dataset, batch_size=loader.batch_size or 1, shuffle=False, num_workers=loader.num_workers, collate_fn=loader.collate_fn
    )
    if not len(loader.dataset):  # type: ignore[arg-type]
        raise InputError("A DataLoader must give at least one example. Got one over an empty data set.")
    inputs, labels = [], []
    for batch in ordered:
        if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
            raise InputError(f"A DataLoader must give pairs (inputs, labels) of tensors. Got a {type(batch).__name__} instead.")
        inputs.append(batch[0])
        labels.append(batch[1])
    if any(len({part.shape[1:] for part in parts}) > 1 for parts in (inputs, labels)):
        raise InputError("The examples of a DataLoader must all have the same shape. Got several shapes; pad them or cut them to one.")
    return from_arrays(torch.cat(inputs), torch.cat(labels), classes=classes, name=name)
