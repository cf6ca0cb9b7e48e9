"""Data frames, Parquet, Excel and Hugging Face data sets are read like the CSV file with the same content."""

from __future__ import annotations

import builtins
import contextlib
import datetime
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import COLUMNS
from PIL import Image

from costs import with_peak
from noisewise import fit
from noisewise.data import from_arrays, from_hf, from_table, read
from refused import refused


@pytest.mark.parametrize("options", [COLUMNS, {**COLUMNS, "features": ["height"]}, {"label": "truth", "features": "width"}])
def test_a_data_frame_is_read_like_its_csv_file(table: Path, frame: Any, options: dict[str, Any]) -> None:
    ours, theirs = read(frame, **options), read(table, **options)
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
    assert (ours.classes, ours.ids, ours.features) == (theirs.classes, theirs.ids, theirs.features)
    assert (ours.true_labels is None) == (theirs.true_labels is None)
    assert theirs.true_labels is None or torch.equal(ours.true_labels, theirs.true_labels)
    assert ours.source is None, "a frame in memory cannot be read again"


def test_a_data_frame_of_any_index_types_and_column_names_is_read(frame: Any) -> None:
    import pandas

    class SubclassedFrame(pandas.DataFrame):
        pass

    expected = from_arrays(frame[["width", "height"]].to_numpy(), frame["kind"].tolist())
    narrow = frame.astype({"kind": "category", "height": "Int64", "width": "float32"}).set_index("name")
    numbered = pandas.DataFrame(frame[["width", "height", "kind"]].to_numpy())
    for data in (
        read(narrow, label="kind", features=["width", "height"]),
        read(SubclassedFrame(frame), label="kind", features=["width", "height"]),
        read(numbered, label=2),
        read(numbered, label=2, features=[0, 1]),
    ):
        assert torch.equal(data.inputs, expected.inputs) and torch.equal(data.labels, expected.labels) and data.classes == expected.classes
        assert data.ids is None


def test_errors_in_a_data_frame_name_the_cell(frame: Any) -> None:
    import pandas

    with refused("DataFrame", "label", *frame.columns):
        read(frame)
    with refused("'name'", "DataFrame", "'a1'", "date"):
        read(frame, label="kind", true_label="truth", columns={"name": "date"})
    without = frame.assign(kind=["cat", None, "cat", "bird"])
    with refused("Row 1", "kind", "DataFrame"):
        read(without, **COLUMNS)
    with refused("DataFrame"):
        read(frame[:0], **COLUMNS)
    with refused("DataFrame"):
        read(pandas.DataFrame())
    twice = pandas.concat([frame, frame["width"]], axis=1)
    with refused("DataFrame", "width", "2"):
        read(twice, **COLUMNS)
    with refused("DataFrame", "split"):
        read(frame, split="test")
    with refused("source", "Series"):
        read(frame["width"])


def test_a_written_index_is_not_a_feature(frame: Any, tmp_path: Path) -> None:
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


def test_a_data_frame_can_list_image_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(folder)
    data = read(pandas.DataFrame({"file": ["cat/2.png", "cat/1.png"], "kind": ["a", "b"]}), image="file", label="kind")
    assert data.inputs[:, 0, 0, 0].tolist() == [2, 1] and data.ids == ("cat/2.png", "cat/1.png")


def test_a_polars_frame_is_read_like_its_csv_file(table: Path) -> None:
    import polars

    frame = polars.read_csv(table)
    for options in (COLUMNS, {**COLUMNS, "features": ["height"]}):
        ours, theirs = read(frame, **options), read(table, **options)
        assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
        assert (ours.classes, ours.ids, ours.features) == (theirs.classes, theirs.ids, theirs.features)
    typed = frame.with_columns(polars.col("kind").cast(polars.Categorical), polars.col("height").cast(polars.Int8))
    assert torch.equal(read(typed, **COLUMNS).labels, read(table, **COLUMNS).labels)
    gap = frame.with_columns(polars.when(polars.col("kind") == "bird").then(None).otherwise(polars.col("kind")).alias("kind"))
    with refused("Row 3", "kind", "DataFrame"):
        read(gap, **COLUMNS)
    with refused("DataFrame", "label"):
        read(frame)
    with refused("DataFrame"):
        read(frame[:0], **COLUMNS)


def test_predictions_for_a_polars_frame_match_columns_by_name(table: Path, tmp_path: Path) -> None:
    import polars

    frame = polars.read_csv(table)
    run = fit("linear", read(frame, **COLUMNS), epochs=1, folder=tmp_path / "run", device="cpu")
    assert torch.equal(run.predict(frame[:, ::-1]), run.predict(table))


def test_an_excel_file_is_read_like_its_frame(frame: Any, tmp_path: Path) -> None:
    frame.loc[0, ["kind", "truth"]] = "None"  # text, not a missing value
    frame.to_excel(tmp_path / "pets.xlsx", index=False)
    ours, theirs = read(tmp_path / "pets.xlsx", **COLUMNS), read(frame, **COLUMNS)
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.labels, theirs.labels)
    assert (ours.classes, ours.ids, ours.features, ours.name) == (theirs.classes, theirs.ids, theirs.features, "pets")
    frame.loc[2, "kind"] = None
    frame.to_excel(tmp_path / "pets.xlsx", index=False)
    with refused("Row 2", "kind", "pets.xlsx"):
        read(tmp_path / "pets.xlsx", **COLUMNS)


