"""A data set from a CSV, Parquet or Excel file or a DataFrame: a column of labels, and columns of numbers or one of image paths.

The names of the columns are checked before the rows are read. Errors name the row and the column.
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
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode, is_number
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._folder import load_or_stream
from noisewise.errors import InputError, invalid_parameter, reason, unknown

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx"})
_CELLS = 2**18  # how many cells of a CSV are in memory as text at a time
_FIRST_ROWS = 1000  # the first block is small, so that a column of text is refused before a long file is read
_SEPARATORS = "\t;,"  # the first wins a tie
_SAMPLE = 100_000  # characters of a line that are used to find the separator
_UNPACKED = 1 << 30  # bytes that every compressed file may unpack to
_RATIO = 100  # a larger file may unpack to this many times its size
_NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas writes and reads the index of a table

Load = Callable[[Sequence[str], Sequence[str]], tuple[dict[str, Any], Sequence[int] | None]]
"""Reads the named columns, the first as text and the others as numbers: their values by name, and the line that each row ends at."""


class _Table(NamedTuple):
    """A table whose rows are not read yet.

    Args:
        names: the names of all columns.
        load: reads some of them.
        called: the name of the table in errors.
        title: the name of the data set.
        folder: the folder that image paths start from.
    """

    names: Sequence[str]
    load: Load
    called: str
    title: str
    folder: Path

    def check_names(self, names: Collection[str], advice: str) -> None:
        known = set(self.names)
        for name in names:
            if name not in known:
                raise InputError(f"{unknown(f'column of {self.called}', name, known)} {advice}")

    def columns(self, texts: Sequence[str], numbers: Sequence[str]) -> dict[str, Column]:
        values, lines = self.load(texts, numbers)
        if not all(map(len, values.values())):
            raise _no_rows(self.called)
        return {name: Column(column, f"column {name!r} of {self.called}", lines) for name, column in values.items()}


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is read as a table."""
    return Path(path).suffix.lower() in TABLE_SUFFIXES and not Path(path).is_dir()


def is_frame(source: Any) -> bool:
    """Whether an object is a DataFrame of pandas or polars."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "polars") for kind in type(source).__mro__)


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
        source: the path of the file, or a DataFrame, whose index is ignored. A CSV starts with a line of column names and is separated
            by commas, semicolons or tabs; if it is not separated by commas, numbers may have decimal commas. For an Excel file
            (.xlsx) the first sheet is read, with pandas and openpyxl.
        label: the column of labels, integers or text.
        features: the columns of numbers to learn from; by default all columns that are not named here. Columns without a name are
            left out, because they are usually the index of the table.
        image: the column of image paths to learn from instead, relative to the folder of the file, or to the working directory for
            a DataFrame.
        id: a column with a unique name for every example.
        true_label: a column of true labels.
        classes: the names of the classes in order; by default those that occur, sorted.
        size: the side, or (height, width), to resize images to; not needed if all images have one size.
        memory: how many GiB decoded images may take; larger data sets stay on disk, see `Stream`.
        unreadable: "refuse" unreadable images, or "skip" them: then every image is tested first, and a warning lists the skipped
            ones. A path without a file is always refused.

    Returns:
        The data set, in the order of the rows.
    """
    given = {"label": label, "image": image, "id": id, "true_label": true_label}
    roles = {role: str(column) for role, column in given.items() if column is not None}
    table = _open(source)
    for role, name in roles.items():
        if list(roles.values()).count(name) > 1:
            raise invalid_parameter(role, "from_table", "a column that is used once", name)
        table.check_names([name], f"Set {role!r} to the right one.")
    if image is not None and features is not None:
        raise invalid_parameter("features", "from_table", "left out if 'image' is set", features)
    if image is None and size is not None:
        raise invalid_parameter("size", "from_table", "left out if 'image' is not set", size)
    chosen = () if image is not None else _choose_features(table, features, set(roles.values()))
    read = table.columns(tuple(roles.values()), chosen)
    columns = {role: read[name] for role, name in roles.items()}
    numbered, true_numbered, names = encode(columns["label"], columns.get("true_label"), classes)
    ids = columns["id"].ids() if "id" in columns else None
    if image is not None:
        paths = _existing(columns["image"], table.folder)
        written = tuple(map(str, columns["image"].values))
        files = ImageFiles(paths, numbered, names, true_labels=true_numbered, ids=ids or written, name=table.title)
        return load_or_stream(files, size=size, memory=memory, unreadable=unreadable)
    inputs = _stack(read, chosen)
    return Dataset(inputs, numbered, names, true_labels=true_numbered, ids=ids, name=table.title, features=chosen)


def read_features(source: Any, features: Sequence[str]) -> Tensor:
    """Read the columns that a model was trained on from another table, which may have them in any order, with others.

    Args:
        source: the path of a file, or a DataFrame.
        features: the names of the columns.
    """
    table = _open(source)
    table.check_names(features, "Give a table with all columns that the model was trained on.")
    return _stack(table.columns((), features), features)


