"""Trusted examples: some rows of the training set whose true labels a method may use."""

from __future__ import annotations

import torch
from torch import Tensor

from noisewise.arrays import NO_CLASS
from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.methods._base import Method


def check_trusted(method: Method, data: Dataset, number: int) -> None:
    """Raise `InputError` if the data set has fewer examples with known true labels."""
    if data.true_labels is None:
        raise InputError(
            f"The method {method!r} needs trusted examples with known true labels. The training set {data.name!r} has no true labels; "
            "add them, or choose another method."
        )
    known = int((data.true_labels != NO_CLASS).sum())
    if known < number:
        raise InputError(
            f"The method {method!r} needs {number} examples with known true labels. The training set {data.name!r} has {known}; "
            "give a smaller 'trusted'."
        )


def trusted_rows(data: Dataset, number: int, seed: int) -> Tensor:
    """The positions of the trusted examples, drawn with the seed.

    Example:
        >>> labels = torch.tensor([0, 1, 1, 0])
        >>> data = Dataset(torch.zeros(4, 2), labels, ("a", "b"), true_labels=torch.tensor([0, -1, 0, -1]))
        >>> sorted(trusted_rows(data, 2, seed=0).tolist())
        [0, 2]
    """
    assert data.true_labels is not None
    known = (data.true_labels != NO_CLASS).nonzero().squeeze(1)
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    return known[order[:number].to(known.device)]
