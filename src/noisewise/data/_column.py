"""One column of user data: labels become class numbers, features become numbers, ids become unique text.

Every check names the row that is wrong.
"""

from __future__ import annotations

import numbers
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import NO_CLASS
from noisewise.errors import InputError, NoisewiseWarning, invalid_parameter, listed, warn

_SHOWN = 5  # empty rows that an error lists
_BOOLEANS = {"true": 1.0, "false": 0.0}


class SimilarLabels(NoisewiseWarning):
    """Some labels differ only in case, spaces or equivalent accents, and may be meant to be one class."""


@dataclass(frozen=True)
class Column:
    """The values of one column.

    Args:
        values: a sequence, an array or a tensor of one dimension.
        name: the name in errors, as in "column 'label' of animals.csv".
        lines: the line of the file that each row ends at, if there is a file.
    """

    values: Any
    name: str
    lines: Sequence[int] | None = None

    def row(self, number: int) -> str:
        """The name of a row in errors. Rows count from 0, as in arrays and `Dataset.index`."""
        return f"row {number}" if self.lines is None else f"row {number} (line {self.lines[number]})"

    def error(self, number: int, problem: str, advice: str) -> InputError:
        """Build the error for a wrong row."""
        return InputError(f"R{self.row(number)[1:]}, {self.name}, {problem}; {advice}.")

    def objects(self) -> list[Any]:
        """The values as Python objects, none of them missing; bytes (as in HDF5 and ARFF files) become text."""
        values = self.values.detach().cpu() if isinstance(self.values, Tensor) else self.values
        if isinstance(values, np.ndarray | Tensor) and values.ndim != 1:
            raise InputError(f"There must be one value per row in {self.name}. Got an array shaped {tuple(values.shape)} instead.")
        objects = [plain_value(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]
        for number, value in enumerate(objects):
            if isinstance(value, Collection) and not isinstance(value, str):
                raise self.error(number, f"is {str(value)[:50]}, not one value", "give one for every row")
        if missing := [number for number, value in enumerate(objects) if is_missing(value)]:
            raise self._empty(missing)
        return objects

    def _empty(self, missing: list[int]) -> InputError:
        """Build the error for empty cells."""
        if len(missing) == 1:
            return self.error(missing[0], "is empty", "fill it in or leave the row out")
        shown = ", ".join(map(self.row, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        return InputError(
            f"{len(missing):,} of {len(self.values):,} rows have no value in {self.name}, the first in {shown}; "
            "fill them in or leave the rows out."
        )

    def keys(self) -> list[int] | list[str]:
        """The labels as integers if all of them are, and as text otherwise."""
        values = [value.strip() if isinstance(value, str) else value for value in self.objects()]
        all_numbers = all(map(is_number, values))
        for number, value in enumerate(values):
            if (all_numbers or isinstance(value, numbers.Real)) and float(value) % 1 != 0:
                raise self.error(number, f"is {value!r}, which is not a class", "labels are integers or text")
        if all(map(_is_integer, values)):
            return [int(value.partition(".")[0] if isinstance(value, str) else value) for value in values]
        return [str(value) for value in values]

    def numbers(self) -> np.ndarray:
        """The values as finite numbers, float32."""
        if getattr(getattr(self.values, "dtype", None), "kind", "") in ("M", "m"):
            raise self.error(0, f"is {self.values[0]!s}, a time and not a number", "leave the column out or convert it to numbers")
        try:
            array = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError):
            try:
                array = np.array([_BOOLEANS.get(str(value).strip().lower(), value) for value in self.values], dtype=np.float64)
            except (TypeError, ValueError):
                raise self._not_numbers() from None
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        if not np.isfinite(narrow).all():
            number = int(np.flatnonzero(~np.isfinite(narrow))[0])
            problem = "too large for a float32" if np.isfinite(array[number]) else "not a finite number"
            raise self.error(number, f"is {self.values[number]!s}, {problem}", "change the value or leave the row out")
        return narrow

    def _not_numbers(self) -> InputError:
        """Build the error for the first value that is not a number, or the first vector of another length."""
        if isinstance(self.values[0], list):
            length = len(self.values[0])
            for number, value in enumerate(self.values):
                if isinstance(value, list) and len(value) != length:
                    return self.error(number, f"has {len(value)} values and row 0 has {length}", "pad or cut all to one length")
        values = self.objects()
        words = [number for number, value in enumerate(values) if not is_number(value) and str(value).strip().lower() not in _BOOLEANS]
        are_ids = len(words) == len(values) == len(set(map(str, values)))
        advice = "set 'features' to the columns of numbers without this one, or put numbers in it"
        advice = f"set 'id' to it if it names the examples, or {advice}" if are_ids else advice
        return self.error(words[0], f"is {values[words[0]]!r}, not a number", advice)

    def ids(self) -> tuple[str, ...]:
        """The values as text; each must occur once."""
        texts = [str(value) for value in self.objects()]
        first: dict[str, int] = {}
        for number, text in enumerate(texts):
            if first.setdefault(text, number) != number:
                raise self.error(number, f"is {text!r}, as is {self.row(first[text])}", "give every example a different id")
        return tuple(texts)


def plain_value(value: Any) -> Any:
    """Decode bytes, and unpack arrays and tensors without dimensions."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.ndarray | Tensor) and value.ndim == 0 else value


def is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if value is None or (isinstance(value, numbers.Real) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")  # of pandas, which may not be installed


def is_number(value: Any) -> bool:
    """Whether Python can convert a value to a float."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_integer(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"(0|-?[1-9][0-9]*)(\.0+)?", value) is not None  # pandas writes 1.0 if a value in the column is missing
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def encode(labels: Column, true_labels: Column | None, classes: Sequence[str] | None) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Convert labels to class numbers.

    Args:
        labels: the given labels.
        true_labels: the true labels, or None. −1 means that an example belongs to no class, unless −1 is also a given label.
        classes: the names of the classes in order; by default those that occur, sorted (as numbers if all are numbers). Integer labels
            are positions in it, unless a name is a number.

    Returns:
        The labels and the true labels as class numbers, and the names of the classes.
    """
    keys: list[list[Any]] = [list(column.keys()) for column in (labels, true_labels) if column is not None]
    as_text = any(isinstance(key, str) for column in keys for key in column)
    if classes is None:
        keys = [list(map(str, column)) for column in keys] if as_text else keys
        if as_text:
            _warn_about_similar(labels)
        distinct: list[Any] = sorted(set(keys[0]) | (set(keys[-1]) - {NO_CLASS, str(NO_CLASS)}))
        names = tuple(map(str, distinct))
        if len(names) < 2:
            raise InputError(
                f"A classifier needs at least two classes, and {labels.name} has only {names[0]!r}; add examples of another. "
                "If this is right, list all classes with 'classes' (in Python)."
            )
    else:
        distinct = list(map(str, classes))
        names = tuple(distinct)
        if len(set(names)) < max(2, len(names)):
            raise invalid_parameter("classes", "a data set", "at least two names, all different", names)
        if as_text or any(map(_is_integer, names)):
            keys = [list(map(str, column)) for column in keys]
        else:
            distinct = list(range(len(names)))
    positions = {key: position for position, key in enumerate(distinct)}
    numbered = _positions(labels, keys[0], positions, names)
    if true_labels is None:
        return numbered, None, names
    return numbered, _positions(true_labels, keys[1], {NO_CLASS: NO_CLASS, str(NO_CLASS): NO_CLASS, **positions}, names), names


def _positions(column: Column, keys: list[Any], positions: dict[Any, int], names: tuple[str, ...]) -> Tensor:
    for number, key in enumerate(keys):
        if key not in positions:
            known = listed(map(repr, names))
            raise column.error(number, f"is {key!r}, which is not one of the {len(names)} classes {known}", "correct it or add the class")
    return torch.tensor([positions[key] for key in keys])


def _warn_about_similar(labels: Column) -> None:
    """Warn about labels that look alike, and say whether they are one class or several."""
    groups = defaultdict(list)
    for spelling in sorted({str(value) for value in labels.values if isinstance(value, str)}):
        groups[unicodedata.normalize("NFKC", " ".join(spelling.split())).casefold()].append(spelling)
    alike = [group for group in groups.values() if len(group) > 1]
    if not alike:
        return
    first, others = alike[0], f" So do {len(alike) - 1} more groups of labels." if len(alike) > 1 else ""
    number = len({spelling.strip() for spelling in first})
    classes = "are read as one class" if number == 1 else f"are read as {number} classes"
    text = f"The labels {' and '.join(map(repr, first))} in {labels.name} look alike and {classes}; use one spelling for one class."
    warn(text + others, SimilarLabels)
