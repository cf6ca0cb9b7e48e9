"""Data sets: selecting examples, splitting, and corrupting labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from noisewise.data import Dataset, from_arrays, split
from refused import refused


def test_take_keeps_all_fields_of_the_examples() -> None:
    labels, human = torch.tensor([0, 1, 2, 1]), {"worst": torch.tensor([1, 1, 2, 0])}
    data = Dataset(
        torch.arange(4.0).view(-1, 1), labels, ("a", "b", "c"), true_labels=labels.flip(0), ids=("p", "q", "r", "s"), human=human
    )
    for which in (torch.tensor([False, True, False, True]), torch.tensor([1, 3])):
        taken = data.take(which)
        assert taken.inputs.flatten().tolist() == [1, 3] and taken.labels.tolist() == [1, 1] and taken.ids == ("q", "s")
        assert taken.true_labels is not None and taken.true_labels.tolist() == [2, 0]
        assert taken.index is not None and taken.index.tolist() == [1, 3] and taken.human["worst"].tolist() == [1, 0]


def test_take_accepts_lists() -> None:
    data = from_arrays(torch.arange(4.0).view(-1, 1), [0, 1, 0, 1])
    for which in ([3, 1], [False, True, False, True]):
        assert torch.equal(data.take(which).inputs, data.take(torch.tensor(which)).inputs)


def test_a_mask_of_another_length_is_refused() -> None:
    data = from_arrays(torch.arange(4.0).view(-1, 1), [0, 1, 0, 1])
    with refused("4", "(3,)"):
        data.take(torch.tensor([True, False, True]))


def test_corrupting_again_starts_from_the_true_labels() -> None:
    true, given = torch.arange(12) % 3, torch.arange(1, 13) % 3
    data = Dataset(torch.zeros(12, 1), given, ("a", "b", "c"), true_labels=true).corrupted("pair(1)")
    assert data.labels.tolist() == [(label + 2) % 3 for label in true.tolist()] and data.wrong is not None and data.wrong.all()
    assert data.true_labels is not None and torch.equal(data.true_labels, true)
    assert torch.equal(data.corrupted("pair(1)").labels, true)


def test_a_split_keeps_the_share_of_every_class_and_loses_nothing() -> None:
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([1, 10, 55, 334]))
    data = Dataset(torch.arange(400.0).view(-1, 1), labels, ("a", "b", "c", "d"))
    first, rest = split(data, 0.3, seed=1)
    assert first.index is not None and rest.index is not None
    assert len(first) == 120
    assert torch.equal(torch.cat([first.index, rest.index]).sort().values, torch.arange(400))
    assert (first.index.diff() > 0).all() and torch.equal(first.inputs.squeeze(1).long(), first.index)
    share = torch.bincount(first.labels, minlength=4) - 0.3 * torch.bincount(labels)
    assert (share.abs() <= 1).all()
    assert torch.equal(first.index, split(data, 0.3, seed=1)[0].index)
    assert not torch.equal(first.index, split(data, 0.3, seed=2)[0].index)


@pytest.mark.parametrize(("fraction", "number"), [(0.07, 0), (0.1, 1), (0.3, 2), (0.37, 2), (0.72, 4), (0.89, 4), (0.9, 5), (0.95, 5)])
def test_the_size_of_a_part_is_rounded_and_empty_parts_are_refused(fraction: float, number: int) -> None:
    data = Dataset(torch.zeros(5, 1), torch.tensor([0, 1, 0, 1, 0]), ("a", "b"))
    if number in (0, 5):
        with refused("5", fraction):
            split(data, fraction, 0)
    else:
        assert list(map(len, split(data, fraction, 0))) == [number, 5 - number]


@pytest.mark.parametrize("fraction", [0, 1, 1.5, True, "half", 0.01])
def test_an_invalid_fraction_is_refused(fraction: Any) -> None:
    with refused("fraction"):
        split(Dataset(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]), ("a", "b")), fraction, 0)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64, 10**30])
def test_any_integer_is_a_seed(seed: int) -> None:
    data = Dataset(torch.zeros(40, 1), torch.arange(40) % 2, ("a", "b"))
    assert len(split(data, 0.25, seed)[0]) == 10


def test_a_numpy_integer_is_a_seed() -> None:
    data = from_arrays(torch.arange(8.0).view(-1, 1), [0, 1] * 4)
    assert torch.equal(split(data, 0.5, np.int64(3))[0].inputs, split(data, 0.5, 3)[0].inputs)


def test_a_split_chooses_every_example_equally_often() -> None:
    data = Dataset(torch.zeros(12, 1), torch.tensor([0] * 7 + [1] * 5), ("a", "b"))
    chosen = torch.zeros(12)
    for seed in range(2000):
        index = split(data, 0.5, seed)[0].index
        assert index is not None
        chosen[index] += 1
    for label in (0, 1):  # within a class; the shares of the classes themselves are fixed
        times = chosen[data.labels == label]
        spread = (times.mean() * (1 - times.mean() / 2000)) ** 0.5
        assert ((times - times.mean()).abs() < 4.5 * spread).all()
