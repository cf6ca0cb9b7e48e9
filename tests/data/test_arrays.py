"""Arrays, tensors and lists as inputs and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from noisewise.data import from_arrays, read
from refused import refused

MASKED = np.ma.masked_equal(np.array([[1.0, 2.0], [3.0, -999.0], [4.0, 5.0]]), -999.0)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, list], ids=["numpy", "torch", "lists"])
def test_arrays_of_every_kind_give_the_same_data_set(kind: Any) -> None:
    data = from_arrays(kind([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), kind([3, 7, 3]), true_labels=kind([3, 3, 5]), ids=[8, 9, 10])
    assert torch.equal(data.inputs, torch.tensor([[1.0, 2], [3, 4], [5, 6]]))
    assert data.classes == ("3", "5", "7") and data.labels.tolist() == [0, 2, 0]
    assert data.true_labels is not None and data.true_labels.tolist() == [0, 0, 1]
    assert data.ids == ("8", "9", "10")


@pytest.mark.parametrize(
    ("labels", "classes", "names", "numbers"),
    [
        (["b", "a", "b"], None, ("a", "b"), [1, 0, 1]),
        (np.array(["b", "a", "b"]), ["b", "c", "a"], ("b", "c", "a"), [0, 2, 0]),
        ([0, 2, 1], ["x", "y", "z"], ("x", "y", "z"), [0, 2, 1]),
        ([2, 1, 2], ["1", "2"], ("1", "2"), [1, 0, 1]),
        (np.array([0.0, 1.0, 0.0], dtype=np.float32), None, ("0", "1"), [0, 1, 0]),
        ([True, False, True], None, ("False", "True"), [1, 0, 1]),
        (["1", "b", "1"], None, ("1", "b"), [0, 1, 0]),
    ],
)
def test_labels_become_class_numbers(labels: Any, classes: Any, names: tuple[str, ...], numbers: list[int]) -> None:
    data = from_arrays(torch.zeros(3, 2), labels, classes=classes)
    assert (data.classes, data.labels.tolist()) == (names, numbers)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 8, 6), (4, 1, 8, 6)), ((4, 8, 6, 3), (4, 3, 8, 6)), ((4, 3, 8, 6), (4, 3, 8, 6)), ((4, 1, 8, 3), (4, 1, 8, 3))],
)
def test_images_get_their_channels_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    images = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    data = from_arrays(images, [0, 1, 0, 1])
    assert data.inputs.shape == expected and data.inputs.dtype == torch.uint8
    if shape[-1] == 3 and shape[1] != 1:
        assert np.array_equal(data.inputs.numpy(), np.moveaxis(images, 3, 1))
        shares = from_arrays(images / 255, [0, 1, 0, 1]).inputs
        assert shares.dtype == torch.float32 and np.array_equal(shares.numpy(), np.moveaxis((images / 255).astype(np.float32), 3, 1))


@pytest.mark.parametrize(("shape", "read_as"), [((16, 15, 4), (4, 16, 15)), ((16, 15, 2), (2, 16, 15)), ((4, 16, 15), (4, 16, 15))])
def test_two_or_four_channels_come_first_too(shape: tuple[int, ...], read_as: tuple[int, ...]) -> None:
    assert read((np.zeros((6, *shape), np.uint8), [0, 1] * 3)).inputs.shape == (6, *read_as)
    maps = np.zeros((6, 64, 4, 4), np.float32)  # features of a network, not images
    assert read((maps, [0, 1] * 3)).inputs.shape == (6, 64, 4, 4)


def test_integers_and_read_only_or_reversed_arrays_become_features() -> None:
    frozen = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    frozen.flags.writeable = False
    assert from_arrays(frozen, [0, 1]).inputs.dtype == torch.float32
    reversed_rows = np.array([[1.0, 2], [3, 4]], dtype=np.float32)[::-1]
    assert from_arrays(reversed_rows, [0, 1]).inputs.tolist() == [[3, 4], [1, 2]]
    assert from_arrays(np.array([[1, 2.5], [True, 4]], dtype=object), [0, 1]).inputs.tolist() == [[1, 2.5], [1, 4]]


@pytest.mark.parametrize(
    "change", [torch.Tensor.bfloat16, torch.Tensor.requires_grad_, torch.Tensor.long], ids=["bfloat16", "grad", "long"]
)
def test_inputs_may_be_a_list_of_tensors(change: Any) -> None:
    rows = [change(torch.tensor([1.0, 2.0])), change(torch.tensor([3.0, 4.0]))]
    for given in (rows, tuple(rows)):
        data = from_arrays(given, [0, 1])
        assert torch.equal(data.inputs, torch.tensor([[1.0, 2.0], [3.0, 4.0]])) and not data.inputs.requires_grad
    images = from_arrays([torch.full((3, 4, 4), number, dtype=torch.uint8) for number in range(2)], [0, 1])
    assert images.inputs.dtype == torch.uint8 and images.inputs.shape == (2, 3, 4, 4)


def test_a_masked_array_without_masked_entries_is_read() -> None:
    whole = np.ma.masked_equal(np.array([[1.0, 2.0], [3.0, 4.0]]), -999.0)
    assert from_arrays(whole, [0, 1]).inputs.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("inputs", "labels", "options", "mentions"),
    [
        ([[1.0], [float("nan")], [2.0]], [0, 1, 0], {}, ("Row 1", "column 0", "nan")),
        (np.full((3, 2, 2), np.inf), [0, 1, 0], {}, ("Row 0", "(0, 0)", "inf")),
        ([[1.0], [2.0, 3.0]], [0, 1], {}, ("inputs", "shape")),
        ([torch.ones(1), torch.ones(2)], [0, 1], {}, ("inputs", "shape")),
        (MASKED, [0, 1, 0], {}, ("inputs", "from_arrays")),
        ([["a"], ["b"]], [0, 1], {}, ("inputs", "from_arrays")),
        (np.array([["a"], [1]], dtype=object), [0, 1], {}, ("inputs", "from_arrays", "'a'")),
        (np.array([[None], [1]], dtype=object), [0, 1], {}, ("Row 0", "column 0", "nan")),
        (scipy.sparse.eye_array(2).tocsr(), [0, 1], {}, ("inputs.toarray", "csr_array")),
        ([1.0, 2.0], [0, 1], {}, ("inputs", "from_arrays")),
        (np.zeros((0, 2)), [], {}, ("inputs", "from_arrays")),
        ([[1.0], [2.0]], [0, 1, 0], {}, ("2", "3")),
        ([[1.0], [2.0]], [0, 1], {"ids": ["a"]}, ("2", "1")),
        ([[1.0], [2.0]], [0, 1], {"ids": ["a", "a"]}, ("Row 1", "'a'", "row 0")),
        ([[1.0], [2.0]], [0, None], {}, ("Row 1",)),
        ([[1.0], [2.0]], np.array([0.0, np.nan]), {}, ("Row 1",)),
        ([[1.0], [2.0]], [0.5, 1], {}, ("Row 0", "0.5")),
        ([[1.0], [2.0]], np.eye(2), {}, ("(2, 2)",)),
        ([[1.0], [2.0]], [0, 0], {}, ("'0'",)),
        ([[1.0], [2.0]], [0, 2], {"classes": ["a", "b"]}, ("Row 1", "2", "'a'", "'b'")),
        ([[1.0], [2.0]], [0, 1], {"true_labels": [0, ""]}, ("Row 1",)),
    ],
)
def test_errors_in_arrays_name_the_row(inputs: Any, labels: Any, options: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        from_arrays(inputs, labels, **options)


def test_labels_in_bytes_are_text() -> None:
    data = from_arrays(np.zeros((3, 1)), np.array([b"cat", "é".encode(), b"cat"]))
    assert data.classes == ("cat", "é") and data.labels.tolist() == [0, 1, 0]


def test_text_labels_are_not_read_as_numbers() -> None:
    assert from_arrays(np.zeros((2, 1)), ["01", "1"]).classes == ("01", "1")


@pytest.mark.parametrize("labels", [[[1], [2, 3]], [(1,), (0,)], [{"a": 1}, {"b": 2}], [torch.zeros(2), torch.ones(2)]], ids=str)
def test_a_label_of_several_values_is_refused(labels: list[Any]) -> None:
    with refused("Row 0", "labels"):
        read((np.zeros((2, 2)), labels))


@pytest.mark.parametrize("labels", [[torch.tensor(1), torch.tensor(0)], [np.array(1), np.array(0)], [np.int64(1), np.int64(0)]], ids=str)
def test_labels_may_be_scalars_of_any_library(labels: list[Any]) -> None:
    data = read((np.zeros((2, 2)), labels))
    assert data.classes == ("0", "1") and data.labels.tolist() == [1, 0]


def test_a_true_label_of_minus_one_means_no_class() -> None:
    for labels, truth in (([0, 1, 0], [0, -1, 1]), (["0", "1", "0"], ["0", "-1", "1"])):
        data = read((torch.zeros(3, 1), labels), true_labels=truth)
        assert data.classes == ("0", "1") and data.true_labels is not None and data.true_labels.tolist() == [0, -1, 1]
    named = read((torch.zeros(2, 1), [0, 1]), true_labels=[-1, 1], classes=["cat", "dog"])
    assert named.true_labels is not None and named.true_labels.tolist() == [-1, 1]
    signs = read((torch.zeros(2, 1), [-1, 1]), true_labels=[1, -1])
    assert signs.classes == ("-1", "1") and signs.true_labels is not None and signs.true_labels.tolist() == [1, 0], "a label is −1"
    with refused("-1", "2"):
        read((torch.zeros(2, 1), [-1, 1]), classes=["cat", "dog"])
