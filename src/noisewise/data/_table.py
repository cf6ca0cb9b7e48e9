"""A data set from a CSV or Parquet file or a DataFrame: a column of labels, and columns of numbers or one of image paths.

Everything is read and checked before a data set exists, and an error names the row and the column. It must not know what is
done with the data.
"""

from __future__ import annotations

import csv
import io
import os
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._folder import gather
from noisewise.data._frame import columns_of, is_frame
from noisewise.errors import InputError, must, unknown

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".parquet", ".pq"})
_CELLS = 2**18  # of a CSV that are held as text at a time
_NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # as pandas writes the index of a table, and what it reads a CSV's as


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is read as a table."""
    return Path(path).suffix.lower() in TABLE_SUFFIXES and not Path(path).is_dir()


class Table(NamedTuple):
    """What was read, before anything is made of it.

    Args:
        columns: by name.
        called: what an error calls the table.
        title: what the data set is called.
        folder: where the paths of images start.
    """

    columns: dict[str, Column]
    called: str
    title: str
    folder: Path


def from_table(
    source: Any,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    image: str | None = None,
    id: str | None = None,
    true_label: str | None = None,
    classes: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
    memory: float = 4.0,
    unreadable: str = "refuse",
) -> Dataset:
    """Read a CSV or Parquet file, or a pandas DataFrame.

    Args:
        source: the path of the file. A CSV has a line of column names first; it is separated by commas, semicolons or tabs. Or a
            DataFrame, whose index is no column.
        label: the column of labels, whole numbers or text.
        features: the columns of numbers to learn from; by default all columns that have a name and no other part. One without a name
            is the index of the table it was written from.
        image: the column of image paths, from the folder the file is in, to learn from instead; those of a DataFrame start
            from the folder you work in.
        id: a column that names every example, each once.
        true_label: a column of labels known to be right.
        classes: the names of the classes in their order; by default those that occur, sorted.
        size: the side, or (height, width), to resize images to; it may be left out where all have one size.
        memory: how many GiB decoded images may take; more of them stay on disk, see `Stream`.
        unreadable: "refuse" images that cannot be read, or "skip" them: then every image is tried first, and a warning names those
            that are left out. A path that names no file is refused either way.

    Returns:
        The data set, in the order of the rows.
    """
    given = {"label": label, "image": image, "id": id, "true_label": true_label}
    parts = {part: str(column) for part, column in given.items() if column is not None}
    table = _read(source, parts.values())
    for part, name in parts.items():
        if list(parts.values()).count(name) > 1:
            raise must(part, "from_table", "a column that has no other part", name)
    columns = {part: _column(table, name, f"Say with {part}=… which it is.") for part, name in parts.items()}
    numbered, true_numbered, names = encode(columns["label"], columns.get("true_label"), classes)
    ids = columns["id"].ids() if "id" in columns else None
    if image is not None:
        if features is not None:
            raise must("features", "from_table", "left out where there is a column of images", features)
        found = _existing(columns["image"], table.folder)
        written = tuple(map(str, columns["image"].values))
        files = ImageFiles(found, numbered, names, true_labels=true_numbered, ids=ids or written, name=table.title)
        return gather(files, size, memory, unreadable)
    if size is not None:
        raise must("size", "from_table", "left out where there is no column of images", size)
    chosen = _chosen(table, features, set(parts.values()))
    inputs = _numbers(table, chosen, "Say with features=[…] which it is.")
    return Dataset(inputs, numbered, names, true_labels=true_numbered, ids=ids, name=table.title, features=chosen)


def inputs_of(source: Any, features: Sequence[str]) -> Tensor:
    """The columns of numbers that were learned from, of another table, whichever order they have and whatever others it has.

    Args:
        source: the path of a file, or a DataFrame.
        features: their names.
    """
    return _numbers(_read(source, ()), features, "Give a table with all columns that were learned from.")


def _numbers(table: Table, names: Sequence[str], advice: str) -> Tensor:
    return torch.from_numpy(np.stack([_column(table, name, advice).numbers() for name in names], 1))


def _column(table: Table, name: str, advice: str) -> Column:
    if name not in table.columns:
        raise InputError(f"{unknown(f'column of {table.called}', name, table.columns)} {advice}")
    return table.columns[name]


def _chosen(table: Table, features: Sequence[str] | None, taken: set[str]) -> tuple[str, ...]:
    """The columns of numbers to learn from."""
    if isinstance(features, str):
        features = [features]
    named = (name for name in table.columns if name not in taken and not _NAMELESS.fullmatch(name))
    chosen = tuple(named if features is None else map(str, features))
    if not chosen:
        raise InputError(f"There is no column of {table.called} to learn from; name columns of numbers with features=[…] or one of images.")
    for name, times in Counter(chosen).items():
        if name in taken or times > 1:
            raise must("features", "from_table", "columns that are named once and have no other part", name)
    return chosen


def _existing(column: Column, folder: Path) -> tuple[str, ...]:
    files = [folder / str(value) for value in column.objects()]
    for number, file in enumerate(files):
        if not file.is_file():
            raise column.wrong(number, f"names the image {str(file)!r}, which is no file", "correct the path or leave the row out")
    return tuple(map(str, files))


def _read(source: Any, parts: Collection[str]) -> Table:
    """The table of a source, of whose columns some have a part other than to be learned from."""
    if is_frame(source):
        called = "the DataFrame"
        table = Table(_named(*columns_of(source), called), called, "DataFrame", Path())
    else:
        path = Path(source)
        table = Table(_from_file(path, parts), path.name, path.stem, path.parent)
    if not table.columns or not len(next(iter(table.columns.values())).values):
        raise InputError(f"There are no rows in {table.called}; give a table with a row for every example.")
    return table


def _from_file(path: Path, parts: Collection[str]) -> dict[str, Column]:
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}; give the path of a CSV or Parquet file.")
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise InputError(f"The file {path.name!r} must end in one of {', '.join(sorted(TABLE_SUFFIXES))}, to say what is in it.")
    return _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path, parts)


def _csv(path: Path, parts: Collection[str]) -> dict[str, Column]:
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InputError(f"The file {path.name!r} cannot be read ({error.strerror}); see that you may read it.") from None
    with opened as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
        try:
            return _from_lines(text, path.name, parts)
        except UnicodeDecodeError as error:
            byte = file.tell() - len(error.object) + error.start  # an error counts from the bytes that were decoded last
            raise InputError(f"The file {path.name!r} is not UTF-8 text at byte {byte}; save it as UTF-8.") from None


def _from_lines(text: TextIO, called: str, parts: Collection[str]) -> dict[str, Column]:
    """The columns of a CSV, read line by line: those that have a part as they are written, for "007" is not "7"."""
    first = text.readline()
    reader = csv.reader(chain([first], text), delimiter=max(",;\t", key=first.count), strict=True)
    lines = array("q")
    try:
        names = [name.strip() for name in next(reader, [])]
        columns = [_Cells(name not in parts) for name in names]
        rows = _rows(reader, len(names), called, lines)
        at_a_time = max(1, _CELLS // max(1, len(names)))
        while block := list(islice(rows, at_a_time)):
            for column, cells in zip(columns, zip(*block, strict=True), strict=True):
                column.add(cells)
    except csv.Error as error:
        raise InputError(f"Line {reader.line_num} of {called} cannot be read as CSV: {error}; correct it.") from None
    return _named(names, [column.values() for column in columns], called, lines)


def _rows(reader: Any, width: int, called: str, lines: array[int]) -> Iterator[list[str]]:
    """The rows of a CSV that are not empty; the line each ends at is written down."""
    for row in filter(None, reader):
        if len(row) != width:
            raise InputError(
                f"Row {len(lines)} (line {reader.line_num}) of {called} has {len(row)} columns and the first line {width}; "
                "put text that has a separator in it between double quotes."
            )
        lines.append(reader.line_num)
        yield row


class _Cells:
    """The cells of one column as they are read, packed as numbers as long as all of them are finite ones.

    Args:
        packed: whether they may be.
    """

    def __init__(self, packed: bool) -> None:
        self.packed = packed
        self.blocks: list[Any] = []

    def add(self, cells: tuple[str, ...]) -> None:
        self.blocks.append(self._numbers(cells) if self.packed else cells)

    def _numbers(self, cells: tuple[str, ...]) -> Any:
        try:
            return Column(cells, "").numbers()
        except InputError:  # said of the whole column, if it is learned from
            self.packed = False
            return cells

    def values(self) -> Any:
        return np.concatenate(self.blocks) if self.packed and self.blocks else list(chain.from_iterable(self.blocks))


def _parquet(path: Path) -> dict[str, Column]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(f"Reading {path.name!r} needs pyarrow, which is not installed; run: pip install 'noisewise[parquet]'.") from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise InputError(f"The file {path.name!r} cannot be read as Parquet: {error}; write it again.") from None
    return _named(table.column_names, [column.to_numpy() for column in table.columns], path.name)


def _named(names: Sequence[str], values: Sequence[Any], called: str, lines: Sequence[int] | None = None) -> dict[str, Column]:
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"Every column of {called} must have a name of its own. Got {name!r} {times} times; rename them.")
    return {name: Column(column, f"column {name!r} of {called}", lines) for name, column in zip(names, values, strict=True)}
