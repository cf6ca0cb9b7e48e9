"""The user's own data: what is read, and the one sentence for whatever is wrong with it."""

from __future__ import annotations

import builtins
import contextlib
import datetime
import os
import re
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from PIL import Image, ImageOps, features
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from costs import Compared, with_peak
from fuzzing import confined
from noisewise import Run, fit
from noisewise.correct import correct, retrain
from noisewise.data import (
    Dataset,
    ImageFiles,
    SimilarLabels,
    Stream,
    Unreadable,
    batches,
    from_arrays,
    from_folder,
    from_hf,
    from_table,
    read,
    split,
)
from noisewise.data._table import _choose_features, _Table
from noisewise.errors import InputError

CSV = """name,width,height,kind,truth
a1,1.5,10,cat,cat
a2,2.5,20,dog,cat
a3,-3,3e1,cat,cat
a4,.5,40,bird,dog
"""
COLUMNS: dict[str, Any] = {"label": "kind", "id": "name", "true_label": "truth"}
MASKED = np.ma.masked_equal(np.array([[1.0, 2.0], [3.0, -999.0], [4.0, 5.0]]), -999.0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def picture(path: Path, size: tuple[int, int] = (6, 4), colour: tuple[int, int, int] = (10, 20, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    for number in range(3):
        picture(root / "cat" / f"{number}.png", colour=(number, 0, 0))
        picture(root / "dog" / "deeper" / f"{number}.JPG", colour=(0, 100, 0))
    (root / "cat" / "notes.txt").write_text("no image")
    (root / ".hidden").mkdir()
    picture(root / "cat" / ".thumbnails" / "0.png")
    return root


def refused(message: str, reader: Any, *args: Any, **options: Any) -> None:
    """The reader raises `InputError` with this in its message, in one sentence or two, on one line."""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        reader(*args, **options)
    assert "\n" not in str(caught.value) and str(caught.value).endswith((".", "?"))


def test_a_table_gives_features_labels_truth_and_ids(table: Path) -> None:
    data = from_table(table, **COLUMNS)
    assert torch.equal(data.inputs, torch.tensor([[1.5, 10], [2.5, 20], [-3, 30], [0.5, 40]]))
    assert data.classes == ("bird", "cat", "dog")
    assert data.labels.tolist() == [1, 2, 1, 0]
    assert data.true_labels is not None and data.true_labels.tolist() == [1, 1, 1, 2]
    assert data.ids == ("a1", "a2", "a3", "a4")
    assert data.index is not None and data.index.tolist() == [0, 1, 2, 3]
    assert (data.name, data.inputs.dtype) == ("pets", torch.float32)


def test_features_can_be_named_and_ordered(table: Path) -> None:
    data = from_table(table, label="kind", features=["height", "width"])
    assert data.inputs[1].tolist() == [20, 2.5]
    assert from_table(table, label="kind", features="width").inputs.shape == (4, 1)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_a_byte_order_mark_blank_lines_and_windows_line_ends_are_read(table: Path, separator: str) -> None:
    expected = from_table(table, **COLUMNS)
    table.write_bytes(b"\xef\xbb\xbf" + CSV.replace(",", separator).replace("\n", "\r\n").encode() + b"\r\n\r\n")
    assert torch.equal(from_table(table, **COLUMNS).inputs, expected.inputs)


def test_quoted_text_may_hold_separators_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_text('x,label\n1,"a, b"\n2,"c\nd"\n3,\n')
    refused("Row 2 (line 5), column 'label' of quoted.csv, is empty", from_table, path)
    path.write_text('x,label\n1,"a, b"\n2,"c\nd"\n')
    assert from_table(path).classes == ("a, b", "c\nd")
    path.write_text("x,label\n1,a;b;c\n2,d;e;f\n")
    assert from_table(path).classes == ("a;b;c", "d;e;f"), "the line of names says what separates"


@pytest.mark.parametrize("header", ["width;height;kind", "width, in cm;height, in cm;kind", '"width, in cm";"height, or so";"kind"'])
@pytest.mark.parametrize("cells", [2**18, 1])
def test_decimal_commas_are_read_where_columns_are_separated_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, cells: int
) -> None:
    monkeypatch.setattr("noisewise.data._table._CELLS", cells)
    path = tmp_path / "pets.csv"
    path.write_text(f"{header}\n1;2,5;a,b\n1,5;-3;c\n,5;1,5e1;c\n")
    for separator in (";", "\t"):
        path.write_text(path.read_text().replace(";", separator))
        data = read(path, label="kind")
        assert data.inputs.tolist() == [[1, 2.5], [1.5, -3], [0.5, 15]] and data.classes == ("a,b", "c")
    path.write_text(path.read_text() + "wide\t1\tc\n")
    refused("Row 3 (line 5), column", read, path, label="kind")
    refused("is 'wide', not a number", read, path, label="kind")
    path.write_text("x;label\n1,5;a\n2.5;b\n")  # which may be 25
    refused("column 'x' of pets.csv have decimal commas", read, path)
    path.write_text("x;label\nso, so.;a\n2;b\n")
    refused("column 'x' of pets.csv, is 'so, so.', not a number", read, path)
    path.write_text('x,label\n"1,5",a\n2,b\n')
    refused("Row 0 (line 2), column 'x' of pets.csv, is '1,5', not a number", read, path)


def test_a_long_file_is_refused_for_its_first_rows_before_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    text = "a review of some length, " * 40
    with path.open("wb") as file:
        file.write(b"review,label\n")
        for number in range(5000):
            file.write(f'"{number} {text}",{number % 2}\n'.encode())
        file.write(b"\xff\n")  # what was read to the end would be refused for this
    refused("Row 0 (line 2), column 'review' of reviews.csv, is '0 a review", read, path)
    refused("There is no column of reviews.csv named 'lable'. Did you mean 'label'?", read, path, label="lable")
    with path.open("a") as file:
        file.write("late,1,2\n")
    refused("'size' parameter of from_table must be left out", read, path, size=8)


@pytest.mark.parametrize("kind", ["table", "arrays", "folder"])
@pytest.mark.parametrize(
    ("labels", "classes", "said"),
    [
        (["Yes", "yes", "no"], ("Yes", "no", "yes"), "'Yes' and 'yes' in .* look alike and are read as 2 classes"),
        (["cat", "cat ", "dog"], ("cat", "dog"), "'cat' and 'cat ' in .* look alike and are read as one class"),
        (["a  b", "A b", "c"], ("A b", "a  b", "c"), "'A b' and 'a  b' in .* look alike and are read as 2 classes"),
        (["café", "cafe\u0301", "tea"], ("cafe\u0301", "café", "tea"), "look alike and are read as 2 classes"),
    ],
)
def test_labels_that_look_alike_are_named_in_one_line(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...], said: str, kind: str
) -> None:
    if kind == "table":
        (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{number},{label}\n" for number, label in enumerate(labels)))
    elif kind == "folder":
        for label in labels:
            picture(tmp_path / label / "0.png")
    sources = {"table": tmp_path / "t.csv", "folder": tmp_path, "arrays": (np.zeros((3, 1)), np.array(labels))}
    with pytest.warns(SimilarLabels, match=said) as caught:
        data = read(sources[kind])
    assert data.classes == classes and len(caught) == 1 and "\n" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert len(read(sources[kind], classes=(*classes, "other"))) == 3, "classes that are named are meant"


def test_true_and_false_are_numbers_in_a_file_as_in_a_data_frame(frame: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisewise.data._table._CELLS", 6)  # two rows at a time
    frame["tame"] = [True, False, False, True]
    frame.to_csv(tmp_path / "tame.csv", index=False)
    read_back = read(tmp_path / "tame.csv", **COLUMNS)
    assert read_back.features == ("width", "height", "tame") and read_back.inputs[:, 2].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert torch.equal(read_back.inputs, read(frame, **COLUMNS).inputs)
    text = (tmp_path / "tame.csv").read_text().replace("True", " TRUE").replace("False", "false")
    (tmp_path / "tame.csv").write_text(text)
    assert torch.equal(read_back.inputs, read(tmp_path / "tame.csv", **COLUMNS).inputs)
    (tmp_path / "tame.csv").write_text(text.replace("dog,false", "dog,rather").replace("cat,false", "cat,rather"))
    refused("column 'tame' of tame.csv, is 'rather', not a number", read, tmp_path / "tame.csv", **COLUMNS)


def test_numbers_as_labels_are_sorted_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("x,label\n1,10\n2,9\n3,-1\n")
    data = from_table(path)
    assert data.classes == ("-1", "9", "10")
    assert data.labels.tolist() == [2, 1, 0]


def test_a_test_set_counts_classes_as_the_training_set_does(table: Path) -> None:
    train = from_table(table, **COLUMNS)
    table.write_text("\n".join(CSV.splitlines()[:2] + CSV.splitlines()[3:4]))
    test = from_table(table, classes=train.classes, **COLUMNS)
    assert test.classes == train.classes and test.labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("40,bird", "40, ", {}, "Row 3 (line 5), column 'kind' of pets.csv, is empty; fill it in or leave the row out."),
        ("bird,dog", "bird,", {}, "Row 3 (line 5), column 'truth' of pets.csv, is empty"),
        (
            "",
            "",
            {"label": "width", "features": ["height"]},
            "Row 0 (line 2), column 'width' of pets.csv, is '1.5'",
        ),
        ("", "", {"label": "kid"}, "There is no column of pets.csv named 'kid'. Did you mean 'kind'?"),
        ("", "", {"features": ["with"]}, "There is no column of pets.csv named 'with'. Did you mean 'width'"),
        (
            "a4,",
            "a2,",
            {},
            "Row 3 (line 5), column 'name' of pets.csv, is 'a2', as is row 1 (line 3)",
        ),
        ("a3,", ",", {}, "Row 2 (line 4), column 'name' of pets.csv, is empty"),
        (
            "2.5",
            "wide",
            {},
            "Row 1 (line 3), column 'width' of pets.csv, is 'wide', not a number; set 'features'",
        ),
        ("2.5", "", {}, "Row 1 (line 3), column 'width' of pets.csv, is empty"),
        ("2.5", "nan", {}, "Row 1 (line 3), column 'width' of pets.csv, is nan, not a finite number"),
        ("2.5", "1e39", {}, "Row 1 (line 3), column 'width' of pets.csv, is 1e39, too large for a float32"),
        (
            "",
            "",
            {"id": None},
            "Row 0 (line 2), column 'name' of pets.csv, is 'a1', not a number; set 'id'",
        ),
        ("a2,2.5,20", "a2,2.5", {}, "Row 1 (line 3) of pets.csv has 4 columns and the first line 5"),
        ("a2,2.5,20", "a2,2,5,20", {}, "Row 1 (line 3) of pets.csv has 6 columns and the first line 5"),
        ("height", "width", {}, "The columns of pets.csv must have different names. Got 'width' 2 times"),
        ("a2", '"a2', {}, "of pets.csv cannot be read as CSV"),
        (
            "",
            "",
            {"classes": ["cat", "dog"]},
            "Row 3 (line 5), column 'kind' of pets.csv, is 'bird', which is not one of the 2 classes 'cat', 'dog'",
        ),
        ("", "", {"classes": ["cat", "cat"]}, "'classes' parameter of a data set must be"),
        ("", "", {"features": ["kind"]}, "'features' parameter of from_table must be"),
        ("", "", {"true_label": "kind"}, "'label' parameter of from_table must be"),
        ("", "", {"features": []}, "No column of pets.csv is left to learn from"),
        ("", "", {"size": 32}, "'size' parameter of from_table must be left out"),
        (
            "",
            "",
            {"image": "width", "features": ["height"]},
            "'features' parameter of from_table must be left out",
        ),
    ],
)
def test_what_is_wrong_in_a_table_is_named(table: Path, old: str, new: str, options: dict[str, Any], message: str) -> None:
    table.write_text(CSV.replace(old, new, 1) if old else CSV, encoding="utf-8")
    before = sorted(table.parent.rglob("*"))
    refused(message, from_table, table, **COLUMNS | options)
    assert sorted(table.parent.rglob("*")) == before


def test_one_class_is_refused(table: Path) -> None:
    table.write_text("x,kind\n1,cat\n2,cat\n")
    refused("at least two classes, and column 'kind' of pets.csv has only 'cat'", from_table, table, label="kind")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "There are no rows in bad.csv"),
        (b"x,label\n", "There are no rows in bad.csv"),
        (b"x,label\n1,\xff\n", "is not UTF-8 text at byte 10"),
    ],
)
def test_a_file_without_rows_or_of_another_encoding_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    refused(message, from_table, tmp_path / "bad.csv")


