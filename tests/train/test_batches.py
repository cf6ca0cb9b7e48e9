"""Which examples make up a batch."""

import math
from dataclasses import replace

import pytest
import torch
from PIL import Image
from small_runs import clusters
from torch import nn

from noisewise import fit
from noisewise.data import cut, number_of_batches, read
from refused import refused


class NotesLabels(nn.Module):
    """A linear model that notes the labels of its batches, which are its first input."""

    def __init__(self, classes):
        super().__init__()
        self.linear, self.seen = nn.Linear(2, classes), []

    def forward(self, inputs):
        if self.training:
            self.seen.append(inputs[:, 0].round().long().tolist())
        return self.linear(inputs)


def batches_of_labels(folder, **settings):
    """The labels of every batch of two epochs."""
    labels = torch.arange(240) % 6
    inputs = torch.stack([labels.float(), torch.randn(240, generator=torch.Generator().manual_seed(0))], 1)
    model = NotesLabels(6)
    fit(model, (inputs, labels), epochs=2, batch_size=24, normalise=False, device="cpu", folder=folder, **settings)
    return model.seen[1:]  # the first is the dry run


def test_classes_per_batch_limits_the_classes_of_a_batch(tmp_path):
    batches = batches_of_labels(tmp_path / "few", classes_per_batch=3)
    assert len(batches) == 20
    assert all(len(set(batch)) <= 3 and all(batch.count(label) % 8 == 0 for label in batch) for batch in batches)
    assert sum(len(set(batch)) == 3 for batch in batches) > 5
    for epoch in (batches[:10], batches[10:]):
        assert [sum(batch.count(label) for batch in epoch) for label in range(6)] == [40] * 6
    assert batches[:10] != batches[10:]
    assert sum(len(set(batch)) == 6 for batch in batches_of_labels(tmp_path / "any")) > 15


def test_classes_per_batch_must_divide_the_batch_size(tmp_path):
    with refused("classes_per_batch", 24, 5):
        batches_of_labels(tmp_path / "run", classes_per_batch=5)
    assert not (tmp_path / "run").exists()


class NotesSizes(nn.Module):
    """A linear model with batch normalisation that notes the sizes of its batches."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.layers, self.sizes = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(inputs), nn.Linear(inputs, classes)), []

    def forward(self, inputs):
        if self.training:
            self.sizes.append(len(inputs))
        return self.layers(inputs)


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"epochs": 2}, [32, 33] * 2),
        ({"steps": 3}, [32, 33, 32]),
        ({"epochs": 2, "batch_size": 64}, [65] * 2),
        ({"epochs": 1, "batch_size": 63}, [63, 2]),
    ],
)
def test_a_last_batch_of_one_example_is_added_to_the_batch_before_it(tmp_path, settings, sizes):
    model = NotesSizes(8, 3)
    run = fit(model, clusters(65), folder=tmp_path / "run", **{"batch_size": 32, "device": "cpu", **settings})
    assert model.sizes == [2, *sizes] and run.metrics[-1]["step"] == len(sizes)
    assert (run.dynamics.record.predictions(1) >= 0).all()


def test_a_last_batch_of_one_example_of_a_stream_is_added_to_the_batch_before_it(tmp_path):
    for number in range(9):
        path = tmp_path / f"images/{number % 2}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (20 * number, 0, 9)).save(path)
    model = NotesSizes(12, 2)
    stream = replace(read(tmp_path / "images", memory=0), workers=0)
    fit(model, stream, folder=tmp_path / "run", epochs=2, batch_size=4, device="cpu")
    assert model.sizes == [2, *[4, 5] * 2]


def test_cut_returns_every_example_once_in_the_expected_number_of_batches():
    for examples in range(1, 40):
        for size in range(1, 12):
            batches = cut(torch.arange(examples), size)
            assert torch.equal(torch.cat(batches), torch.arange(examples))
            assert len(batches) == number_of_batches(examples, size)
            assert all(len(batch) == size for batch in batches[:-1])
            assert len(batches[-1]) > 1 or size == 1 or examples == 1


@pytest.mark.parametrize("size", [128, 256])
def test_fifty_thousand_examples_are_cut_as_torch_splits_them(size):
    positions = torch.arange(50_000)
    assert [batch.tolist() for batch in cut(positions, size)] == [part.tolist() for part in positions.split(size)]
    assert number_of_batches(50_000, size) == math.ceil(50_000 / size)
