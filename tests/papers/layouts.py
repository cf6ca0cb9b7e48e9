"""Tiny files, laid out as the makers of each data set lay out theirs, for the package's own readers to read."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from noisewise.data.cifar import CIFAR100_CLASSES, CIFAR100_COARSE, VEHICLES

RNG = np.random.default_rng(0)
EXAMPLES = 12


def write_all(root: Path) -> None:
    """Every data set the papers use."""
    for write in (_cifar10, _cifar100, _mnist, _clothing1m, _webvision, _mars, _pku_reid):
        write(root)


def _records(labels: np.ndarray) -> bytes:
    images = RNG.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    return np.concatenate([labels[:, None].astype(np.uint8), images], 1).tobytes()


def _cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    labels = [RNG.integers(0, 10, EXAMPLES) for _ in range(6)]
    for name, own in zip((*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"), labels, strict=True):
        (folder / f"{name}.bin").write_bytes(_records(own))
    true = np.concatenate(labels[:5])
    given = dict.fromkeys(("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"), _some_wrong(true, 10))
    _save_human(root, "CIFAR-10_human.pt", {"clean_label": true, **given})


def _cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    fine = np.resize([CIFAR100_CLASSES.index(name) for name in VEHICLES], EXAMPLES)
    coarse = np.array(CIFAR100_COARSE)[fine]
    for split in ("train", "test"):
        images = RNG.integers(0, 256, (EXAMPLES, 3072), dtype=np.uint8)
        batch = {"data": images, "fine_labels": fine.tolist(), "coarse_labels": coarse.tolist()}
        (folder / split).write_bytes(pickle.dumps(batch, 2))
    _save_human(root, "CIFAR-100_human.pt", {"clean_label": fine, "noisy_label": _some_wrong(fine, 100)})


def _some_wrong(labels: np.ndarray, classes: int) -> np.ndarray:
    return (labels + (np.arange(len(labels)) % 3 == 0)) % classes


def _save_human(root: Path, name: str, labels: dict[str, np.ndarray]) -> None:
    (root / "CIFAR-N").mkdir(exist_ok=True)
    torch.save(labels, root / "CIFAR-N" / name)


def _mnist(root: Path) -> None:
    folder = root / "MNIST/raw"
    folder.mkdir(parents=True)
    arrays = {
        "images-idx3": RNG.integers(0, 256, (EXAMPLES, 28, 28), dtype=np.uint8),
        "labels-idx1": np.arange(EXAMPLES, dtype=np.uint8) % 10,
    }
    for prefix in ("train", "t10k"):
        for what, array in arrays.items():
            header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
            (folder / f"{prefix}-{what}-ubyte").write_bytes(header + array.tobytes())


def _picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)


def _clothing1m(root: Path) -> None:
    folder = root / "clothing1M"
    images = [f"images/{number}/picture.jpg" for number in range(2 * EXAMPLES)]
    for image in images:
        _picture(folder / image)
    (folder / "noisy_train_key_list.txt").write_text("\n".join(images[:EXAMPLES]))
    (folder / "clean_test_key_list.txt").write_text("\n".join(images[EXAMPLES:]))
    for name in ("noisy_label_kv.txt", "clean_label_kv.txt"):
        (folder / name).write_text("".join(f"{image} {number % 14}\n" for number, image in enumerate(images)))


def _webvision(root: Path) -> None:
    folder = root / "webvision"
    (folder / "info").mkdir(parents=True)
    (folder / "info/synsets.txt").write_text("".join(f"n{number:08d} thing {number}\n" for number in range(1000)))
    for listed, where, inside in (("train_filelist_google", "google/q0000", ""), ("val_filelist", "", "val_images_256")):
        images = [str(Path(where) / f"{number}.jpg") for number in range(EXAMPLES)]
        for image in images:
            _picture(folder / inside / image)
        (folder / f"info/{listed}.txt").write_text("".join(f"{image} {number * 4}\n" for number, image in enumerate(images)))


def _mars(root: Path) -> None:
    """Three people to train on; two to test, each before two cameras, and the makers' lists: the first camera's tracklets ask."""
    for person in ("0001", "0003", "0005"):
        for frame in range(1, 5):
            _picture(root / "MARS/bbox_train" / person / f"{person}C1T0001F{frame:03d}.jpg")
    frames, tracklets = [], []
    for person, camera in itertools.product(("0002", "0004"), (1, 2)):
        names = [f"{person}C{camera}T0001F{frame:03d}.jpg" for frame in range(1, 4)]
        for name in names:
            _picture(root / "MARS/bbox_test" / person / name)
        tracklets.append([len(frames) + 1, len(frames) + len(names), int(person), camera])
        frames += names
    (root / "MARS/info").mkdir()
    (root / "MARS/info/test_name.txt").write_text("".join(f"{name}\n" for name in frames))
    savemat(root / "MARS/info/tracks_test_info.mat", {"track_test_info": np.array(tracklets)})
    savemat(root / "MARS/info/query_IDX.mat", {"query_IDX": np.array([[1, 3]])})


def _pku_reid(root: Path) -> None:
    """Three people to train on and two others to test, each before two cameras."""
    for split, people in (("train", ("001", "003", "004")), ("test", ("002", "005"))):
        for person, camera, orientation in itertools.product(people, (1, 2), (1, 2)):
            _picture(root / "pku-reid" / split / person / f"{camera:02d}_{orientation}.png")
