"""A data set from a CSV, Parquet or Excel file or a DataFrame: a column of labels, and columns of numbers or one of image paths.

The names of the columns are checked before the rows are read, and everything before a data set exists; an error names the row and the
column. It must not know what is done with the data.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from noisewise.data._arrays import columns_of, is_frame
from noisewise.data._column import Column, encode, is_number
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._folder import gather
from noisewise.errors import InputError, invalid_parameter, reason, unknown

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx"})
_CELLS = 2**18  # of a CSV that are held as text at a time
_FIRST_ROWS = 1000  # of a CSV that are read at first, so that a column of text is refused before a long file is read
_SEPARATORS = "\t;,"  # of a CSV; where several would do, the first
_SAMPLE = 100_000  # characters of a line of a CSV that are looked at to find its separator
_UNPACKED = 1 << 30  # bytes that a packed file may always unpack to
_RATIO = 100  # how many times its own size it may unpack to, where that is more
_NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # as pandas writes the index of a table, and what it reads a CSV's as


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is read as a table."""
    return Path(path).suffix.lower() in TABLE_SUFFIXES and not Path(path).is_dir()


class Needed(NamedTuple):
    """The columns of a table that are used.

    Args:
        as_written: those that are read as they are written, for the label "007" is not "7".
        numbers: those to learn from.
    """

    as_written: Sequence[str]
    numbers: Sequence[str]


Choose = Callable[[Sequence[str], str], Needed]
"""Names the columns that are needed, given the names of all columns and what an error calls the table."""


