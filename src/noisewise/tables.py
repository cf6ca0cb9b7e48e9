"""Write tables to CSV, JSON or Parquet files, completely or not at all."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, invalid_parameter
from noisewise.output import check_place, check_replacing, written_output

Block = Sequence[Sequence[Any]]
"""Some rows of a table, column by column."""

ROWS = 1 << 16
"""The number of rows of a block; only one block is in memory at a time."""

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


def write_blocks(path: str | os.PathLike[str], blocks: Iterable[Block], columns: Sequence[str]) -> Path:
    """Write blocks of rows to a file and return its path. An existing file is replaced if it has the same columns.

    Args:
        path: ends in .csv, .json or .parquet.
        blocks: the blocks in order, none of them empty.
        columns: the names of the columns.
    """
    target = Path(path)
    writer = check_writable(target)
    check_replacing(target, None, lambda file: has_columns(file, columns), "list")
    with written_output(target) as part:
        writer(part, blocks, columns)
    return target


def rows_of(blocks: Iterable[Block], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of blocks as dicts by column name."""
    return (dict(zip(columns, row, strict=True)) for block in blocks for row in zip(*block, strict=True))


def check_writable(path: Path) -> Callable[[Path, Iterable[Block], Sequence[str]], None]:
    """Return the function that writes a file, after checking that the file can be written."""
    if path.suffix.lower() not in _WRITERS:
        raise invalid_parameter("path", "write", "a file that ends in " + " or ".join(_WRITERS), str(path))
    check_place(path)
    return _WRITERS[path.suffix.lower()]


def has_columns(path: Path, columns: Sequence[str]) -> bool:
    """Whether a file is a table of `write_blocks` with exactly these columns."""
    reader = _COLUMNS_OF.get(path.suffix.lower())
    try:
        return reader is not None and tuple(reader(path)) == tuple(columns)
    except (OSError, ValueError, TypeError, csv.Error, ImportError):  # another kind of file
        return False


def _csv_columns(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file), [])


def _json_columns(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        file.readline()
        return list(json.loads(file.readline().rstrip(",\n")))


def _parquet_columns(path: Path) -> list[str]:
    from pyarrow import parquet

    return list(parquet.read_schema(path).names)


def as_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula; numbers are unchanged.

    Example:
        >>> as_cell("=1+1"), as_cell("cat"), as_cell("-1"), from_cell(as_cell("=1+1"))
        ("'=1+1", 'cat', '-1', '=1+1')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_cell(text: str) -> str:
    """The text from which `as_cell` made a cell."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _csv(path: Path, blocks: Iterable[Block], columns: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for block in blocks:
            table.writerows(zip(*map(_cells, block), strict=True))


def _cells(column: Sequence[Any]) -> Iterable[Any]:
    """The cells of a column; most columns have values of one type."""
    kinds = set(map(type, column))
    if kinds <= {int, bool}:
        return column
    if kinds == {float}:
        return ["" if number != number else number for number in column]
    if kinds == {str}:
        cells = {text: as_cell(text) for text in set(column)}
        return [cells[text] for text in column]
    return map(_cell, column)


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return as_cell(value)
    return " ".join(f"{number:.4g}" for number in value) if isinstance(value, list) else value


def _json(path: Path, blocks: Iterable[Block], columns: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        opening = "[\n"
        for row in rows_of(blocks, columns):
            plain = {name: _plain(value) for name, value in row.items()}
            file.write(opening + json.dumps(plain, ensure_ascii=False, allow_nan=False))
            opening = ",\n"
        file.write("\n]\n" if opening == ",\n" else "[]\n")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parquet(path: Path, blocks: Iterable[Block], columns: Sequence[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Writing Parquet needs pyarrow, which is not installed; run: pip install 'noisewise[parquet]'.") from None
    writer = None
    for block in blocks:
        table = pyarrow.table(dict(zip(columns, block, strict=True)), schema=None if writer is None else writer.schema)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is None:
        parquet.write_table(pyarrow.table({name: [] for name in columns}), path)
    else:
        writer.close()


_WRITERS = {".csv": _csv, ".json": _json, ".parquet": _parquet}
_COLUMNS_OF = {".csv": _csv_columns, ".json": _json_columns, ".parquet": _parquet_columns}
