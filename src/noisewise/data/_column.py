"""One column of what a user brings, and the checks that name the row where it is wrong.

Labels become class numbers, features become numbers, ids become text that never repeats. This module must not know whether a
column comes from a file, an array or a Hugging Face data set.
"""

from __future__ import annotations

import numbers
import re
import sys
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import NO_CLASS
from noisewise.errors import FEW, InputError, NoisewiseWarning, invalid_parameter

_YES_AND_NO = {"true": 1.0, "false": 0.0}


class SimilarLabels(NoisewiseWarning):
    """Some labels differ only in case, blanks or accents that look the same, and may be meant to be one class."""


@dataclass(frozen=True)
class Column:
    """Values of one kind, a row each.

    Args:
        values: a sequence, an array or a tensor of one dimension.
        name: what an error calls it, as in "column 'label' of animals.csv".
        lines: the line of the file every row ends at, where there is a file of lines.
    """

    values: Any
    name: str
    lines: Sequence[int] | None = None

    def row(self, number: int) -> str:
        """A row as an error names it: counted from 0, as an array's are and as `Dataset.index` is."""
        return f"row {number}" if self.lines is None else f"row {number} (line {self.lines[number]})"

    def wrong(self, number: int, problem: str, advice: str) -> InputError:
        row = self.row(number)
        return InputError(f"{row[0].upper()}{row[1:]}, {self.name}, {problem}; {advice}.")

    def objects(self) -> list[Any]:
        """The values as Python objects, none of them missing; bytes are text, as HDF5 and ARFF hold it."""
        values = self.values.detach().cpu() if isinstance(self.values, Tensor) else self.values
        shape = np.shape(values) if isinstance(values, np.ndarray | Tensor) else (len(values),)
        if len(shape) != 1:
            raise InputError(f"There must be one value per row in {self.name}. Got an array shaped {tuple(shape)} instead.")
        held = values.tolist() if hasattr(values, "tolist") else list(values)
        found = [_plain(value) for value in held]
        for number, value in enumerate(found):
            if isinstance(value, Collection) and not isinstance(value, str):
                raise self.wrong(number, f"is {str(value)[:50]}, not one value", "give one for every row")
            if _is_missing(value):
                raise self.wrong(number, "is empty", "fill it in or leave the row out")
        return found

    def keys(self) -> list[int] | list[str]:
        """The labels as integers if all of them are, as text otherwise."""
        found = [value.strip() if isinstance(value, str) else value for value in self.objects()]
        measured = all(map(is_number, found))  # in a file of text too
        for number, value in enumerate(found):
            if (measured or isinstance(value, numbers.Real)) and float(value) % 1 != 0:
                raise self.wrong(number, f"is {value!r}, which names no class", "labels are integers or text")
        if all(_is_whole(value) for value in found):
            return [int(value.partition(".")[0] if isinstance(value, str) else value) for value in found]
        return [str(value) for value in found]

    def spellings(self) -> list[str]:
        """The labels that are text, as they are written, each once."""
        if getattr(getattr(self.values, "dtype", None), "kind", "O") not in "OUT" or isinstance(self.values, Tensor):
            return []
        return sorted({str(value) for value in self.values if isinstance(value, str)})

    def numbers(self) -> np.ndarray:
        """The values as finite numbers, float32."""
        self._check_one_length()
        if getattr(getattr(self.values, "dtype", None), "kind", "") in ("M", "m"):
            raise self.wrong(0, f"is {self.values[0]!s}, a time and not a number", "leave the column out, or count from a day of your own")
        if np.iscomplexobj(self.values):
            raise self.wrong(0, f"is {self.values[0]!s}, a complex number", "give its parts as columns of their own")
        try:
            array = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError):
            array = self._yes_and_no()
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        if not np.isfinite(narrow).all():
            number = int(np.flatnonzero(~np.isfinite(narrow))[0])
            if np.isfinite(array[number]):
                raise self.wrong(number, f"is {self.values[number]!s}, too large for a float32", "scale the column, or leave the row out")
            raise self.wrong(number, f"is {self.values[number]!s}, not a finite number", "fill it in or leave the row out")
        return narrow

    def _check_one_length(self) -> None:
        """Refuse vectors of several lengths, such as texts as the tokens they are made of."""
        if not isinstance(self.values, list) or not self.values or not isinstance(self.values[0], list):
            return
        length = len(self.values[0])
        for number, value in enumerate(self.values):
            if isinstance(value, list) and len(value) != length:
                raise self.wrong(number, f"has {len(value)} values and row 0 has {length}", "pad them or cut them to one length")

    def _yes_and_no(self) -> np.ndarray:
        """The values as numbers, where those that are none are True and False, as a table is written that has them."""
        try:
            return np.array([_YES_AND_NO.get(str(value).strip().lower(), value) for value in self.values], dtype=np.float64)
        except (TypeError, ValueError):
            raise self._first_without_number() from None

    def _first_without_number(self) -> InputError:
        found = self.objects()
        words = [number for number, value in enumerate(found) if not is_number(value) and str(value).strip().lower() not in _YES_AND_NO]
        naming = "set 'id' to it if it names the examples, or " if len(words) == len(found) == len(set(map(str, found))) else ""
        advice = f"{naming}set 'features' to the columns of numbers without this one, or put numbers in it"
        return self.wrong(words[0], f"is {found[words[0]]!r}, not a number", advice)

    def ids(self) -> tuple[str, ...]:
        """The values as text, each of which occurs once."""
        texts = [str(value) for value in self.objects()]
        first: dict[str, int] = {}
        for number, text in enumerate(texts):
            if first.setdefault(text, number) != number:
                raise self.wrong(number, f"is {text!r}, as is {self.row(first[text])}", "give every example an id of its own")
        return tuple(texts)


