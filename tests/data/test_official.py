"""The other official data sets, from small files in their layouts, and all of them from the real files if NOISEWISE_DATA has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from noisewise.data import available, describe, fetch, files, load
from noisewise.data import cifar as _cifar
from noisewise.data._files import ImageFiles
from noisewise.data._official import registry
from noisewise.data.mnist import FASHION_FILES, MNIST_FILES
from real_data import real
from refused import refused


def write_image(path: Path, shade: int, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 0, 255 - shade)).save(path)


def test_image_files_decode_to_their_size_and_colours(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 10)
    write_image(tmp_path / "b.png", 200, (12, 8))
    Image.new("L", (6, 4), 77).save(tmp_path / "grey.png")
    paths = tuple(str(tmp_path / name) for name in ("a.png", "b.png", "grey.png"))
    listed = ImageFiles(paths, torch.tensor([0, 1, 1]), ("x", "y"), groups={"camera": torch.tensor([5, 6, 7])})
    data = listed.load((4, 6))
    assert data.inputs.shape == (3, 3, 4, 6) and data.ids == paths
    assert data.inputs[:, :, 2, 3].tolist() == [[10, 0, 245], [200, 0, 55], [77, 77, 77]]
    part = listed.take(torch.tensor([True, False, True]))
    assert part.paths == (paths[0], paths[2]) and part.labels.tolist() == [0, 1] and part.groups["camera"].tolist() == [5, 7]


def test_an_unreadable_image_file_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "good.png", 10)
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:-30])
    (tmp_path / "text.jpg").write_text("not an image")
    for name in ("cut.png", "text.jpg", "missing.png"):
        with refused(name):
            ImageFiles((str(tmp_path / "good.png"), str(tmp_path / name)), torch.tensor([0, 0]), ("x",)).load((4, 6))


def test_image_files_too_many_for_memory_are_refused_before_any_is_read() -> None:
    listed = ImageFiles(("missing.jpg",) * 10**6, torch.zeros(10**6, dtype=torch.int64), ("x",), name="clothes")
    with refused("1000000", "clothes", "183 GiB"):
        listed.load((256, 256))


@pytest.mark.parametrize(("labels", "mentions"), [(torch.tensor([0, 2]), ("0", "1")), (torch.tensor([0]), ("int64", "(2,)"))])
def test_image_files_check_their_labels(labels: torch.Tensor, mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        ImageFiles(("a", "b"), labels, ("x", "y"))


def write_clothing(root: Path) -> Path:
    folder = root / "clothing1M"
    shown = {f"images/{number}/picture_{number}.jpg": number for number in range(6)}
    for image, number in shown.items():
        write_image(folder / image, 40 * number)
    keys = list(shown)
    lists = {"noisy_train": keys[:3], "clean_train": keys[2:4], "clean_val": keys[4:5], "clean_test": keys[5:]}
    for name, own in lists.items():
        (folder / f"{name}_key_list.txt").write_text("\n".join(own) + "\n")
    (folder / "noisy_label_kv.txt").write_text("".join(f"{key} {13 - number}\n" for key, number in shown.items()))
    (folder / "clean_label_kv.txt").write_text("".join(f"{key} {number}\n" for key, number in shown.items()))
    return folder


def test_clothing1m_trains_on_noisy_labels_and_tests_on_clean_ones(tmp_path: Path) -> None:
    folder = write_clothing(tmp_path)
    train = files("clothing1m", root=tmp_path)
    assert train.labels.tolist() == [13, 12, 11] and train.true_labels is None and len(train.classes) == 14
    assert train.paths[1] == str(folder / "images/1/picture_1.jpg") and train.ids is not None and train.ids[1] == "images/1/picture_1.jpg"
    for split, labels in (("clean_train", [2, 3]), ("val", [4]), ("test", [5])):
        listed = files("clothing1m", split, tmp_path)
        assert listed.labels.tolist() == labels and listed.true_labels is not None and listed.true_labels.tolist() == labels
    assert load("clothing1m", "test", tmp_path).inputs.shape == (1, 3, 256, 256)


def test_errors_in_clothing1m_name_the_line_or_image(tmp_path: Path) -> None:
    folder = write_clothing(tmp_path)
    (folder / "noisy_train_key_list.txt").write_text("images/9/other.jpg\n")
    with refused("images/9/other.jpg", "clothing1m"):
        files("clothing1m", root=tmp_path)
    (folder / "noisy_label_kv.txt").write_text("images/0/picture_0.jpg 1\nimages/1/picture_1.jpg\n")
    with refused("Line 2", "noisy_label_kv"):
        files("clothing1m", root=tmp_path)
    shutil.rmtree(folder / "images")
    with refused("images/5/picture_5.jpg"):
        files("clothing1m", "test", tmp_path)


def test_webvision_keeps_the_first_classes(tmp_path: Path) -> None:
    folder = tmp_path / "webvision"
    (folder / "info").mkdir(parents=True)
    shown = {f"google/q{label:04d}/{number}.jpg": label for number, label in enumerate([0, 1, 49, 50, 199, 399, 2])}
    for image, label in shown.items():
        write_image(folder / image, label % 250)
    (folder / "info/train_filelist_google.txt").write_text("".join(f"{image} {label}\n" for image, label in shown.items()))
    write_image(folder / "val_images_256/val000001.jpg", 5)
    (folder / "info/val_filelist.txt").write_text("val000001.jpg 7\nval000002.jpg 700\n")
    (folder / "info/synsets.txt").write_text("".join(f"n{number:08d} thing {number}, other\n" for number in range(1000)))
    mini = files("webvision", root=tmp_path)
    assert mini.labels.tolist() == [0, 1, 49, 2] and len(mini.classes) == 50 and mini.classes[49] == "thing 49, other"
    assert mini.true_labels is None and mini.name == "webvision(classes=50)" and all(Path(path).is_file() for path in mini.paths)
    assert files("webvision(classes=200)", root=tmp_path).labels.tolist() == [0, 1, 49, 50, 199, 2]
    assert len(files("webvision(400)", root=tmp_path)) == 7
    test = files("webvision", "test", tmp_path)
    assert test.paths == (str(folder / "val_images_256/val000001.jpg"),) and test.labels.tolist() == [7]
    with refused("classes", "[2, 1000]", 0):
        files("webvision(classes=0)", root=tmp_path)


def write_mars(root: Path) -> None:
    folder = root / "MARS"
    for identity, camera, sequence, frames in [("0001", 1, 1, 2), ("0001", 1, 2, 1), ("0001", 2, 1, 2), ("0007", 1, 1, 3)]:
        for frame in range(1, frames + 1):
            write_image(folder / "bbox_train" / identity / f"{identity}C{camera}T{sequence:04d}F{frame:03d}.jpg", 9)
    for identity, camera, frames in [("00-1", 1, 1), ("0000", 2, 2), ("0002", 1, 2), ("0002", 3, 1), ("0004", 5, 1)]:
        for frame in range(1, frames + 1):
            write_image(folder / "bbox_test" / identity / f"{identity}C{camera}T0001F{frame:03d}.jpg", 9)


def test_tracklets_of_mars_come_from_file_names(tmp_path: Path) -> None:
    write_mars(tmp_path)
    (tmp_path / "MARS/bbox_train/0001/Thumbs.db").write_text("")
    train = files("mars", root=tmp_path)
    assert train.classes == ("0001", "0007") and train.labels.tolist() == [0] * 5 + [1] * 3
    assert train.groups["camera"].tolist() == [1, 1, 1, 2, 2, 1, 1, 1]
    assert train.groups["tracklet"].tolist() == [0, 0, 1, 2, 2, 3, 3, 3]
    assert train.groups["frame"].tolist() == [1, 2, 1, 1, 2, 1, 2, 3] and train.groups["identity"].tolist() == [1] * 5 + [7] * 3
    assert load("mars", root=tmp_path).inputs.shape == (8, 3, 256, 128)
    (tmp_path / "empty/MARS/bbox_train").mkdir(parents=True)
    with refused("mars", tmp_path / "empty"):
        files("mars", root=tmp_path / "empty")
    write_image(tmp_path / "MARS/bbox_train/0001/holiday.jpg", 9)
    with refused("holiday.jpg"):
        files("mars", root=tmp_path)


def test_the_mars_test_split_has_no_junk_and_the_official_queries(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_mars(tmp_path)
    test = files("mars", "test", tmp_path)
    assert test.groups["identity"].tolist() == [0, 0, 2, 2, 2, 4] and "query" not in test.groups
    assert test.classes == ("0000", "0002", "0004") and test.labels.tolist() == [0, 0, 1, 1, 1, 2]
    info = tmp_path / "MARS/info"
    info.mkdir()
    names = sorted(path.name for path in (tmp_path / "MARS/bbox_test").glob("*/*.jpg"))
    (info / "test_name.txt").write_text("\n".join(names) + "\n")
    first = names.index("0002C1T0001F001.jpg") + 1
    savemat(
        info / "tracks_test_info.mat", {"track_test_info": np.array([[1, 2, 0, 2], [first, first + 1, 2, 1], [first + 2, first + 2, 2, 3]])}
    )
    savemat(info / "query_IDX.mat", {"query_IDX": np.array([[2]])})
    assert files("mars", "test", tmp_path).groups["query"].tolist() == [0, 0, 1, 1, 0, 0]


def test_queries_of_pku_reid_come_from_the_first_camera(tmp_path: Path) -> None:
    for identity in ("003", "012"):
        for camera in (1, 2):
            for orientation in range(1, 9):
                write_image(tmp_path / "pku-reid/test" / identity / f"{camera:02d}_{orientation}.png", 20 * orientation, (48, 128))
    test = files("pku_reid", "test", tmp_path)
    assert test.classes == ("003", "012") and test.groups["identity"].unique().tolist() == [3, 12]
    assert test.groups["tracklet"].tolist() == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
    assert test.groups["orientation"].tolist() == list(range(1, 9)) * 4
    assert test.groups["query"].tolist() == ([1] * 8 + [0] * 8) * 2
    assert test.groups["gallery"].tolist() == ([0] * 8 + [1] * 8) * 2
    data = load("pku_reid", "test", tmp_path)
    assert data.inputs.shape == (32, 3, 128, 48) and data.inputs[3, 0].unique().tolist() == [80]


def test_every_data_set_is_described_and_missing_in_an_empty_folder(tmp_path: Path) -> None:
    assert set(available()) >= {"cifar10", "cifar100", "cifar10n", "cifar100n", "vehicles10", "mnist", "fashion_mnist", "digits"}
    for name in available():
        described = describe(name, tmp_path)
        assert described.name == name and described.present == (name == "digits")
        assert all((described.summary, described.size, described.licence, described.home.startswith("http"), "test" in described.splits))
        assert registry.get(repr(registry.get(name))).name == name
        if not described.present:
            with refused(name, "NOISEWISE_DATA"):
                load(name, root=tmp_path)


def test_data_that_must_be_requested_are_not_fetched(tmp_path: Path) -> None:
    assert not describe("clothing1m", tmp_path).fetchable and describe("cifar10", tmp_path).fetchable
    with refused("clothing1m"):
        fetch("clothing1m", tmp_path)
    write_clothing(tmp_path)
    assert fetch("clothing1m", tmp_path) == tmp_path and fetch("digits", tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("call", "mentions"),
    [
        (lambda: load("cifar11"), ("cifar11", "cifar10")),
        (lambda: load("digits", "validation"), ("split", "train", "test", "validation")),
        (lambda: load("cifar100(labels=medium)"), ("labels", "CIFAR100", "fine", "coarse")),
        (lambda: load("cifar10n(best)"), ("labels", "CIFAR10N", "aggre")),
        (lambda: files("digits"), ("clothing1m", "pku_reid", "digits")),
    ],
)
def test_unknown_names_splits_and_options_are_refused(call: object, mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    "official",
    [
        pytest.param(_cifar.CIFAR10_FILES, marks=real("cifar10")),
        pytest.param(_cifar.CIFAR100_FILES, marks=real("cifar100")),
        pytest.param(_cifar.CIFAR10N_FILES, marks=real("cifar10n")),
        pytest.param(_cifar.CIFAR100N_FILES, marks=real("cifar100n")),
        pytest.param(MNIST_FILES, marks=real("mnist")),
        pytest.param(FASHION_FILES, marks=real("fashion_mnist")),
    ],
    ids=lambda official: official.name,
)
def test_real_files_have_the_official_checksums(official: _cifar.Holding) -> None:
    assert official.verified(Path(os.environ["NOISEWISE_DATA"]))


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        pytest.param("cifar10", 5000, 1000, marks=real("cifar10")),
        pytest.param("cifar100", 500, 100, marks=real("cifar100")),
        pytest.param("cifar100(labels=coarse)", 2500, 500, marks=real("cifar100")),
        pytest.param("vehicles10", 500, 100, marks=real("vehicles10")),
        pytest.param("fashion_mnist", 6000, 1000, marks=real("fashion_mnist")),
    ],
)
def test_real_classes_are_equally_large(name: str, train: int, test: int) -> None:
    for split, number in (("train", train), ("test", test)):
        data = load(name, split)
        assert torch.bincount(data.labels).tolist() == [number] * len(data.classes)


@real("mnist")
def test_real_mnist_has_its_counts() -> None:
    assert torch.bincount(load("mnist", "test").labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert load("mnist").inputs.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)


@real("cifar10n", "cifar100n")
def test_real_human_labels_have_the_published_noise_rates() -> None:
    data = load("cifar10")
    rates = {name: round(100 * float((labels != data.labels).float().mean()), 2) for name, labels in data.human.items()}
    assert rates == {"aggre": 9.01, "random1": 17.23, "random2": 18.12, "random3": 17.64, "worst": 40.21}
    fine = load("cifar100n")
    assert fine.wrong is not None and round(100 * float(fine.wrong.float().mean()), 2) == 40.20


@real("cifar100")
def test_real_cifar100_has_the_class_names_of_its_meta_file() -> None:
    path = Path(os.environ["NOISEWISE_DATA"]) / "cifar-100-python" / "meta"
    if not path.exists():
        pytest.skip("NOISEWISE_DATA has no cifar-100-python/meta")
    from noisewise.data._pickles import load_pickle

    meta = load_pickle(path)
    assert tuple(meta["fine_label_names"]) == load("cifar100", "test").classes
    assert tuple(meta["coarse_label_names"]) == load("cifar100(labels=coarse)", "test").classes


@real("pku_reid")
def test_real_pku_reid_has_eight_frames_in_every_tracklet() -> None:
    train, test = files("pku_reid"), files("pku_reid", "test")
    assert not set(train.classes) & set(test.classes)
    for listed in (train, test):
        assert set(torch.bincount(listed.groups["tracklet"]).tolist()) == {8}