def test_a_table_is_read_without_holding_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisewise.data._table._CELLS", 4096)
    path = tmp_path / "long.csv"
    numbers = np.random.default_rng(0).normal(size=(10_000, 16))
    lines = (",".join([*map(repr, row), f"00{place % 3}"]) for place, row in enumerate(numbers.tolist()))
    path.write_text("\n".join([",".join([*map(str, range(16)), "label"]), *lines]))
    data, peak = with_peak(lambda: from_table(path))
    assert peak < 3 * path.stat().st_size, "and not ten times as much"
    assert torch.equal(data.inputs, torch.from_numpy(numbers).float()) and data.classes == ("000", "001", "002")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".5,40", "wide,40", "Row 3 (line 5), column 'width' of pets.csv, is 'wide', not a number; set 'features'"),
        (".5,40", ",40", "Row 3 (line 5), column 'width' of pets.csv, is empty"),
        (".5,40", "1e39,40", "Row 3 (line 5), column 'width' of pets.csv, is 1e39, too large for a float32"),
        ("1.5,10", "NaN,10", "Row 0 (line 2), column 'width' of pets.csv, is NaN, not a finite number"),
        ("a4,.5,40", "a4,.5", "Row 3 (line 5) of pets.csv has 4 columns and the first line 5"),
        ("a4", '"a4', "of pets.csv cannot be read as CSV"),
    ],
)
def test_what_is_wrong_in_a_table_is_named_in_whatever_block_it_is(
    table: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    whole = from_table(table, **COLUMNS)
    monkeypatch.setattr("noisewise.data._table._CELLS", 1)
    by_row = from_table(table, **COLUMNS)
    assert torch.equal(by_row.inputs, whole.inputs) and (by_row.ids, by_row.classes) == (whole.ids, whole.classes)
    table.write_text(CSV.replace(old, new, 1), encoding="utf-8")
    refused(message, from_table, table, **COLUMNS)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_no_text_is_counted_from_the_start_of_the_file(table: Path, mark: bytes) -> None:
    content = mark + b"x,label\n" + 10_000 * b"1,a\n2,b\n"
    table.write_bytes(content + b"3,\xe9\n")
    refused(f"The file 'pets.csv' is not UTF-8 text at byte {len(content) + 2}; save it as UTF-8.", from_table, table)


def test_many_columns_are_told_apart_without_comparing_each_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [Compared(f"gene {number}") for number in range(500)]
    monkeypatch.setattr(Compared, "times", 0)
    table = _Table(names, lambda texts, numbers: ({}, None), "genes.csv", "genes", Path())
    assert list(_choose_features(table, names, {"label"})) == names
    assert Compared.times < 10 * 500


def test_a_table_of_images_is_read_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "all" / "1.png", colour=(1, 2, 3))
    picture(tmp_path / "all" / "2.png", colour=(4, 5, 6))
    path = tmp_path / "list.csv"
    path.write_text("file,label,taken\nall/2.png,b,yesterday\nall/1.png,a,today\n")
    monkeypatch.chdir(tmp_path / "all")
    data = from_table(path, image="file")
    assert data.inputs.shape == (2, 3, 4, 6) and data.inputs.dtype == torch.uint8
    assert data.inputs[:, :, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3]]
    assert data.ids == ("all/2.png", "all/1.png")
    assert from_table(path, image="file", size=(5, 7)).inputs.shape == (2, 3, 5, 7)


