"""Tables: CSV files, what is read from them, and which cell is named when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import COLUMNS, CSV

from costs import Compared, with_peak
from noisewise.data import from_table, read
from noisewise.data._csv import Rows
from noisewise.data._table import _choose_features, _Table, _Wishes
from refused import refused


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


def test_quoted_text_may_contain_separators_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_text('x,label\n1,"a, b"\n2,"c\nd"\n3,\n')
    with refused("Row 2", "line 5", "label", "quoted.csv"):
        from_table(path)
    path.write_text('x,label\n1,"a, b"\n2,"c\nd"\n')
    assert from_table(path).classes == ("a, b", "c\nd")
    path.write_text("x,label\n1,a;b;c\n2,d;e;f\n")
    assert from_table(path).classes == ("a;b;c", "d;e;f"), "the header decides the separator"


@pytest.mark.parametrize("header", ["width;height;kind", "width, in cm;height, in cm;kind", '"width, in cm";"height, or so";"kind"'])
@pytest.mark.parametrize("cells", [2**18, 1])
def test_decimal_commas_are_read_if_another_character_separates_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, cells: int
) -> None:
    monkeypatch.setattr("noisewise.data._csv.CELLS", cells)
    path = tmp_path / "pets.csv"
    path.write_text(f"{header}\n1;2,5;a,b\n1,5;-3;c\n,5;1,5e1;c\n")
    for separator in (";", "\t"):
        path.write_text(path.read_text().replace(";", separator))
        data = read(path, label="kind")
        assert data.inputs.tolist() == [[1, 2.5], [1.5, -3], [0.5, 15]] and data.classes == ("a,b", "c")
    path.write_text("x;label\n1,5;a\n2.5;b\n")  # "2.5" may mean 25
    with refused("'x'", "pets.csv"):
        read(path)
    path.write_text('x,label\n"1,5",a\n2,b\n')
    assert read(path).inputs.tolist() == [[1.5], [2.0]], "a comma before one digit separates no thousands"


def test_the_names_of_columns_are_checked_before_a_long_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_bytes(b"review,label\n" + b"good,1\n" * 5000 + b"\xff\n")  # reading to the end is refused for this byte
    with refused("reviews.csv", "lable", "label"):
        read(path, label="lable")
    with refused("size", "from_table"):
        read(path, size=8)
    with refused("reviews.csv", "UTF-8"):
        read(path)


def test_true_and_false_are_numbers_in_a_file_as_in_a_data_frame(frame: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisewise.data._csv.CELLS", 6)  # two rows at a time
    frame["tame"] = [True, False, False, True]
    frame.to_csv(tmp_path / "tame.csv", index=False)
    read_back = read(tmp_path / "tame.csv", **COLUMNS)
    assert read_back.features == ("width", "height", "tame") and read_back.inputs[:, 2].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert torch.equal(read_back.inputs, read(frame, **COLUMNS).inputs)
    text = (tmp_path / "tame.csv").read_text().replace("True", " TRUE").replace("False", "false")
    (tmp_path / "tame.csv").write_text(text)
    assert torch.equal(read_back.inputs, read(tmp_path / "tame.csv", **COLUMNS).inputs)


def test_numbers_as_labels_are_sorted_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("x,label\n1,10\n2,9\n3,-1\n")
    data = from_table(path)
    assert data.classes == ("-1", "9", "10")
    assert data.labels.tolist() == [2, 1, 0]


def test_labels_such_as_1_0_are_integers_in_files_and_frames(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0.5, 1.5, 2.5, 3.5], "label": [1.0, 2.0, 10.0, 1.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert read(frame).classes == read(tmp_path / "t.csv").classes == ("1", "2", "10")
    (tmp_path / "codes.csv").write_text("x,label\n1,01\n2,02.0\n")
    assert read(tmp_path / "codes.csv").classes == ("01", "02.0"), "codes are text"


def test_a_test_set_can_use_the_classes_of_the_training_set(table: Path) -> None:
    train = from_table(table, **COLUMNS)
    table.write_text("\n".join(CSV.splitlines()[:2] + CSV.splitlines()[3:4]))
    test = from_table(table, classes=train.classes, **COLUMNS)
    assert test.classes == train.classes and test.labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("old", "new", "options", "mentions"),
    [
        ("40,bird", "40, ", {}, ("Row 3", "line 5", "kind", "pets.csv")),
        ("bird,dog", "bird,", {}, ("Row 3", "line 5", "truth", "pets.csv")),
        (
            "",
            "",
            {"label": "width", "features": ["height"]},
            ("Row 0", "line 2", "width", "pets.csv", "1.5"),
        ),
        ("", "", {"label": "kid"}, ("pets.csv", "kid", "kind")),
        ("", "", {"features": ["with"]}, ("pets.csv", "with", "width")),
        (
            "a4,",
            "a2,",
            {},
            ("Row 3", "line 5", "name", "pets.csv", "'a2'", "row 1", "line 3"),
        ),
        ("a3,", ",", {}, ("Row 2", "line 4", "name", "pets.csv")),
        ("a2,2.5,20", "a2,2.5", {}, ("Row 1", "line 3", "pets.csv", "4 columns", "5")),
        ("a2,2.5,20", "a2,2,5,20", {}, ("Row 1", "line 3", "pets.csv", "6 columns", "5")),
        ("height", "width", {}, ("pets.csv", "width", "2")),
        ("a2", '"a2', {}, ("pets.csv", "CSV")),
        (
            "",
            "",
            {"classes": ["cat", "dog"]},
            ("Row 3", "line 5", "kind", "pets.csv", "bird", "2", "cat", "dog"),
        ),
        ("", "", {"classes": ["cat", "cat"]}, ("classes",)),
        ("", "", {"features": ["kind"]}, ("features", "from_table")),
        ("", "", {"true_label": "kind"}, ("label", "from_table")),
        ("", "", {"features": []}, ("pets.csv",)),
        ("", "", {"size": 32}, ("size", "from_table")),
        ("", "", {"columns": {"widht": "number", "height": "nomber"}, "drop": ["naem"]}, ("widht", "'width'", "nomber", "naem", "'name'")),
        ("", "", {"columns": ["height"]}, ("columns", "'height'", "age:number")),
        ("", "", {"drop": ["kind"]}, ("'kind'", "label", "drop")),
        ("", "", {"drop": ["height"], "text": ["height"]}, ("'height'", "left out")),
        ("", "", {"id": None, "columns": {"name": "number"}}, ("'name'", "pets.csv", "number", "'a1'", "100%")),
        ("", "", {"image": "width", "drop": ["height"]}, ("drop", "from_table")),
        (
            "",
            "",
            {"image": "width", "features": ["height"]},
            ("features", "from_table"),
        ),
    ],
)
def test_errors_in_a_table_name_the_cell(table: Path, old: str, new: str, options: dict[str, Any], mentions: tuple[str, ...]) -> None:
    table.write_text(CSV.replace(old, new, 1) if old else CSV, encoding="utf-8")
    before = sorted(table.parent.rglob("*"))
    with refused(*mentions):
        from_table(table, **COLUMNS | options)
    assert sorted(table.parent.rglob("*")) == before


def test_rows_of_empty_cells_are_no_rows(table: Path) -> None:
    whole = from_table(table, **COLUMNS)
    commas = "," * (CSV.splitlines()[0].count(","))
    table.write_text(f"{CSV.rstrip()}\n{commas}\n{commas.replace(',', ' , ')}\n", encoding="utf-8")
    assert from_table(table, **COLUMNS).ids == whole.ids


def test_one_class_is_refused(table: Path) -> None:
    table.write_text("x,kind\n1,cat\n2,cat\n")
    with refused("kind", "pets.csv", "cat"):
        from_table(table, label="kind")


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        (b"", ("bad.csv",)),
        (b"x,label\n", ("bad.csv",)),
        (b"x,label\n1,\xff\n", ("UTF-8", "10")),
        (b"PK\x03\x04\0\0,label\n", ("bad.csv", "UTF-8")),
    ],
)
def test_a_file_without_rows_or_in_another_encoding_is_refused(tmp_path: Path, content: bytes, mentions: tuple[str, ...]) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    with refused(*mentions):
        from_table(tmp_path / "bad.csv")


def test_a_table_is_read_without_keeping_its_text_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisewise.data._csv.CELLS", 4096)
    path = tmp_path / "long.csv"
    numbers = np.random.default_rng(0).normal(size=(10_000, 16))
    lines = (",".join([*map(repr, row), f"00{place % 3}"]) for place, row in enumerate(numbers.tolist()))
    path.write_text("\n".join([",".join([*map(str, range(16)), "label"]), *lines]))
    data, peak = with_peak(lambda: from_table(path))
    assert peak < 3 * path.stat().st_size, "holding the text would take ten times the file size"
    assert torch.equal(data.inputs, torch.from_numpy(numbers).float()) and data.classes == ("000", "001", "002")


@pytest.mark.parametrize(
    ("old", "new", "mentions"),
    [
        ("a4,.5,40", "a4,.5", ("Row 3", "line 5", "pets.csv", "4 columns")),
        ("a4", '"a4', ("pets.csv", "CSV")),
    ],
)
def test_errors_in_later_blocks_of_a_table_name_the_cell(
    table: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, mentions: tuple[str, ...]
) -> None:
    whole = from_table(table, **COLUMNS)
    monkeypatch.setattr("noisewise.data._csv.CELLS", 1)
    by_row = from_table(table, **COLUMNS)
    assert torch.equal(by_row.inputs, whole.inputs) and (by_row.ids, by_row.classes) == (whole.ids, whole.classes)
    table.write_text(CSV.replace(old, new, 1), encoding="utf-8")
    with refused(*mentions):
        from_table(table, **COLUMNS)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_position_of_an_invalid_byte_is_counted_from_the_start_of_the_file(table: Path, mark: bytes) -> None:
    content = mark + b"x,label\n" + 10_000 * b"1,a\n2,b\n"
    table.write_bytes(content + b"3,\xe9\n")
    with refused("pets.csv", "UTF-8", len(content) + 2, "UTF-8"):
        from_table(table)


def test_column_names_are_not_compared_pairwise(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [Compared(f"gene {number}") for number in range(500)]
    monkeypatch.setattr(Compared, "times", 0)
    table = _Table(names, lambda texts, others: Rows({}), "genes.csv", "genes", Path())
    assert list(_choose_features(table, names, {"label": "label"}, _Wishes({}, (), True))) == names
    assert Compared.times < 10 * 500