def _stack(columns: dict[str, Column], names: Sequence[str]) -> Tensor:
    return torch.from_numpy(np.stack([columns[name].numbers() for name in names], 1))


def _choose_features(table: _Table, features: Sequence[str] | None, used: set[str]) -> tuple[str, ...]:
    if isinstance(features, str):
        features = [features]
    others = (name for name in table.names if name not in used and not _NAMELESS.fullmatch(name))
    chosen = tuple(others if features is None else map(str, features))
    if not chosen:
        raise InputError(f"No column of {table.called} is left to learn from; set 'features' to columns of numbers, or 'image'.")
    table.check_names(chosen, "Set 'features' to the right ones.")
    for name, times in Counter(chosen).items():
        if name in used or times > 1:
            raise invalid_parameter("features", "from_table", "columns that are used once", name)
    return chosen


def _existing(column: Column, folder: Path) -> tuple[str, ...]:
    files = [folder / str(value) for value in column.objects()]
    for number, file in enumerate(files):
        if not file.is_file():
            raise column.error(number, f"names the image {str(file)!r}, which does not exist", "correct the path or leave the row out")
    return tuple(map(str, files))


def _open(source: Any) -> _Table:
    if is_frame(source):
        table = _Table(*_from_frame(source), "the DataFrame", "DataFrame", Path())
    else:
        path = Path(source)
        if not path.is_file():
            raise InputError(f"There is no file {str(path)!r}; give the path of a CSV, Parquet or Excel file.")
        suffix = path.suffix.lower()
        if suffix not in TABLE_SUFFIXES:
            raise InputError(f"The name of the file {path.name!r} must end in one of {', '.join(sorted(TABLE_SUFFIXES))}.")
        opener = {".xlsx": _from_excel, ".parquet": _from_parquet, ".pq": _from_parquet}.get(suffix, _from_csv)
        table = _Table(*opener(path), path.name, path.stem, path.parent)
    if not table.names:
        raise _no_rows(table.called)
    for name, times in Counter(table.names).items():
        if times > 1:
            raise InputError(f"The columns of {table.called} must have different names. Got {name!r} {times} times; rename them.")
    return table


def _no_rows(called: str) -> InputError:
    return InputError(f"There are no rows in {called}; give a table with a row for every example.")


def _from_frame(frame: Any) -> tuple[list[str], Load]:
    names = list(map(str, frame.columns))
    # Polars has get_columns; pandas is read by position, because a name may occur twice.
    columns = frame.get_columns() if hasattr(frame, "get_columns") else [frame.iloc[:, position] for position in range(frame.shape[1])]
    by_name = dict(zip(names, columns, strict=True))
    return names, lambda texts, numbers: ({name: by_name[name].to_numpy() for name in chain(texts, numbers)}, None)


def _from_csv(path: Path) -> tuple[list[str], Load]:
    def load(texts: Sequence[str], numbers: Sequence[str]) -> tuple[dict[str, Any], Sequence[int] | None]:
        with _csv_rows(path) as (reader, separator):
            return _read_blocks(reader, path.name, texts, numbers, separator != ",")

    with _csv_rows(path) as (reader, _):
        return _header(reader), load


def _header(reader: Any) -> list[str]:
    return [name.strip() for name in next(reader, [])]