def test_an_image_a_table_names_wrongly_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "1.png")
    path = tmp_path / "list.csv"
    path.write_text("file,label\n1.png,a\n2.png,b\n")
    refused("Row 1 (line 3), column 'file' of list.csv, names the image", from_table, path, image="file")
    (tmp_path / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    for options in ({}, {"size": 8}):
        refused("2.png' cannot be read", from_table, path, image="file", **options)


def test_a_folder_gives_a_class_per_sub_folder(folder: Path) -> None:
    data = from_folder(folder)
    assert repr(data) == "Dataset(pictures: 6 × (3, 4, 6) torch.uint8, 2 classes)"
    assert data.classes == ("cat", "dog") and data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.ids is not None and data.ids[2:4] == ("cat/2.png", "dog/deeper/0.JPG")
    assert data.inputs[:3, 0, 0, 0].tolist() == [0, 1, 2]
    assert from_folder(folder, size=16, classes=["dog", "bird", "cat"]).labels.tolist() == [2, 2, 2, 0, 0, 0]


def test_images_that_take_too_much_memory_are_streamed(folder: Path) -> None:
    size = 3 * 8 * 8 * 6 / 2**30
    assert not isinstance(from_folder(folder, size=8, memory=size), Stream)
    assert isinstance(from_folder(folder, size=8, memory=0.99 * size), Stream)


@pytest.fixture
def damaged(folder: Path) -> Path:
    """A folder of six images with three more that cannot be read: none, cut off, and of nobody's format."""
    (folder / "cat" / "empty.png").write_bytes(b"")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8))
    noise.save(folder / "cat" / "cut.png")
    (folder / "cat" / "cut.png").write_bytes((folder / "cat" / "cut.png").read_bytes()[:90])
    (folder / "dog" / "text.jpg").write_text("404: not found")
    return folder


@pytest.mark.parametrize("options", [{}, {"size": 8}, {"memory": 0.0}, {"size": 8, "memory": 0.0}], ids=str)
def test_images_that_cannot_be_read_are_left_out_where_that_is_asked_for(damaged: Path, options: dict[str, Any]) -> None:
    left = ["'cat/cut.png'", "'cat/empty.png'", "'dog/text.jpg'"]
    said = f"3 of the 9 images of pictures cannot be read and are left out: {', '.join(left)}."
    with pytest.warns(Unreadable, match=re.escape(said)) as caught:
        data = read(damaged, unreadable="skip", **options)
    assert len(caught) == 1 and caught[0].filename == __file__
    for name in ("cat/cut.png", "cat/empty.png", "dog/text.jpg"):
        (damaged / name).unlink()
    whole = read(damaged, unreadable="skip", **options)
    assert type(data) is type(whole) and data.ids == whole.ids and torch.equal(data.labels, whole.labels) and len(data) == 6
    assert all(map(torch.equal, *([batch.inputs for batch in batches(one, 4, shuffle=False)] for one in (data, whole))))


