"""`read` recognises what it is given: files, folders, names, arrays, data sets and loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import COLUMNS, write_image
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from noisewise.data import Dataset, ImageFiles, SimilarLabels, Stream, read
from refused import refused, warned


def test_read_recognises_every_kind_of_source(table: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read(table, **COLUMNS)
    assert len(data) == 4 and read(data) is data
    assert len(read(str(folder), size=5)) == 6
    assert len(read((np.zeros((3, 2)), [0, 1, 0]))) == 3
    assert read("digits", split="test").name == "digits"
    files = ImageFiles((str(folder / "cat" / "0.png"),), torch.tensor([0]), ("a", "b"))
    assert read(files).inputs.shape == (1, 3, 4, 6)
    assert isinstance(read(files, size=9, memory=0), Stream)
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "digits")
    assert read("digits").name == "digits" and len(read("./digits")) == 6


@pytest.mark.parametrize(
    ("source", "options", "mentions"),
    [
        ("nowhere.csv", {}, ("nowhere.csv",)),
        ("cifar1O", {}, ("cifar1O", "cifar10")),
        (3.5, {}, ("source",)),
        ("digits", {"label": "x"}, ("digits", "label")),
        (([[1.0], [2.0]], [0, 1]), {"label": "x"}, ("label",)),
        (Dataset(torch.zeros(1, 1), torch.tensor([0]), ("a", "b")), {"size": 3}, ("size",)),
    ],
)
def test_unknown_sources_and_options_are_refused(source: Any, options: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        read(source, **options)


@pytest.mark.parametrize("kind", ["table", "arrays", "folder"])
@pytest.mark.parametrize(
    ("labels", "classes", "number_of_classes"),
    [
        (["Yes", "yes", "no"], ("Yes", "no", "yes"), "2"),
        (["cat", "cat ", "dog"], ("cat", "dog"), "one"),
        (["a  b", "A b", "c"], ("A b", "a  b", "c"), "2"),
        (["café", "cafe\u0301", "tea"], ("cafe\u0301", "café", "tea"), "2"),
    ],
)
def test_labels_that_look_alike_give_one_warning(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...], number_of_classes: str, kind: str
) -> None:
    if kind == "table":
        (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{number},{label}\n" for number, label in enumerate(labels)))
    elif kind == "folder":
        for label in labels:
            write_image(tmp_path / label / "0.png")
    sources = {"table": tmp_path / "t.csv", "folder": tmp_path, "arrays": (np.zeros((3, 1)), np.array(labels))}
    with pytest.warns(SimilarLabels) as caught:
        data = read(sources[kind])
    warning = str(caught[0].message)
    assert data.classes == classes and len(caught) == 1 and "\n" not in warning
    assert all(repr(label) in warning for label in labels[:2]) and f"{number_of_classes} class" in warning
    assert caught[0].filename == __file__
    assert len(read(sources[kind], classes=(*classes, "other"))) == 3, "no warning for classes that the user names"


def test_a_tensor_data_set_is_read_as_inputs_and_labels() -> None:
    inputs, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    data = read(TensorDataset(inputs, labels), classes=["a", "b", "c"], name="six")
    assert torch.equal(data.inputs, inputs) and torch.equal(data.labels, labels) and (data.name, data.classes) == ("six", ("a", "b", "c"))
    with refused("TensorDataset", "1"):
        read(TensorDataset(inputs))
    with refused("TensorDataset", "label"):
        read(TensorDataset(inputs, labels), label="x")


def test_a_loader_is_read_as_its_data_set_unless_it_samples_a_part() -> None:
    pairs = TensorDataset(torch.arange(10.0).view(-1, 1), torch.arange(10) % 2)
    assert read(DataLoader(pairs, batch_size=3, shuffle=True, drop_last=True)).inputs.flatten().tolist() == list(range(10))
    assert read(DataLoader(Subset(pairs, [7, 2]))).inputs.flatten().tolist() == [7, 2]

    def doubled(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([2 * inputs for inputs, _ in rows]), torch.stack([label for _, label in rows])

    assert read(DataLoader(pairs, batch_size=4, collate_fn=doubled)).inputs.flatten().tolist() == list(range(0, 20, 2))
    with refused("DataLoader"):
        read(DataLoader(Subset(pairs, [])))
    part = BatchSampler(SubsetRandomSampler([7, 2]), 2, drop_last=False)
    for some in ({"sampler": SubsetRandomSampler([7, 2])}, {"sampler": [7, 2]}, {"batch_sampler": part}):
        with refused("2", "10"):
            read(DataLoader(pairs, **some))
    for sampler in (DistributedSampler(pairs, num_replicas=2, rank=0), list(range(9, -1, -1))):
        assert len(read(DataLoader(pairs, sampler=sampler))) == 10
    with warned("WeightedRandomSampler"):
        assert len(read(DataLoader(pairs, sampler=WeightedRandomSampler([0.1] * 10, 10)))) == 10


def test_a_loader_of_examples_with_different_lengths_is_refused() -> None:
    pairs: Any = [(torch.ones(size), size % 2) for size in (2, 3, 4)]
    with refused("DataLoader"):
        read(DataLoader(pairs))


def test_an_exception_from_a_data_set_in_a_loader_is_passed_on() -> None:
    class Broken(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError) as caught:
        read(DataLoader(Broken(torch.zeros(4, 1), torch.arange(4) % 2)))
    assert "the disk is gone" in str(caught.value)
