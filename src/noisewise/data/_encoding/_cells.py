"""The cells of one column as they came: an array of numbers, of true and false, of dates, or of text. A gap is NaN, NaT or None."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Ints
from noisewise.data._column import is_missing, plain_value
from noisewise.errors import InputError

Cells = NDArray[Any]
"""float64, bool, datetime64[us], or objects that are text or None."""


class Distinct(NamedTuple):
    """The different values of a column.

    Args:
        values: each text once, in order of appearance.
        codes: the position in it of every cell; −1 for a gap.
    """

    values: list[str]
    codes: Ints

    @property
    def counts(self) -> Ints:
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    def spread(self, per_value: NDArray[Any], gap: Any) -> NDArray[Any]:
        """The entry of every cell, from the entry of every different value."""
        return np.append(per_value, np.array([gap], per_value.dtype))[self.codes]


def as_cells(values: Any, name: str) -> Cells:
    """The cells of a column of a file or a DataFrame.

    Args:
        values: an array, or a list of objects.
        name: the name of the column in errors.
    """
    array = values if isinstance(values, np.ndarray) else _objects(values)
    if array.ndim != 1:
        raise InputError(f"There must be one value per row in {name}. Got an array shaped {array.shape} instead.")
    if array.dtype.kind in "iuf":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    if array.dtype.kind == "m":
        return _seconds(array)
    return array if array.dtype.kind == "b" else _from_objects(array.astype(object), name)


def distinct(cells: Cells) -> Distinct:
    """The different texts of a column of text."""
    seen: dict[str, int] = {}
    codes = np.fromiter((-1 if cell is None else seen.setdefault(cell, len(seen)) for cell in cells), np.int64, len(cells))
    return Distinct(list(seen), codes)


def gaps(cells: Cells) -> NDArray[np.bool_]:
    """Which cells are gaps."""
    if cells.dtype.kind == "f":
        return ~np.isfinite(cells)
    if cells.dtype.kind == "M":
        return np.isnat(cells)
    if cells.dtype.kind == "b":
        return np.zeros(len(cells), np.bool_)
    return np.fromiter((cell is None for cell in cells), np.bool_, len(cells))


def as_text(cells: Cells) -> Cells:
    """The cells as text or None; whole numbers have no point."""
    if cells.dtype.kind == "O":
        return cells
    missing = gaps(cells)
    texts = (
        map(number_text, cells.tolist()) if cells.dtype.kind == "f" else np.datetime_as_string(cells) if cells.dtype.kind == "M" else cells
    )
    return _objects(None if gap else str(text) for gap, text in zip(missing, texts, strict=True))


def number_text(number: float) -> str:
    """A number as people write it.

    Example:
        >>> number_text(3.0), number_text(0.1)
        ('3', '0.1')
    """
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else str(number)


def _from_objects(array: NDArray[Any], name: str) -> Cells:
    """Objects as numbers, dates or true and false, if all but the gaps are of one of these kinds; otherwise as text."""
    kinds = set(map(type, array.tolist()))
    if not kinds <= {str}:
        array = _objects(plain_value(value) for value in array)
        missing = np.fromiter(map(is_missing, array), np.bool_, len(array))
        array[missing] = None
        kinds = {type(value) for value in array[~missing]}
    for kind in kinds:
        if kind is not str and issubclass(kind, list | tuple | dict | set | np.ndarray):
            number = next(row for row, value in enumerate(array) if isinstance(value, kind))
            value = str(array[number])[:50]
            raise InputError(f"Row {number}, {name}, is {value}, not one value; give one for every row, or drop the column.")
    if kinds and all(issubclass(kind, bool | np.bool_) for kind in kinds) and None not in array.tolist():
        return array.astype(np.bool_)
    if kinds and all(issubclass(kind, numbers.Real | Decimal) and not issubclass(kind, bool) for kind in kinds):
        return np.array([np.nan if value is None else _float(value) for value in array], np.float64)
    if kinds and all(issubclass(kind, datetime.date) for kind in kinds):  # of which datetime is a kind
        return np.array([np.datetime64("NaT") if value is None else _instant(value) for value in array], "datetime64[us]")
    if kinds and all(issubclass(kind, datetime.timedelta) for kind in kinds):
        return np.array([np.nan if value is None else value.total_seconds() for value in array], np.float64)
    return _objects(map(_text, array))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = number_text(value) if isinstance(value, float) else str(value)
    text = text.strip()
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # halves of surrogate pairs cannot be stored
    return text or None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError):  # an integer of hundreds of digits
        return np.nan


def _instant(value: datetime.date) -> np.datetime64:
    """A date in UTC; dates without a time zone are taken as they are."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(value, "us")


def _seconds(array: NDArray[Any]) -> Cells:
    return np.where(np.isnat(array), np.nan, array / np.timedelta64(1, "s"))


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    values = list(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array