@pytest.mark.parametrize("form", ["EPS", "DDS", "BLP", "AVIF"])
@pytest.mark.parametrize("options", [{}, {"size": 4, "memory": 0}], ids=["in memory", "streamed"])
def test_a_png_that_is_of_another_format_is_refused_and_starts_no_program(
    folder: Path, form: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is a whole image that Pillow would decode, and Ghostscript leaves a trace when it is started."""
    if form == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    ghostscript = folder.parent / "bin" / "gs"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch '{folder.parent}/started'\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(ghostscript.parent), prepend=os.pathsep)
    with Image.open(folder / "cat" / "1.png") as image:
        image.convert("P" if form == "BLP" else "RGB").save(folder / "cat" / "0.png", form)
    with confined(folder) if not options else contextlib.nullcontext(), pytest.raises(InputError) as caught:
        data = read(folder, **options)
        next(iter(batches(data, 6, shuffle=False)))
    assert "cat/0.png" in str(caught.value) and "not one of BMP, GIF" in str(caught.value)
    assert not (folder.parent / "started").exists()


def bomb(path: Path, width: int, height: int) -> None:
    """A PNG of a few hundred bytes for every million of its pixels, each of which is white."""
    line, packer = b"\0" + b"\xff" * (width // 8), zlib.compressobj(9)
    rows = b"".join([*(packer.compress(line) for _ in range(height)), packer.flush()])
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    parts = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(folder: Path) -> None:
    for number in range(2):
        bomb(folder / "cat" / f"{number}.png", 16_000, 12_000 if number else 8_500)  # Pillow refuses one, and warns of the other
    for options in ({"size": 4}, {}):
        with pytest.raises(InputError) as caught:
            read(folder, **options)
        assert "cat/0.png" in str(caught.value) and "16,000 × 8,500 pixels" in str(caught.value)
    with pytest.warns(Unreadable, match="2 of the 6") as warned:
        assert len(read(folder, size=4, unreadable="skip")) == 4
    assert len(warned) == 1
    (folder / "cat" / "0.png").unlink()
    with pytest.raises(InputError, match=r"1\.png.*134,217,728 pixels.*192000000"):
        read(folder, size=4)


def test_a_photograph_of_a_hundred_million_pixels_is_read_where_it_is_resized(tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        bomb(tmp_path / kind / "large.png", 4_800, 4_000)
    refused("have 4,000 × 4,800 pixels, more than the limit of 16,777,216", read, tmp_path)
    bomb(tmp_path / "cat" / "large.png", 12_000, 8_400)
    data = read(tmp_path, size=4)
    assert data.inputs.shape == (2, 3, 4, 4) and int(data.inputs.min()) == 255
    streamed = read(tmp_path, size=4, memory=0)
    assert isinstance(streamed, Stream) and torch.equal(next(iter(batches(streamed, 2, shuffle=False))).inputs, data.inputs)


def test_unreadable_images_of_a_table_take_their_row_with_them(damaged: Path) -> None:
    path = damaged / "list.csv"
    path.write_text("file,label,true,name\ncat/0.png,a,a,x\ncat/cut.png,b,a,y\ncat/1.png,b,b,z\n")
    with pytest.warns(Unreadable, match=r"1 of the 3 images of list cannot be read and are left out: 'y'\."):
        data = read(path, image="file", true_label="true", id="name", unreadable="skip")
    assert data.ids == ("x", "z") and data.labels.tolist() == [0, 1] and data.true_labels is not None
    path.write_text("file,label\ncat/cut.png,a\ndog/text.jpg,b\n")
    refused("None of the 2 images of list can be read. The image", read, path, image="file", unreadable="skip")
    path.write_text("file,label\ncat/0.png,a\ncat/none.png,b\n")
    refused("names the image", read, path, image="file", unreadable="skip")


def test_what_to_do_with_unreadable_images_is_one_of_two_things(damaged: Path) -> None:
    refused("set 'unreadable' to 'skip'", read, damaged)
    refused("must be 'refuse' or 'skip'. Got 'ignore' instead.", read, damaged, unreadable="ignore")


def test_a_run_on_what_could_be_read_is_corrected_by_reading_the_same_again(damaged: Path, tmp_path: Path) -> None:
    with pytest.warns(Unreadable, match="are left out"):
        data = read(damaged, size=8, unreadable="skip")
    run = Run(fit("linear", data, epochs=2, folder=tmp_path / "run", device="cpu"))  # which has the data no more
    with pytest.warns(Unreadable, match="are left out"):
        again = retrain(run, correct(run.find_label_issues(), "relabel"), folder=tmp_path / "again")
    assert len(np.load(again.path / "labels/given.npy")) == 6


def test_what_is_wrong_in_a_folder_is_named(folder: Path, tmp_path: Path) -> None:
    refused("There is no folder", from_folder, tmp_path / "nowhere")
    refused("has no sub-folder of images", from_folder, folder / ".hidden")
    (folder / "cat").rename(tmp_path / "cat")
    refused("has only 'dog'", from_folder, folder)
    (tmp_path / "cat").rename(folder / "cat")
    picture(folder / "dog" / "wide.png", size=(9, 4))
    refused("different sizes: (4, 6) for", from_folder, folder)
    (folder / "dog" / "wide.png").write_bytes(b"")
    for options in ({}, {"size": 8}):
        refused("wide.png' cannot be read", from_folder, folder, **options)
    (folder / "empty").mkdir()
    refused("empty' has no image", from_folder, folder)
    (tmp_path / "both" / "train").mkdir(parents=True)
    (tmp_path / "both" / "test").mkdir()
    refused("are splits (test, train), not classes", from_folder, tmp_path / "both")


@pytest.mark.parametrize("size", [0, (4,), (4, 5, 6), "88", 2.5])
def test_a_size_that_is_none_is_refused(folder: Path, size: Any) -> None:
    refused("'size' parameter of a folder or table of images must be", from_folder, folder, size=size)


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


def test_whole_numbers_and_read_only_or_reversed_arrays_become_features() -> None:
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


def test_a_mask_that_hides_nothing_is_no_matter() -> None:
    whole = np.ma.masked_equal(np.array([[1.0, 2.0], [3.0, 4.0]]), -999.0)
    assert from_arrays(whole, [0, 1]).inputs.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("inputs", "labels", "options", "message"),
    [
        ([[1.0], [float("nan")], [2.0]], [0, 1, 0], {}, "Row 1, column 0 of the inputs is nan, not a finite number"),
        (np.full((3, 2, 2), np.inf), [0, 1, 0], {}, "Row 0, position (0, 0) of the inputs is inf"),
        ([[1.0], [2.0, 3.0]], [0, 1], {}, "The inputs must all have the same shape"),
        ([torch.ones(1), torch.ones(2)], [0, 1], {}, "The inputs must all have the same shape"),
        (MASKED, [0, 1, 0], {}, "'inputs' parameter of from_arrays must be without masked entries"),
        ([["a"], ["b"]], [0, 1], {}, "'inputs' parameter of from_arrays must be numbers"),
        (np.array([["a"], [1]], dtype=object), [0, 1], {}, "'inputs' parameter of from_arrays must be numbers. Got \"object such as 'a'\""),
        (np.array([[None], [1]], dtype=object), [0, 1], {}, "Row 0, column 0 of the inputs is nan, not a finite number"),
        (scipy.sparse.eye_array(2).tocsr(), [0, 1], {}, "must be dense, like inputs.toarray(). Got 'csr_array'"),
        ([1.0, 2.0], [0, 1], {}, "'inputs' parameter of from_arrays must be shaped (N, …)"),
        (np.zeros((0, 2)), [], {}, "'inputs' parameter of from_arrays must be shaped (N, …)"),
        ([[1.0], [2.0]], [0, 1, 0], {}, "one value for each of the 2 inputs in the labels. Got 3"),
        ([[1.0], [2.0]], [0, 1], {"ids": ["a"]}, "one value for each of the 2 inputs in the ids. Got 1"),
        ([[1.0], [2.0]], [0, 1], {"ids": ["a", "a"]}, "Row 1, the ids, is 'a', as is row 0"),
        ([[1.0], [2.0]], [0, None], {}, "Row 1, the labels, is empty"),
        ([[1.0], [2.0]], np.array([0.0, np.nan]), {}, "Row 1, the labels, is empty"),
        ([[1.0], [2.0]], [0.5, 1], {}, "Row 0, the labels, is 0.5"),
        ([[1.0], [2.0]], np.eye(2), {}, "one value per row in the labels. Got an array shaped (2, 2)"),
        ([[1.0], [2.0]], [0, 0], {}, "the labels has only '0'"),
        ([[1.0], [2.0]], [0, 2], {"classes": ["a", "b"]}, "Row 1, the labels, is 2, which is not one of the 2 classes 'a', 'b'"),
        ([[1.0], [2.0]], [0, 1], {"true_labels": [0, ""]}, "Row 1, the true labels, is empty"),
    ],
)
def test_what_is_wrong_in_arrays_is_named(inputs: Any, labels: Any, options: dict[str, Any], message: str) -> None:
    refused(message, from_arrays, inputs, labels, **options)


def test_read_finds_out_what_it_is_given(table: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("source", "options", "message"),
    [
        ("nowhere.csv", {}, "There is no file 'nowhere.csv'"),
        ("cifar1O", {}, "There is no data set named 'cifar1O'. Did you mean 'cifar10'"),
        (3.5, {}, "'source' parameter of read must be a path"),
        ("digits", {"label": "x"}, "The data set 'digits' is read without 'label'; leave that out."),
        (([[1.0], [2.0]], [0, 1]), {"label": "x"}, "is read without 'label'"),
        (Dataset(torch.zeros(1, 1), torch.tensor([0]), ("a", "b")), {"size": 3}, "is read without 'size'"),
    ],
)
def test_what_cannot_be_read_is_refused(source: Any, options: dict[str, Any], message: str) -> None:
    refused(message, read, source, **options)


def test_a_loader_is_its_data_set_and_one_that_gives_only_a_part_of_it_is_refused() -> None:
    pairs = TensorDataset(torch.arange(10.0).view(-1, 1), torch.arange(10) % 2)
    assert read(DataLoader(pairs, batch_size=3, shuffle=True, drop_last=True)).inputs.flatten().tolist() == list(range(10))
    assert read(DataLoader(Subset(pairs, [7, 2]))).inputs.flatten().tolist() == [7, 2]

    def doubled(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([2 * inputs for inputs, _ in rows]), torch.stack([label for _, label in rows])

    assert read(DataLoader(pairs, batch_size=4, collate_fn=doubled)).inputs.flatten().tolist() == list(range(0, 20, 2))
    refused("is empty", read, DataLoader(Subset(pairs, [])))
    part = BatchSampler(SubsetRandomSampler([7, 2]), 2, drop_last=False)
    for some in ({"sampler": SubsetRandomSampler([7, 2])}, {"sampler": [7, 2]}, {"batch_sampler": part}):
        refused("takes 2 of 10 examples", read, DataLoader(pairs, **some))
    for sampler in (DistributedSampler(pairs, num_replicas=2, rank=0), list(range(9, -1, -1))):
        assert len(read(DataLoader(pairs, sampler=sampler))) == 10
    with pytest.warns(UserWarning, match="WeightedRandomSampler"):
        assert len(read(DataLoader(pairs, sampler=WeightedRandomSampler([0.1] * 10, 10)))) == 10


def test_examples_of_several_lengths_in_a_loader_are_one_sentence() -> None:
    pairs: Any = [(torch.ones(size), size % 2) for size in (2, 3, 4)]
    refused("The examples of a DataLoader must all have the same shape", read, DataLoader(pairs))


def test_what_a_data_set_raises_in_a_loader_is_left_as_it_is() -> None:
    class Broken(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        read(DataLoader(Broken(torch.zeros(4, 1), torch.arange(4) % 2)))


@pytest.mark.parametrize("memory", [4, 0], ids=["in memory", "streamed"])
@pytest.mark.parametrize(
    ("ending", "held"),
    [("png", held) for held in range(1, 9)] + [("jpg", held) for held in (1, 3, 6)] + [("tiff", held) for held in (1, 2, 3, 4)],
)
def test_photographs_are_upright_however_the_camera_was_held(tmp_path: Path, held: int, ending: str, memory: float) -> None:
    upright = Image.fromarray(np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6))
    exif = Image.Exif()
    exif[0x0112] = held
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        upright.save(tmp_path / kind / f"x.{ending}", exif=exif)
    data = read(tmp_path, memory=memory)
    pixels = data.inputs if memory else next(data.images([torch.arange(2)]))  # type: ignore[attr-defined]
    with Image.open(tmp_path / f"a/x.{ending}") as image:
        image.load()  # which turns a TIFF
        expected = np.array(ImageOps.exif_transpose(image))
    assert np.array_equal(pixels[0, 0], expected) and (held == 1) == (abs(expected[0, 0].astype(int)) < 9 and expected.shape == (4, 6))


@pytest.mark.parametrize(("shape", "read_as"), [((16, 15, 4), (4, 16, 15)), ((16, 15, 2), (2, 16, 15)), ((4, 16, 15), (4, 16, 15))])
def test_channels_come_first_where_there_are_two_or_four_of_them_too(shape: tuple[int, ...], read_as: tuple[int, ...]) -> None:
    assert read((np.zeros((6, *shape), np.uint8), [0, 1] * 3)).inputs.shape == (6, *read_as)
    maps = np.zeros((6, 64, 4, 4), np.float32)  # of a network's features, and no images
    assert read((maps, [0, 1] * 3)).inputs.shape == (6, 64, 4, 4)


@pytest.mark.parametrize("memory", [4, 0], ids=["in memory", "streamed"])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_images_of_sixteen_bits_are_scaled_to_eight(tmp_path: Path, ending: str, memory: float) -> None:
    values = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        Image.fromarray(values).save(tmp_path / kind / f"x.{ending}")
    data = read(tmp_path, memory=memory)
    pixels = data.inputs if memory else next(data.images([torch.arange(2)]))  # type: ignore[attr-defined]
    assert (pixels - torch.from_numpy(values / 257)).abs().max() < 0.51


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_images_whose_numbers_have_no_range_are_refused(tmp_path: Path, dtype: Any) -> None:
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        Image.fromarray(np.zeros((4, 4), dtype)).save(tmp_path / kind / "x.tiff")
    refused("save it with 8 or 16 bits", read, tmp_path)


def test_labels_written_as_fractions_are_whole_numbers_in_every_form(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0.5, 1.5, 2.5, 3.5], "label": [1.0, 2.0, 10.0, 1.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert read(frame).classes == read(tmp_path / "t.csv").classes == ("1", "2", "10")
    (tmp_path / "codes.csv").write_text("x,label\n1,01\n2,02.0\n")
    assert read(tmp_path / "codes.csv").classes == ("01", "02.0"), "codes are text"


def test_a_file_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "one.png")
    picture(tmp_path / "b" / "two.png")
    name = os.fsencode(tmp_path / "a") + b"/caf\xe9.png"
    try:
        Path(os.fsdecode(name)).write_bytes((tmp_path / "a/one.png").read_bytes())
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    refused(r"The name of the file 'a/caf\udce9.png' is not UTF-8", read, tmp_path)


def test_examples_that_are_taken_keep_all_that_is_known_of_them() -> None:
    labels, human = torch.tensor([0, 1, 2, 1]), {"worst": torch.tensor([1, 1, 2, 0])}
    data = Dataset(
        torch.arange(4.0).view(-1, 1), labels, ("a", "b", "c"), true_labels=labels.flip(0), ids=("p", "q", "r", "s"), human=human
    )
    for which in (torch.tensor([False, True, False, True]), torch.tensor([1, 3])):
        taken = data.take(which)
        assert taken.inputs.flatten().tolist() == [1, 3] and taken.labels.tolist() == [1, 1] and taken.ids == ("q", "s")
        assert taken.true_labels is not None and taken.true_labels.tolist() == [2, 0]
        assert taken.index is not None and taken.index.tolist() == [1, 3] and taken.human["worst"].tolist() == [1, 0]


def test_labels_that_are_corrupted_again_are_wrong_by_the_truth_and_not_by_what_they_were() -> None:
    true, given = torch.arange(12) % 3, torch.arange(1, 13) % 3
    data = Dataset(torch.zeros(12, 1), given, ("a", "b", "c"), true_labels=true).corrupted("pair(1)")
    assert data.labels.tolist() == [(label + 2) % 3 for label in true.tolist()] and data.wrong is not None and data.wrong.all()
    assert data.true_labels is not None and torch.equal(data.true_labels, true)
    assert torch.equal(data.corrupted("pair(1)").labels, true)


def test_a_split_keeps_the_share_of_every_class_and_loses_nothing() -> None:
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([1, 10, 55, 334]))
    data = Dataset(torch.arange(400.0).view(-1, 1), labels, ("a", "b", "c", "d"))
    first, rest = split(data, 0.3, seed=1)
    assert first.index is not None and rest.index is not None
    assert len(first) == 120
    assert torch.equal(torch.cat([first.index, rest.index]).sort().values, torch.arange(400))
    assert (first.index.diff() > 0).all() and torch.equal(first.inputs.squeeze(1).long(), first.index)
    share = torch.bincount(first.labels, minlength=4) - 0.3 * torch.bincount(labels)
    assert (share.abs() <= 1).all()
    assert torch.equal(first.index, split(data, 0.3, seed=1)[0].index)
    assert not torch.equal(first.index, split(data, 0.3, seed=2)[0].index)


@pytest.mark.parametrize(("fraction", "number"), [(0.07, 0), (0.1, 1), (0.3, 2), (0.37, 2), (0.72, 4), (0.89, 4), (0.9, 5), (0.95, 5)])
def test_a_share_is_rounded_and_leaves_neither_part_empty(fraction: float, number: int) -> None:
    data = Dataset(torch.zeros(5, 1), torch.tensor([0, 1, 0, 1, 0]), ("a", "b"))
    if number in (0, 5):
        refused(f"neither part of 5 examples is empty. Got {fraction} instead", split, data, fraction, 0)
    else:
        assert list(map(len, split(data, fraction, 0))) == [number, 5 - number]


def test_labels_that_are_text_are_not_numbers_though_they_look_alike() -> None:
    assert from_arrays(np.zeros((2, 1)), ["01", "1"]).classes == ("01", "1")


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64, 10**30])
def test_any_whole_number_is_a_seed_of_a_split(seed: int) -> None:
    data = Dataset(torch.zeros(40, 1), torch.arange(40) % 2, ("a", "b"))
    assert len(split(data, 0.25, seed)[0]) == 10


def test_every_example_is_as_likely_to_be_chosen() -> None:
    data = Dataset(torch.zeros(12, 1), torch.tensor([0] * 7 + [1] * 5), ("a", "b"))
    chosen = torch.zeros(12)
    for seed in range(2000):
        index = split(data, 0.5, seed)[0].index
        assert index is not None
        chosen[index] += 1
    for label in (0, 1):  # within a class; the shares of the classes themselves are fixed
        times = chosen[data.labels == label]
        spread = (times.mean() * (1 - times.mean() / 2000)) ** 0.5
        assert ((times - times.mean()).abs() < 4.5 * spread).all()


@pytest.mark.parametrize("fraction", [0, 1, 1.5, True, "half", 0.01])
def test_a_fraction_that_leaves_a_part_empty_is_refused(fraction: Any) -> None:
    refused("'fraction' parameter of split must be", split, Dataset(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]), ("a", "b")), fraction, 0)


def test_parquet_is_read_as_csv_is(table: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    expected = from_table(table, **COLUMNS)
    columns = {
        "name": expected.ids,
        "width": expected.inputs[:, 0].tolist(),
        "height": [10, 20, 30, 40],
        "kind": ["cat", "dog", "cat", "bird"],
        "truth": ["cat", "cat", "cat", "dog"],
    }
    path = table.with_suffix(".parquet")
    parquet.write_table(arrow.table(columns), path)
    data = read(path, **COLUMNS)
    assert torch.equal(data.inputs, expected.inputs) and torch.equal(data.labels, expected.labels)
    assert (data.classes, data.ids) == (expected.classes, expected.ids)
    parquet.write_table(arrow.table(columns | {"kind": ["cat", "dog", None, "cat"]}), path)
    refused("Row 2, column 'kind' of pets.parquet, is empty", from_table, path, **COLUMNS)
    parquet.write_table(arrow.table(columns | {"kind": arrow.array(["cat", "dog", None, "cat"]).dictionary_encode()}), path)
    refused("Row 2, column 'kind' of pets.parquet, is empty", from_table, path, **COLUMNS)
    parquet.write_table(arrow.table(columns | {"width": [1.0, None, 2.0, 3.0]}), path)
    refused("Row 1, column 'width' of pets.parquet, is nan", from_table, path, **COLUMNS)
    parquet.write_table(arrow.table(columns | {"width": [[1.0], [1.0, 2.0], [2.0], [3.0]]}), path)
    refused("Row 0, column 'width' of pets.parquet, is", from_table, path, **COLUMNS)
    days = [datetime.datetime(2020, 1, day) for day in (2, 3, 4, 5)]
    parquet.write_table(arrow.table(columns | {"width": days}), path)
    refused("Row 0, column 'width' of pets.parquet, is 2020-01-02T00:00:00.000000, a time and not a number", from_table, path, **COLUMNS)
    path.write_bytes(b"PAR1 but not for long")
    refused("'pets.parquet' cannot be read as Parquet", from_table, path)


def test_a_parquet_file_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    empty = arrow.nulls(2**20, arrow.int8())
    block = arrow.table({"x": empty, "y": empty, "label": empty})
    with parquet.ParquetWriter(tmp_path / "bomb.parquet", block.schema) as writer:
        for _ in range(64):
            writer.write_table(block)
    assert (tmp_path / "bomb.parquet").stat().st_size < 2**22
    with pytest.raises(InputError) as caught:
        read(tmp_path / "bomb.parquet")
    assert "1,610,612,736 bytes, more than the limit of 1,073,741,824" in str(caught.value)
    text = "x" * 10_000  # which is in the file once, and in memory too
    labels = arrow.DictionaryArray.from_arrays(np.arange(2**15) % 2, [text, "y"])
    parquet.write_table(arrow.table({"x": np.zeros(2**15), "label": labels}), tmp_path / "text.parquet", store_schema=False)
    before = arrow.default_memory_pool().max_memory()
    data, peak = with_peak(lambda: read(tmp_path / "text.parquet"))
    assert data.classes == (text, "y") and peak + arrow.default_memory_pool().max_memory() - before < 2**26


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    real = builtins.__import__

    def without_pyarrow(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    refused("pip install 'noisewise[parquet]'", from_table, tmp_path / "x.parquet")


def test_a_hugging_face_data_set_of_images_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"picture": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat", "bird"])})
    images = [Image.new("RGB", (6, 4), (number, 2, 3)) for number in range(3)]
    source = datasets.Dataset.from_dict({"picture": images, "label": [1, 0, 1]}, features=kinds)
    data = read(source)
    assert data.classes == ("dog", "cat", "bird") and data.labels.tolist() == [1, 0, 1]
    assert data.inputs.shape == (3, 3, 4, 6) and data.inputs[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert read(source, size=8).inputs.shape == (3, 3, 8, 8)
    refused("There is no column of the data set named 'lable'", read, source, label="lable")
    unlabelled = datasets.Dataset.from_dict({"picture": images, "label": [1, -1, 1]}, features=kinds)
    refused("Row 1, column 'label' of the data set, is -1, which is not one of the 3 classes", read, unlabelled)
    mixed = datasets.Dataset.from_dict({"picture": [*images[:2], Image.new("L", (5, 5))], "label": [1, 0, 1]}, features=kinds)
    refused("(4, 6) in row 0 and (5, 5) in row 2", read, mixed)
    refused("one split of a Hugging Face data set", from_hf, datasets.DatasetDict({"train": source}))


def test_a_hugging_face_data_set_of_numbers_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"x": [1.0, 2.0], "y": [3, 4], "word": ["a", "b"], "label": ["no", "yes"]})
    data = read(source.with_format("torch"), features=["y", "x"], id="word")
    assert data.inputs.tolist() == [[3, 1], [4, 2]] and data.ids == ("a", "b") and data.classes == ("no", "yes")
    vectors = datasets.Dataset.from_dict({"v": [[1.0, 2.0], [3.0, 4.0]], "x": [5.0, 6.0], "label": [0, 1]})
    assert read(vectors, features=["v", "x"]).inputs.tolist() == [[1, 2, 5], [3, 4, 6]]
    refused("Row 0, column 'word' of the data set, is 'a', not a number", read, source, features=["word"])
    assert torch.equal(read(vectors, features="v").inputs, read(vectors, features=["v"]).inputs)
    refused("'features' parameter of from_hf must be set", read, source)
    tokens = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4], [5]], "label": [0, 1, 0]})
    message = "Row 2, column 'input_ids' of the data set, has 1 values and row 0 has 2"
    refused(message, read, tokens, features="input_ids")


@pytest.fixture
def frame(table: Path) -> Any:
    return pytest.importorskip("pandas").read_csv(table)


def test_a_polars_frame_is_read_as_the_file_it_was_written_to(table: Path) -> None:
    import polars

    frame = polars.read_csv(table)
    for options in (COLUMNS, {**COLUMNS, "features": ["height"]}):
        ours, theirs = read(frame, **options), read(table, **options)
        assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
        assert (ours.classes, ours.ids, ours.features) == (theirs.classes, theirs.ids, theirs.features)
    typed = frame.with_columns(polars.col("kind").cast(polars.Categorical), polars.col("height").cast(polars.Int8))
    assert torch.equal(read(typed, **COLUMNS).labels, read(table, **COLUMNS).labels)
    gap = frame.with_columns(polars.when(polars.col("kind") == "bird").then(None).otherwise(polars.col("kind")).alias("kind"))
    refused("Row 3, column 'kind' of the DataFrame, is empty", read, gap, **COLUMNS)
    refused("There is no column of the DataFrame named 'label'", read, frame)
    refused("There are no rows in the DataFrame", read, frame[:0], **COLUMNS)


def test_a_polars_frame_is_predicted_by_the_names_of_its_columns(table: Path, tmp_path: Path) -> None:
    import polars

    frame = polars.read_csv(table)
    run = fit("linear", read(frame, **COLUMNS), epochs=1, folder=tmp_path / "run", device="cpu")
    assert torch.equal(run.predict(frame[:, ::-1]), run.predict(table))


def test_an_excel_file_is_read_as_the_frame_it_was_written_from(frame: Any, tmp_path: Path) -> None:
    frame.loc[0, ["kind", "truth"]] = "None"  # a word like any other
    frame.to_excel(tmp_path / "pets.xlsx", index=False)
    ours, theirs = read(tmp_path / "pets.xlsx", **COLUMNS), read(frame, **COLUMNS)
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
    assert (ours.classes, ours.ids, ours.features, ours.name) == (theirs.classes, theirs.ids, theirs.features, "pets")
    frame.loc[2, "kind"] = None
    frame.to_excel(tmp_path / "pets.xlsx", index=False)
    refused("Row 2, column 'kind' of pets.xlsx, is empty", read, tmp_path / "pets.xlsx", **COLUMNS)


def test_an_excel_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pets.xlsx"
    path.write_bytes(b"PK\x03\x04")
    refused("'pets.xlsx' cannot be read as Excel", read, path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "")
        archive.infolist()[0].file_size = 2**31  # as a forger would state it
    refused("2,147,483,648 bytes, more than the limit of 1,073,741,824", read, path)
    pytest.importorskip("pandas").DataFrame({"x": [1, 2], "label": ["a", "b"]}).to_excel(path, index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # as where it is not installed
    refused("needs pandas and openpyxl", read, path)
    refused("as CSV", read, path)


@pytest.mark.parametrize("options", [COLUMNS, {**COLUMNS, "features": ["height"]}, {"label": "truth", "features": "width"}])
def test_a_data_frame_is_read_as_the_file_it_was_written_to(table: Path, frame: Any, options: dict[str, Any]) -> None:
    ours, theirs = read(frame, **options), read(table, **options)
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
    assert (ours.classes, ours.ids, ours.features) == (theirs.classes, theirs.ids, theirs.features)
    assert (ours.true_labels is None) == (theirs.true_labels is None)
    assert theirs.true_labels is None or torch.equal(ours.true_labels, theirs.true_labels)
    assert ours.source is None, "what is only in memory cannot be read again"


def test_a_data_frame_of_any_index_types_and_column_names_is_read(frame: Any) -> None:
    import pandas

    class Mine(pandas.DataFrame):
        pass

    expected = from_arrays(frame[["width", "height"]].to_numpy(), frame["kind"].tolist())
    narrow = frame.astype({"kind": "category", "height": "Int64", "width": "float32"}).set_index("name")
    numbered = pandas.DataFrame(frame[["width", "height", "kind"]].to_numpy())
    for data in (
        read(narrow, label="kind", features=["width", "height"]),
        read(Mine(frame), label="kind", features=["width", "height"]),
        read(numbered, label=2),
        read(numbered, label=2, features=[0, 1]),
    ):
        assert torch.equal(data.inputs, expected.inputs) and torch.equal(data.labels, expected.labels) and data.classes == expected.classes
        assert data.ids is None


def test_an_index_that_was_written_with_a_table_is_not_learned_from(frame: Any, tmp_path: Path) -> None:
    import pandas

    written = frame[["width", "height", "kind"]].iloc[::-1]
    written.to_csv(tmp_path / "t.csv")
    sources: list[Any] = [tmp_path / "t.csv", pandas.read_csv(tmp_path / "t.csv")]
    with contextlib.suppress(ImportError):  # pyarrow
        written.to_parquet(tmp_path / "t.parquet")
        sources.append(tmp_path / "t.parquet")
    for source in sources:
        assert read(source, label="kind").features == ("width", "height")
    data = read(sources[0], label="kind", id="")
    assert data.ids == ("3", "2", "1", "0") and data.features == ("width", "height")
    assert read(sources[0], label="kind", features=["", "width"]).inputs[:, 0].tolist() == [3, 2, 1, 0]


def test_the_images_a_data_frame_names_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(folder)
    data = read(pandas.DataFrame({"file": ["cat/2.png", "cat/1.png"], "kind": ["a", "b"]}), image="file", label="kind")
    assert data.inputs[:, 0, 0, 0].tolist() == [2, 1] and data.ids == ("cat/2.png", "cat/1.png")


def test_what_is_wrong_in_a_data_frame_is_named(frame: Any) -> None:
    import pandas

    of = "of the DataFrame"
    refused(f"There is no column {of} named 'label'. Known: height, kind, name, truth, width.", read, frame)
    refused(f"Row 0, column 'name' {of}, is 'a1', not a number", read, frame, label="kind", true_label="truth")
    without = frame.astype({"height": "Int64"})
    without.loc[2, "height"] = pandas.NA
    refused(f"Row 2, column 'height' {of}, is ", read, without, **COLUMNS)
    without.loc[1, "kind"] = None
    refused(f"Row 1, column 'kind' {of}, is empty", read, without, **COLUMNS)
    dated = frame.assign(day=pandas.to_datetime("2020-01-02"))
    refused(f"Row 0, column 'day' {of}, is 2020-01-02T00:00:00", read, dated, **COLUMNS)
    refused("There are no rows in the DataFrame", read, frame[:0], **COLUMNS)
    refused("There are no rows in the DataFrame", read, pandas.DataFrame())
    twice = pandas.concat([frame, frame["width"]], axis=1)
    refused(f"The columns {of} must have different names. Got 'width' 2 times", read, twice, **COLUMNS)
    refused("A DataFrame is read without 'split'", read, frame, split="test")
    refused("must be a path, a pair (inputs, labels)", read, frame["width"])


def test_a_tensor_data_set_is_read_as_the_pair_it_holds() -> None:
    inputs, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    data = read(TensorDataset(inputs, labels), classes=["a", "b", "c"], name="six")
    assert torch.equal(data.inputs, inputs) and torch.equal(data.labels, labels) and (data.name, data.classes) == ("six", ("a", "b", "c"))
    refused("must be a TensorDataset of inputs and labels. Got '1 tensors'", read, TensorDataset(inputs))
    refused("A TensorDataset is read without 'label'", read, TensorDataset(inputs, labels), label="x")


def test_bytes_are_text() -> None:
    held = from_arrays(np.zeros((3, 1)), np.array([b"cat", "é".encode(), b"cat"]))
    assert held.classes == ("cat", "é") and held.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("noise", ["instance(0.3)", "open_set(0.3)"])
def test_noise_that_looks_at_images_says_so_where_they_stay_on_disk(folder: Path, noise: str) -> None:
    data = from_folder(folder, size=8, memory=0)
    refused(f"The noise {noise} uses the images, which are on disk", data.corrupted, noise)
    assert len(from_folder(folder, size=8).corrupted(noise)) == 6


@pytest.mark.parametrize("labels", [[[1], [2, 3]], [(1,), (0,)], [{"a": 1}, {"b": 2}], [torch.zeros(2), torch.ones(2)]], ids=str)
def test_a_label_is_one_value(labels: list[Any]) -> None:
    refused("not one value; give one for every row", read, (np.zeros((2, 2)), labels))


@pytest.mark.parametrize("labels", [[torch.tensor(1), torch.tensor(0)], [np.array(1), np.array(0)], [np.int64(1), np.int64(0)]], ids=str)
def test_labels_may_be_scalars_of_any_library(labels: list[Any]) -> None:
    data = read((np.zeros((2, 2)), labels))
    assert data.classes == ("0", "1") and data.labels.tolist() == [1, 0]


def test_the_truth_of_an_example_may_be_that_it_is_of_no_class() -> None:
    for labels, truth in (([0, 1, 0], [0, -1, 1]), (["0", "1", "0"], ["0", "-1", "1"])):
        data = read((torch.zeros(3, 1), labels), true_labels=truth)
        assert data.classes == ("0", "1") and data.true_labels is not None and data.true_labels.tolist() == [0, -1, 1]
    named = read((torch.zeros(2, 1), [0, 1]), true_labels=[-1, 1], classes=["cat", "dog"])
    assert named.true_labels is not None and named.true_labels.tolist() == [-1, 1]
    signs = read((torch.zeros(2, 1), [-1, 1]), true_labels=[1, -1])
    assert signs.classes == ("-1", "1") and signs.true_labels is not None and signs.true_labels.tolist() == [1, 0], "a label is −1"
    refused("is -1, which is not one of the 2 classes", read, (torch.zeros(2, 1), [-1, 1]), classes=["cat", "dog"])


def test_a_mask_has_one_place_for_every_example() -> None:
    data = from_arrays(torch.arange(4.0).view(-1, 1), [0, 1, 0, 1])
    refused("positions, or a mask of the 4 examples. Got 'a mask shaped (3,)'", data.take, torch.tensor([True, False, True]))


def test_a_seed_may_be_a_number_of_numpy() -> None:
    data = from_arrays(torch.arange(8.0).view(-1, 1), [0, 1] * 4)
    assert torch.equal(split(data, 0.5, np.int64(3))[0].inputs, split(data, 0.5, 3)[0].inputs)


def test_examples_may_be_taken_by_a_list() -> None:
    data = from_arrays(torch.arange(4.0).view(-1, 1), [0, 1, 0, 1])
    for which in ([3, 1], [False, True, False, True]):
        assert torch.equal(data.take(which).inputs, data.take(torch.tensor(which)).inputs)