def test_an_unreadable_excel_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pets.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with refused("pets.xlsx"):
        read(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "")
        archive.infolist()[0].file_size = 2**31  # a forged size
    with refused("2,147,483,648", "1,073,741,824"):
        read(path)
    pytest.importorskip("pandas").DataFrame({"x": [1, 2], "label": ["a", "b"]}).to_excel(path, index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # as if it were not installed
    with refused("pandas", "openpyxl", "CSV"):
        read(path)


def test_parquet_is_read_like_csv(table: Path) -> None:
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
    with refused("Row 2", "kind", "pets.parquet"):
        from_table(path, **COLUMNS)
    parquet.write_table(arrow.table(columns | {"kind": arrow.array(["cat", "dog", None, "cat"]).dictionary_encode()}), path)
    with refused("Row 2", "kind", "pets.parquet"):
        from_table(path, **COLUMNS)
    parquet.write_table(arrow.table(columns | {"width": [1.0, None, 2.0, 3.0]}), path)
    assert from_table(path, **COLUMNS).features == ("width", "width is a gap", "height")
    parquet.write_table(arrow.table(columns | {"width": [[1.0], [1.0, 2.0], [2.0], [3.0]]}), path)
    with refused("Row 0", "width", "pets.parquet"):
        from_table(path, **COLUMNS)
    days = [datetime.datetime(2020, 1, day) for day in (2, 3, 4, 5)]
    parquet.write_table(arrow.table(columns | {"width": days}), path)
    assert from_table(path, **COLUMNS).features == ("width", "width month", "width weekday", "height")
    path.write_bytes(b"PAR1 but not for long")
    with refused("pets.parquet"):
        from_table(path)


def test_a_parquet_file_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    empty = arrow.nulls(2**20, arrow.int8())
    block = arrow.table({"x": empty, "y": empty, "label": empty})
    with parquet.ParquetWriter(tmp_path / "bomb.parquet", block.schema) as writer:
        for _ in range(64):
            writer.write_table(block)
    assert (tmp_path / "bomb.parquet").stat().st_size < 2**22
    with refused("1,610,612,736", "1,073,741,824"):
        read(tmp_path / "bomb.parquet")
    text = "x" * 10_000  # in the file once, and in memory once
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
    with refused("noisewise[parquet]"):
        from_table(tmp_path / "x.parquet")


def test_a_hugging_face_data_set_of_images_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"picture": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat", "bird"])})
    images = [Image.new("RGB", (6, 4), (number, 2, 3)) for number in range(3)]
    source = datasets.Dataset.from_dict({"picture": images, "label": [1, 0, 1]}, features=kinds)
    data = read(source)
    assert data.classes == ("dog", "cat", "bird") and data.labels.tolist() == [1, 0, 1]
    assert data.inputs.shape == (3, 3, 4, 6) and data.inputs[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert read(source, size=8).inputs.shape == (3, 3, 8, 8)
    with refused("lable"):
        read(source, label="lable")
    unlabelled = datasets.Dataset.from_dict({"picture": images, "label": [1, -1, 1]}, features=kinds)
    with refused("Row 1", "label", "-1", "3"):
        read(unlabelled)
    mixed = datasets.Dataset.from_dict({"picture": [*images[:2], Image.new("L", (5, 5))], "label": [1, 0, 1]}, features=kinds)
    with refused("(4, 6)", "row 0", "(5, 5)", "row 2"):
        read(mixed)
    with refused("dataset", "from_hf", "DatasetDict"):
        from_hf(datasets.DatasetDict({"train": source}))


def test_a_hugging_face_data_set_of_numbers_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"x": [1.0, 2.0], "y": [3, 4], "word": ["a", "b"], "label": ["no", "yes"]})
    data = read(source.with_format("torch"), features=["y", "x"], id="word")
    assert data.inputs.tolist() == [[3, 1], [4, 2]] and data.ids == ("a", "b") and data.classes == ("no", "yes")
    vectors = datasets.Dataset.from_dict({"v": [[1.0, 2.0], [3.0, 4.0]], "x": [5.0, 6.0], "label": [0, 1]})
    assert read(vectors, features=["v", "x"]).inputs.tolist() == [[1, 2, 5], [3, 4, 6]]
    assert read(source, features=["word"]).features == ("word = a", "word = b")
    assert read(source, text="word", drop=["y"]).features == read(source, columns=["word:text"], features=["x", "word"]).features
    assert torch.equal(read(vectors, features="v").inputs, read(vectors, features=["v"]).inputs)
    assert read(source).features == ("x", "y"), "each row has its own word"
    tokens = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4], [5]], "label": [0, 1, 0]})
    with refused("Row 2", "row 0", "input_ids"):
        read(tokens, features="input_ids")