@contextmanager
def _csv_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """A CSV reader and the separator of the columns; problems with the file raise one clear error."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InputError(f"The file {path.name!r} cannot be read ({error.strerror}); check its permissions.") from None
    with opened as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
        try:
            first = list(islice(text, 2))
            separator = _separator(first)
            reader = csv.reader(chain(first, text), delimiter=separator, strict=True)
            yield reader, separator
        except UnicodeDecodeError as error:
            byte = file.tell() - len(error.object) + error.start  # the error counts from the last bytes that were read
            raise InputError(f"The file {path.name!r} is not UTF-8 text at byte {byte}; save it as UTF-8.") from None
        except csv.Error as error:
            raise InputError(f"Line {reader.line_num} of {path.name} cannot be read as CSV: {error}; correct it.") from None


def _separator(first: list[str]) -> str:
    """The separator that gives the first two lines the same number of columns, and if several do, the most columns."""

    def columns(separator: str) -> tuple[bool, int]:
        header, row = (len(next(csv.reader([line[:_SAMPLE]], delimiter=separator))) for line in (*first, "", "")[:2])
        return header == row > 1, header

    return max(_SEPARATORS, key=columns)


def _read_blocks(
    reader: Any, called: str, texts: Sequence[str], numbers: Sequence[str], commas: bool
) -> tuple[dict[str, Any], Sequence[int]]:
    """Read the columns of a CSV block by block, up to the first block in which a column of numbers has text."""
    names, lines, packed = _header(reader), array("q"), set(numbers)
    cells = {name: _Cells(f"column {name!r} of {called}", name in packed, commas) for name in chain(texts, numbers)}
    positions = {name: position for position, name in enumerate(names)}
    rows = _rows(reader, len(names), called, lines)
    at_a_time = max(1, _CELLS // len(names))
    block = list(islice(rows, min(at_a_time, _FIRST_ROWS)))
    while block:
        by_column = list(zip(*block, strict=True))
        for name, column in cells.items():
            column.add(by_column[positions[name]])
        for name in numbers:
            if not cells[name].packed:
                Column(cells[name].values(), f"column {name!r} of {called}", lines).numbers()  # raises the error that names the row
        block = list(islice(rows, at_a_time))
    return {name: column.values() for name, column in cells.items()}, lines


def _rows(reader: Any, width: int, called: str, lines: array[int]) -> Iterator[list[str]]:
    """The rows of a CSV that are not empty; the line that each ends at is appended to ``lines``."""
    for row in filter(None, reader):
        if len(row) != width:
            raise InputError(
                f"Row {len(lines)} (line {reader.line_num}) of {called} has {len(row)} columns and the first line {width}; "
                "put text with a separator in it between double quotes."
            )
        lines.append(reader.line_num)
        yield row


class _Cells:
    """The cells of one CSV column, packed as numbers while all of them are finite numbers.

    Args:
        name: the name of the column in errors.
        packed: whether to pack them at all.
        commas: whether numbers may have decimal commas; then all fractions of the column must have them.
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
        with_points = cells
        if self._commas:
            self._marks |= {mark for mark in ".," if any(mark in cell for cell in cells)}
            with_points = tuple(cell.replace(",", ".") for cell in cells)
        try:
            numbers = Column(with_points, "").numbers()
        except InputError:  # the caller reports it with the name of the row
            self.packed = False
            return [number if is_number(number) else cell for number, cell in zip(with_points, cells, strict=True)]
        if len(self._marks) > 1:
            raise InputError(f"The numbers in {self._name} have decimal commas in some rows and decimal points in others; use one.")
        return numbers

    def values(self) -> Any:
        return np.concatenate(self.blocks) if self.packed and self.blocks else list(chain.from_iterable(self.blocks))


def _from_parquet(path: Path) -> tuple[list[str], Load]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise InputError(f"Reading {path.name!r} needs pyarrow, which is not installed; run: pip install 'noisewise[parquet]'.") from None

    def load(texts: Sequence[str], numbers: Sequence[str]) -> tuple[dict[str, Any], Sequence[int] | None]:
        names = [*texts, *numbers]
        unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        _check_unpacked(path, max(unpacked, 8 * metadata.num_rows * len(names)))
        # Read as a dictionary, a text that many rows share is in memory once, as it is in the file.
        shared = [name for name in names if types.is_string(schema.field(name).type) or types.is_binary(schema.field(name).type)]
        try:
            table = parquet.read_table(path, columns=names, read_dictionary=shared)
        except (ArrowException, OSError) as error:
            raise unreadable(error) from None
        columns = {name: table.column(name) for name in names}
        return {name: _texts(column) if types.is_dictionary(column.type) else column.to_numpy() for name, column in columns.items()}, None

    def unreadable(error: Exception) -> InputError:
        return InputError(f"The file {path.name!r} cannot be read as Parquet: {reason(error)}; write it again.")

    try:
        with parquet.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (ArrowException, OSError) as error:
        raise unreadable(error) from None
    return schema.names, load


def _texts(column: Any) -> np.ndarray:
    """The texts of a dictionary column of pyarrow: equal texts are one object, empty cells are None."""
    chunk = column.combine_chunks()
    texts = np.append(chunk.dictionary.to_numpy(zero_copy_only=False).astype(object), [None])
    return np.asarray(texts[chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)])


def _from_excel(path: Path) -> tuple[list[str], Load]:
    try:
        import pandas

        with zipfile.ZipFile(path) as archive:
            _check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="openpyxl")  # about styles it does not know
            return _from_frame(pandas.read_excel(path, keep_default_na=False, na_values=[""]))  # "None" is a label, not a gap
    except ImportError:
        raise InputError(
            f"Reading {path.name!r} needs pandas and openpyxl, which are not both installed; run: pip install pandas openpyxl, "
            "or save the sheet as CSV."
        ) from None
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in any way its parser can
        raise InputError(f"The file {path.name!r} cannot be read as Excel: {reason(error)}; save it again, or as CSV.") from None


def _check_unpacked(path: Path, size: int) -> None:
    limit = max(_UNPACKED, _RATIO * path.stat().st_size)
    if size > limit:
        raise InputError(
            f"The file {path.name!r} unpacks to {size:,} bytes, more than the limit of {limit:,} for a file of its size; "
            "if you trust it, read it with pandas and pass the DataFrame."
        )
