"""Read a CSV file: columns of numbers as arrays, and all others as text.

It is read in blocks, and a column of numbers is packed block by block, so that the text of a long file is never in memory as a whole.
"""

from __future__ import annotations

import codecs
import csv
import io
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise.data._encoding import NUMBER_GAPS
from noisewise.errors import InputError

CELLS = 2**18  # how many cells are in memory as text at a time
_FIRST_ROWS = 1000  # the first block is small: it tells which columns are numbers
_SEPARATORS = "\t;,"  # the first wins a tie
_SAMPLE = 100_000  # characters of a line that are used to find the separator
_SHARED = 50_000  # different texts of a column that are in memory once


class Rows(NamedTuple):
    """What was read from a table.

    Args:
        values: the values of the columns by name.
        lines: the line of the file that each row ends at; None if there are no lines.
        commas: whether commas are decimal; None if the cells have to tell.
    """

    values: dict[str, Any]
    lines: Sequence[int] | None = None
    commas: bool | None = None


Load = Callable[[Sequence[str], Sequence[str]], Rows]
"""Reads the named columns: the first as text, and the others as numbers where all cells are numbers or gaps."""


def from_csv(path: Path) -> tuple[list[str], Load]:
    """The names of the columns, and the function that reads some of them."""

    def load(texts: Sequence[str], others: Sequence[str]) -> Rows:
        with _csv_rows(path) as (reader, separator):
            rows = _read_blocks(reader, path.name, texts, others, separator != ",")
        # A column whose later blocks have text is read again, so that its first cells stay as they are written.
        if again := [name for name in others if rows.values[name] is None]:
            with _csv_rows(path) as (reader, separator):
                rows.values.update(_read_blocks(reader, path.name, again, (), separator != ",").values)
        return rows

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
    with opened as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as Excel writes "Unicode text"
        file.seek(0)
        with io.TextIOWrapper(file, encoding="utf-16" if wide else "utf-8-sig") as text:
            reader = None
            try:
                first = list(islice(text, 2))
                if any("\0" in line for line in first):
                    raise InputError(
                        f"The file {path.name!r} is not text but something else, such as a spreadsheet; export it as a CSV in UTF-8."
                    )
                separator = _separator(first)
                reader = csv.reader(chain(first, text), delimiter=separator, strict=True)
                yield reader, separator
            except UnicodeError as error:
                where = ""
                if isinstance(error, UnicodeDecodeError) and not wide:
                    byte = file.tell() - len(error.object) + error.start  # the error counts from the last bytes that were read
                    where = f" at byte {byte}"
                kind = "UTF-16" if wide else "UTF-8"
                raise InputError(f"The file {path.name!r} is not {kind} text{where}; save it as UTF-8.") from None
            except csv.Error as error:
                line = 1 if reader is None else reader.line_num
                raise InputError(f"Line {line} of {path.name} cannot be read as CSV: {error}; correct it.") from None


def _separator(first: list[str]) -> str:
    """The separator that gives the first two lines the same number of columns, and if several do, the most columns."""

    def columns(separator: str) -> tuple[bool, int]:
        header, row = (len(next(csv.reader([line[:_SAMPLE]], delimiter=separator), [])) for line in (*first, "", "")[:2])
        return header == row > 1, header

    return max(_SEPARATORS, key=columns)


def _read_blocks(reader: Any, called: str, texts: Sequence[str], others: Sequence[str], commas: bool) -> Rows:
    """Read the columns of a CSV block by block. The value of a column that is text only in later blocks is None."""
    names, lines = _header(reader), array("q")
    cells: dict[str, _Cells | _Texts] = {**{name: _Texts() for name in texts}, **{name: _Cells(commas) for name in others}}
    positions = {name: position for position, name in enumerate(names)}
    rows = _rows(reader, len(names), called, lines)
    at_a_time = max(1, CELLS // max(1, len(names)))
    block = list(islice(rows, min(at_a_time, _FIRST_ROWS)))
    while block:
        by_column = list(zip(*block, strict=True))
        for name, column in cells.items():
            column.add(by_column[positions[name]])
        block = list(islice(rows, at_a_time))
    return Rows({name: column.values() for name, column in cells.items()}, lines, True if commas else None)


def _rows(reader: Any, width: int, called: str, lines: array[int]) -> Iterator[list[str]]:
    """The rows of a CSV that have a cell with content; the line that each ends at is appended to ``lines``."""
    for row in reader:
        if not any(map(str.strip, row)):  # spreadsheets write such rows below a table
            continue
        if len(row) != width:
            raise InputError(
                f"Row {len(lines)} (line {reader.line_num}) of {called} has {len(row)} columns and the first line {width}; "
                "put text with a separator in it between double quotes."
            )
        lines.append(reader.line_num)
        yield row


class _Texts:
    """The cells of a column of text; equal texts are in memory once."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._shared: dict[str, str] = {}

    def add(self, cells: Sequence[str]) -> None:
        if len(self._shared) < _SHARED:
            self._cells += [self._shared.setdefault(cell, cell) for cell in cells]
        else:
            self._cells += cells

    def values(self) -> list[str]:
        return self._cells


class _Cells:
    """The cells of a column, packed as numbers if all of them are numbers or gaps; as text if the first block has text.

    Args:
        commas: whether numbers may have decimal commas; then all fractions of the column must have them.
    """

    def __init__(self, commas: bool) -> None:
        self._blocks: list[Any] | None = []
        self._texts: _Texts | None = None
        self._commas = commas
        self._marks: set[str] = set()

    def add(self, cells: Sequence[str]) -> None:
        if self._texts is not None:
            self._texts.add(cells)
        elif self._blocks is not None:
            block = self._packed(cells)
            if block is not None:
                self._blocks.append(block)
            elif self._blocks:
                self._blocks = None
            else:
                self._texts = _Texts()
                self._texts.add(cells)

    def _packed(self, cells: Sequence[str]) -> Any:
        """The cells as numbers, gaps as NaN; None if some are text."""
        if self._commas:
            self._marks |= {mark for mark in ".," if any(mark in cell for cell in cells)}
            if len(self._marks) > 1:
                return None
            cells = [cell.replace(",", ".") for cell in cells]
        try:
            return np.array(cells, np.float64)
        except ValueError:
            pass
        try:
            return np.array(["nan" if cell.strip().lower() in NUMBER_GAPS else cell for cell in cells], np.float64)
        except ValueError:
            return None

    def values(self) -> Any:
        """The numbers as an array, or all cells as text, or None if only later blocks have text."""
        if self._texts is not None:
            return self._texts.values()
        return None if self._blocks is None else np.concatenate(self._blocks or [np.empty(0)])