class Table(NamedTuple):
    """What was read, before anything is made of it.

    Args:
        columns: those that are needed, by name.
        needed: their names.
        title: what the data set is called.
        folder: where the paths of images start.
    """

    columns: dict[str, Column]
    needed: Needed
    title: str
    folder: Path

    def numbers(self) -> Tensor:
        return torch.from_numpy(np.stack([self.columns[name].numbers() for name in self.needed.numbers], 1))


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
    """Read a CSV, Parquet or Excel file, or a DataFrame of pandas or polars.

    Args:
        source: the path of the file, or a DataFrame, whose index is no column. A CSV has a line of column names first; it is separated
            by commas, semicolons or tabs, and where it is not by commas, numbers may be written with decimal commas. Of an Excel file
            (.xlsx) the first sheet is read, with pandas and openpyxl.
        label: the column of labels, integers or text.
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

    def choose(names: Sequence[str], called: str) -> Needed:
        known = dict.fromkeys(names)
        for part, name in parts.items():
            if list(parts.values()).count(name) > 1:
                raise invalid_parameter(part, "from_table", "a column that has no other part", name)
            _check_known(known, name, called, f"Set {part!r} to the right one.")
        if image is not None and features is not None:
            raise invalid_parameter("features", "from_table", "left out where there is a column of images", features)
        if image is None and size is not None:
            raise invalid_parameter("size", "from_table", "left out where there is no column of images", size)
        return Needed(tuple(parts.values()), () if image is not None else _chosen(known, called, features, set(parts.values())))

    table = _read(source, choose)
    columns = {part: table.columns[name] for part, name in parts.items()}
    numbered, true_numbered, names = encode(columns["label"], columns.get("true_label"), classes)
    ids = columns["id"].ids() if "id" in columns else None
    if image is not None:
        paths = _existing(columns["image"], table.folder)
        written = tuple(map(str, columns["image"].values))
        files = ImageFiles(paths, numbered, names, true_labels=true_numbered, ids=ids or written, name=table.title)
        return gather(files, size, memory, unreadable)
    chosen = tuple(table.needed.numbers)
    return Dataset(table.numbers(), numbered, names, true_labels=true_numbered, ids=ids, name=table.title, features=chosen)


def read_features(source: Any, features: Sequence[str]) -> Tensor:
    """The columns of numbers that were learned from, of another table, whichever order they have and whatever others it has.

    Args:
        source: the path of a file, or a DataFrame.
        features: their names.
    """

    def choose(names: Sequence[str], called: str) -> Needed:
        known = dict.fromkeys(names)
        for name in features:
            _check_known(known, name, called, "Give a table with all columns that were learned from.")
        return Needed((), features)

    return _read(source, choose).numbers()


def _check_known(known: Collection[str], name: str, called: str, advice: str) -> None:
    if name not in known:
        raise InputError(f"{unknown(f'column of {called}', name, known)} {advice}")


def _chosen(known: Collection[str], called: str, features: Sequence[str] | None, taken: set[str]) -> tuple[str, ...]:
    """The columns of numbers to learn from."""
    if isinstance(features, str):
        features = [features]
    named = (name for name in known if name not in taken and not _NAMELESS.fullmatch(name))
    chosen = tuple(named if features is None else map(str, features))
    if not chosen:
        raise InputError(f"There is no column of {called} to learn from; set 'features' to columns of numbers, or 'image' to one of paths.")
    for name, times in Counter(chosen).items():
        _check_known(known, name, called, "Set 'features' to the right ones.")
        if name in taken or times > 1:
            raise invalid_parameter("features", "from_table", "columns that are named once and have no other part", name)
    return chosen


def _existing(column: Column, folder: Path) -> tuple[str, ...]:
    files = [folder / str(value) for value in column.objects()]
    for number, file in enumerate(files):
        if not file.is_file():
            raise column.wrong(number, f"names the image {str(file)!r}, which is no file", "correct the path or leave the row out")
    return tuple(map(str, files))


def _read(source: Any, choose: Choose) -> Table:
    if is_frame(source):
        columns, needed = _from_values(*columns_of(source), "the DataFrame", choose)
        return Table(columns, needed, "DataFrame", Path())
    path = Path(source)
    return Table(*_from_file(path, choose), path.stem, path.parent)


def _from_file(path: Path, choose: Choose) -> tuple[dict[str, Column], Needed]:
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}; give the path of a CSV, Parquet or Excel file.")
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise InputError(f"The file {path.name!r} must end in one of {', '.join(sorted(TABLE_SUFFIXES))}, to say what is in it.")
    if suffix == ".xlsx":
        return _excel(path, choose)
    return _parquet(path, choose) if suffix in (".parquet", ".pq") else _csv(path, choose)


def _from_values(names: Sequence[str], values: Sequence[Any], called: str, choose: Choose) -> tuple[dict[str, Column], Needed]:
    needed = _needed(names, called, choose)
    by_name = dict(zip(names, values, strict=True))
    return _columns({name: by_name[name] for name in chain(*needed)}, called), needed


def _needed(names: Sequence[str], called: str, choose: Choose) -> Needed:
    if not names:
        raise _no_rows(called)
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"Every column of {called} must have a name of its own. Got {name!r} {times} times; rename them.")
    return choose(names, called)


def _columns(values: dict[str, Any], called: str, lines: Sequence[int] | None = None) -> dict[str, Column]:
    if not all(map(len, values.values())):
        raise _no_rows(called)
    return {name: Column(column, f"column {name!r} of {called}", lines) for name, column in values.items()}


def _no_rows(called: str) -> InputError:
    return InputError(f"There are no rows in {called}; give a table with a row for every example.")


def _csv(path: Path, choose: Choose) -> tuple[dict[str, Column], Needed]:
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InputError(f"The file {path.name!r} cannot be read ({error.strerror}); see that you may read it.") from None
    with opened as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
        try:
            return _from_lines(text, path.name, choose)
        except UnicodeDecodeError as error:
            byte = file.tell() - len(error.object) + error.start  # an error counts from the bytes that were decoded last
            raise InputError(f"The file {path.name!r} is not UTF-8 text at byte {byte}; save it as UTF-8.") from None


def _from_lines(text: TextIO, called: str, choose: Choose) -> tuple[dict[str, Column], Needed]:
    """The needed columns of a CSV. Reading ends at the first block in which a column to learn from has something else than numbers."""
    first = list(islice(text, 2))
    separator = _separator(first)
    reader = csv.reader(chain(first, text), delimiter=separator, strict=True)
    lines = array("q")
    try:
        names = [name.strip() for name in next(reader, [])]
        needed = _needed(names, called, choose)
        numbers = set(needed.numbers)
        cells = {name: _Cells(f"column {name!r} of {called}", name in numbers, separator != ",") for name in chain(*needed)}
        positions = {name: position for position, name in enumerate(names)}
        rows = _rows(reader, len(names), called, lines)
        at_a_time = max(1, _CELLS // len(names))
        block = list(islice(rows, min(at_a_time, _FIRST_ROWS)))
        while block:
            by_column = list(zip(*block, strict=True))
            for name, column in cells.items():
                column.add(by_column[positions[name]])
                if name in numbers and not column.packed:
                    _columns({name: column.values()}, called, lines)[name].numbers()  # raises the error that names the row
            block = list(islice(rows, at_a_time))
    except csv.Error as error:
        raise InputError(f"Line {reader.line_num} of {called} cannot be read as CSV: {error}; correct it.") from None
    return _columns({name: column.values() for name, column in cells.items()}, called, lines), needed


def _separator(first: list[str]) -> str:
    """What separates the columns of a CSV whose first two lines are given: what makes as many of both, and then what makes most."""

    def columns(separator: str) -> tuple[bool, int]:
        header, row = (len(next(csv.reader([line[:_SAMPLE]], delimiter=separator))) for line in (*first, "", "")[:2])
        return header == row > 1, header

    return max(_SEPARATORS, key=columns)


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
        name: what an error calls the column.
        packed: whether they may be.
        commas: whether numbers may have decimal commas; then all of the column that are not whole must have them.
    """

    def __init__(self, name: str, packed: bool, commas: bool) -> None:
        self.packed = packed
        self.blocks: list[Any] = []
        self._name = name
        self._commas = commas
        self._marks: set[str] = set()

    def add(self, cells: tuple[str, ...]) -> None:
        self.blocks.append(self._numbers(cells) if self.packed else cells)

    def _numbers(self, cells: tuple[str, ...]) -> Any:
        pointed = self._with_points(cells) if self._commas else cells
        try:
            numbers = Column(pointed, "").numbers()
        except InputError:  # said of the whole column, if it is learned from
            self.packed = False
            return [number if is_number(number) else cell for number, cell in zip(pointed, cells, strict=True)]
        if len(self._marks) > 1:
            raise InputError(f"The numbers in {self._name} have decimal commas in some rows and decimal points in others; write all alike.")
        return numbers

    def _with_points(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        text = "".join(cells)
        self._marks |= {mark for mark in ".," if mark in text}
        return tuple(cell.replace(",", ".") for cell in cells) if "," in text else cells

    def values(self) -> Any:
        return np.concatenate(self.blocks) if self.packed and self.blocks else list(chain.from_iterable(self.blocks))


def _parquet(path: Path, choose: Choose) -> tuple[dict[str, Column], Needed]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise InputError(f"Reading {path.name!r} needs pyarrow, which is not installed; run: pip install 'noisewise[parquet]'.") from None
    try:
        with parquet.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
        needed = _needed(schema.names, path.name, choose)
        names = list(chain(*needed))
        packed = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        _check_unpacked(path, max(packed, 8 * metadata.num_rows * len(names)))
        # Kept as a dictionary, a text that many rows share is in memory once, as it is in the file.
        texts = [name for name in names if types.is_string(schema.field(name).type) or types.is_binary(schema.field(name).type)]
        table = parquet.read_table(path, columns=names, read_dictionary=texts)
    except (ArrowException, OSError) as error:
        raise InputError(f"The file {path.name!r} cannot be read as Parquet: {reason(error)}; write it again.") from None
    columns = {name: table.column(name) for name in names}
    values = {name: _texts(column) if types.is_dictionary(column.type) else column.to_numpy() for name, column in columns.items()}
    return _columns(values, path.name), needed


def _texts(column: Any) -> np.ndarray:
    """A column of pyarrow that is a dictionary and numbers into it: equal texts are one object, empty cells None."""
    array = column.combine_chunks()
    texts = np.append(array.dictionary.to_numpy(zero_copy_only=False).astype(object), [None])
    numbers: np.ndarray = array.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(texts[numbers])


def _excel(path: Path, choose: Choose) -> tuple[dict[str, Column], Needed]:
    try:
        import pandas

        with zipfile.ZipFile(path) as archive:
            _check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="openpyxl")  # which warns of styles it does not know
            frame = pandas.read_excel(path, keep_default_na=False, na_values=[""])  # or a label "None" would be no label
    except ImportError:
        raise InputError(
            f"Reading {path.name!r} needs pandas and openpyxl, which are not both installed; save the sheet as CSV and give that, "
            "or run: pip install pandas openpyxl."
        ) from None
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in any way its parser can
        raise InputError(f"The file {path.name!r} cannot be read as Excel: {reason(error)}; save it again, or as CSV.") from None
    return _from_values(*columns_of(frame), path.name, choose)


def _check_unpacked(path: Path, size: int) -> None:
    limit = max(_UNPACKED, _RATIO * path.stat().st_size)
    if size > limit:
        raise InputError(
            f"The file {path.name!r} unpacks to {size:,} bytes, more than the {limit:,} that are read of a file of its size; "
            "if you trust it, read it with pandas and give the DataFrame."
        )
