"""A torch DataLoader as a data set: its examples are read once, in order, into memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

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
    if _may_leave_out(loader):
        raise InputError(
            "A DataLoader whose sampler may leave examples of its data set out would be read with all of them. "
            "Give one without, over torch.utils.data.Subset(data, indices) where some are meant."
        )
    if isinstance(_sampler(loader), WeightedRandomSampler):
        text = "The weights of a WeightedRandomSampler are left out: every example comes once an epoch. Give class weights to the loss."
        warnings.warn(text, stacklevel=2)
    ordered: DataLoader[Any] = DataLoader(
        loader.dataset, batch_size=loader.batch_size or 1, shuffle=False, num_workers=loader.num_workers, collate_fn=loader.collate_fn
    )
    if not len(loader.dataset):  # type: ignore[arg-type]
        raise InputError("A DataLoader must give at least one example. Got one over an empty data set.")
    inputs, labels = [], []
    for batch in _of_one_shape(ordered):
        if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
            raise InputError(f"A DataLoader must give pairs (inputs, labels) of tensors. Got a {type(batch).__name__} instead.")
        inputs.append(batch[0])
        labels.append(batch[1])
    if any(len({part.shape[1:] for part in parts}) > 1 for parts in (inputs, labels)):
        raise _several_shapes()
    return from_arrays(torch.cat(inputs), torch.cat(labels), classes=classes, name=name)


def _of_one_shape(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader, with a sentence where torch cannot make one of examples of several shapes."""
    try:
        yield from loader
    except RuntimeError as error:
        if "equal size" not in str(error):  # the data set's own, which is the user's to see
            raise
        raise _several_shapes() from error


def _several_shapes() -> InputError:
    return InputError("The examples of a DataLoader must all have the same shape. Got several shapes; pad them or cut them to one.")


def _may_leave_out(loader: DataLoader[Any]) -> bool:
    """Whether a sampler of the user's own gives fewer examples than there are, or batches of which that is not known.

    Torch's own draw from all of them but for one, and those of a distributed training together.
    """
    if loader.batch_sampler is not None and not isinstance(loader.batch_sampler, BatchSampler):
        return True
    sampler = _sampler(loader)
    if isinstance(sampler, SequentialSampler | RandomSampler | WeightedRandomSampler | DistributedSampler):
        return False
    return hasattr(sampler, "__len__") and len(sampler) < len(loader.dataset)  # type: ignore[arg-type]


def _sampler(loader: DataLoader[Any]) -> Any:
    return getattr(loader.batch_sampler, "sampler", loader.sampler)
