"""MNIST and Fashion-MNIST from small idx files, and the digits of scikit-learn."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from noisewise.data import load
from noisewise.data.mnist import read_idx
from refused import refused

RNG = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape) + array.tobytes()


@pytest.mark.parametrize(("name", "folder", "packed"), [("mnist", "MNIST/raw", False), ("fashion_mnist", "FashionMNIST/raw", True)])
def test_idx_files_are_read_gzipped_or_not(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    images, labels = RNG.integers(0, 256, (7, 28, 28), dtype=np.uint8), RNG.integers(0, 10, 7, dtype=np.uint8)
    (tmp_path / folder).mkdir(parents=True)
    for prefix, kept in (("train", 7), ("t10k", 3)):
        for what, array in (("images-idx3-ubyte", images[:kept]), ("labels-idx1-ubyte", labels[:kept])):
            content = idx(array)
            path = tmp_path / folder / f"{prefix}-{what}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)
    data = load(name, root=tmp_path)
    np.testing.assert_array_equal(data.inputs.numpy(), images[:, None])
    np.testing.assert_array_equal(data.labels.numpy(), labels)
    assert len(load(name, "test", tmp_path)) == 3 and len(data.classes) == 10


@pytest.mark.parametrize(
    "content",
    [
        b"",
        idx(np.zeros((2, 3), np.uint8))[:-1],
        idx(np.zeros((2, 3), np.uint8)) + b"0",
        b"\0\0\x0d\x01\0\0\0\1\0\0\0\0",
        b"\0\0\x09\x01\0\0\0\1\0",  # the right length, but signed bytes
        idx(np.zeros(3, np.uint8))[:6],
        gzip.compress(idx(np.zeros(300, np.uint8)), mtime=0)[:-4],  # a time would give the tests of two workers different names
        gzip.compress(b"text", mtime=0),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "labels").write_bytes(content)
    with refused(tmp_path / "labels"):
        read_idx(tmp_path / "labels")


def test_an_idx_file_is_unpacked_up_to_its_stated_size_or_the_limit(tmp_path: Path) -> None:
    for shape, values in (((3, 2), "6 values"), ((2**16, 2**15), "2,147,483,648 values")):
        header = bytes([0, 0, 8, 2]) + b"".join(length.to_bytes(4, "big") for length in shape)
        (tmp_path / "labels").write_bytes(gzip.compress(header + bytes(2**24), mtime=0))
        tracemalloc.start()
        with refused(tmp_path / "labels", values):
            read_idx(tmp_path / "labels")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20


def test_digits_are_those_of_scikit_learn_in_two_parts() -> None:
    from sklearn.datasets import load_digits

    train, test, digits = load("digits"), load("digits", "test"), load_digits()
    together = torch.cat([train.inputs, test.inputs]).squeeze(1)
    assert (len(train), len(test)) == (1437, 360)
    np.testing.assert_array_equal((together.double() * 16 / 255).round().numpy(), digits.images)
    np.testing.assert_array_equal(torch.cat([train.labels, test.labels]).numpy(), digits.target)
    assert train.index is not None and test.index is not None
    assert torch.equal(torch.cat([train.index, test.index]), torch.arange(1797))
    assert set(test.labels.tolist()) == set(range(10))