def _plain(value: Any) -> Any:
    """A value as Python has it: bytes as text, arrays and tensors of no dimension as the number they hold."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.ndarray | Tensor) and value.ndim == 0 else value


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if value is None or (isinstance(value, numbers.Real) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")  # pandas' own, which need not be installed


def is_number(value: Any) -> bool:
    """Whether Python reads it as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"(0|-?[1-9][0-9]*)(\.0+)?", value) is not None  # as a column of fractions is written
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def encode(labels: Column, true_labels: Column | None, classes: Sequence[str] | None) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Number the classes.

    Args:
        labels: the labels that were given.
        true_labels: the labels known to be right, or None; they share the classes, and −1 is none of them unless a label is −1.
        classes: the names of the classes in their order. By default those that occur, sorted (as numbers if they are numbers).
            Labels that are integers are taken as positions in it unless it has numbers for names.

    Returns:
        The labels and the true labels as class numbers, and the names of the classes.
    """
    columns = [labels] if true_labels is None else [labels, true_labels]
    keys: list[list[Any]] = [list(column.keys()) for column in columns]
    if any(isinstance(key, str) for column in keys for key in column):
        keys = [list(map(str, column)) for column in keys]
    if classes is None:
        if isinstance(keys[0][0], str):
            _warn_of_similar(labels)
        distinct = sorted(set(keys[0]) | (set(keys[-1]) - {NO_CLASS, str(NO_CLASS)}))
        places = {key: place for place, key in enumerate(distinct)}
        names = tuple(map(str, distinct))
    else:
        names = tuple(map(str, classes))
        by_position = not any(_is_whole(name) for name in names) and isinstance(keys[0][0], int)
        places = {(place if by_position else name): place for place, name in enumerate(names)}
        if not by_position:
            keys = [list(map(str, column)) for column in keys]
    if len(names) < 2 and classes is None:
        raise InputError(
            f"A classifier needs at least two classes, and {labels.name} holds only {names[0]!r}; add examples of another. "
            "If they are right, list all classes with 'classes' (in Python)."
        )
    if len(set(names)) < max(2, len(names)):
        raise invalid_parameter("classes", "a data set", "at least two names, none of them twice", brief_names(names))
    numbered = _placed(labels, keys[0], places, names)
    if true_labels is None:
        return numbered, None, names
    return numbered, _placed(true_labels, keys[1], {NO_CLASS: NO_CLASS, str(NO_CLASS): NO_CLASS, **places}, names), names


def _warn_of_similar(labels: Column) -> None:
    """Say which labels look alike, and whether they are one class or several."""
    groups = defaultdict(list)
    for spelling in labels.spellings():
        groups[unicodedata.normalize("NFKC", " ".join(spelling.split())).casefold()].append(spelling)
    alike = [group for group in groups.values() if len(group) > 1]
    if not alike:
        return
    first, others = alike[0], f" So do {len(alike) - 1} more groups of labels." if len(alike) > 1 else ""
    number = len({spelling.strip() for spelling in first})
    classes = "are read as one class" if number == 1 else f"are read as {number} classes"
    text = f"The labels {' and '.join(map(repr, first))} in {labels.name} look alike and {classes}; write labels that mean the same alike."
    warnings.warn(text + others, SimilarLabels, stacklevel=_caller())


def _caller() -> int:
    """The stack level of the code that called this package, for a warning of the function that asks."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("noisewise."):
        level, frame = level + 1, frame.f_back
    return level


def brief_names(names: Sequence[str]) -> Sequence[str]:
    """Names that were given, for a sentence on what is wrong with them: of more than a few, how many, and one that is there twice."""
    if len(names) <= FEW:
        return names
    twice = next((f", {name!r} more than once" for name, times in Counter(names).items() if times > 1), "")
    return f"{len(names):,} names{twice}"


def _placed(column: Column, keys: list[Any], places: dict[Any, int], names: tuple[str, ...]) -> Tensor:
    for number, key in enumerate(keys):
        if key not in places:
            known = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise column.wrong(number, f"is {key!r}, which is none of the {len(names)} classes {known}", "correct it or add the class")
    return torch.tensor([places[key] for key in keys])
