"""The labels of several annotators as three arrays: example, annotator and class. They are read from a matrix, from rows or from a file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from noisewise.arrays import Ints, first_positions
from noisewise.data import Column, encode
from noisewise.errors import InputError, invalid_parameter, listed, reason, unknown
from noisewise.tables import from_cell

_GAP = -1


class Votes(NamedTuple):
    """Labels of several annotators; an entry for each label that an annotator gave, ordered by example.

    Args:
        example: the position of the example.
        annotator: the position of the annotator.
        label: the class.
        examples: the names of the examples.
        annotators: the names of the annotators.
        classes: the names of the classes.
    """

    example: Ints
    annotator: Ints
    label: Ints
    examples: tuple[str, ...]
    annotators: tuple[str, ...]
    classes: tuple[str, ...]


def as_votes(labels: Any, examples: Any, annotators: Any, classes: Sequence[str] | None) -> Votes:
    """Read a matrix with gaps (examples × annotators), or one label per row with its example and annotator."""
    if hasattr(labels, "columns"):  # a DataFrame; those of polars have no index
        annotators = list(labels.columns) if annotators is None else annotators
        examples = list(labels.index) if examples is None and hasattr(labels, "index") else examples
    values = _matrix(labels)
    if values.ndim == 2:
        return _from_matrix(values, examples, annotators, classes)
    if values.ndim != 1 or examples is None or annotators is None:
        needed = "a matrix (examples, annotators), or one label per row with 'examples' and 'annotators'"
        raise invalid_parameter("labels", "consensus", needed, f"an array shaped {values.shape}")
    return _from_rows(values, examples, annotators, classes)


def _matrix(labels: Any) -> np.ndarray:
    if isinstance(labels, Tensor):
        return np.asarray(labels.detach().cpu())
    try:
        return np.asarray(labels if hasattr(labels, "dtype") or hasattr(labels, "columns") else np.array(labels, dtype=object))
    except ValueError as error:
        raise invalid_parameter("labels", "consensus", "rows of one length", str(error)) from None


def _from_matrix(values: np.ndarray, examples: Any, annotators: Any, classes: Sequence[str] | None) -> Votes:
    rows, columns = values.shape
    names = {"examples": (examples, rows), "annotators": (annotators, columns)}
    read = {}
    for name, (given, number) in names.items():
        if given is not None and len(given) != number:
            raise invalid_parameter(name, "consensus", f"a name for each of the {number} {name}", f"{len(given)} names")
        read[name] = Column(list(range(number)) if given is None else list(given), f"the {name}").ids()
    filled = np.array([[not _is_gap(value) for value in row] for row in values.tolist()], dtype=bool).reshape(values.shape)
    example, annotator = np.nonzero(filled)
    return _encoded(values[filled], example, annotator, read["examples"], read["annotators"], classes)


def _from_rows(values: np.ndarray, examples: Any, annotators: Any, classes: Sequence[str] | None) -> Votes:
    numbers, names = [], []
    for name, given in (("examples", examples), ("annotators", annotators)):
        texts = list(map(str, Column(given, f"the {name}").objects()))
        if len(texts) != len(values):
            raise invalid_parameter(name, "consensus", f"one for each of the {len(values)} labels", f"{len(texts)} {name}")
        known = {text: place for place, text in enumerate(first_positions(texts))}
        numbers.append(np.array([known[text] for text in texts], dtype=np.int64))
        names.append(tuple(known))
    filled = np.array([not _is_gap(value) for value in values.tolist()], dtype=bool)
    return _encoded(values[filled], numbers[0][filled], numbers[1][filled], names[0], names[1], classes)


def _is_gap(value: Any) -> bool:
    """Whether an annotator gave no label: None, NaN, −1 or empty text."""
    return (
        value is None or value != value or (isinstance(value, str) and not value.strip()) or (not isinstance(value, str) and value == _GAP)
    )


def _encoded(
    labels: np.ndarray,
    example: Ints,
    annotator: Ints,
    examples: tuple[str, ...],
    annotators: tuple[str, ...],
    classes: Sequence[str] | None,
) -> Votes:
    if not len(labels):
        raise InputError("The labels given to consensus must have at least one label. Got gaps only.")
    without = np.bincount(example, minlength=len(examples)) == 0
    if without.any():
        name = examples[int(without.argmax())]
        raise InputError(f"Every example given to consensus must have a label. Got none for {name!r}; leave it out.")
    numbered, _, names = encode(Column(labels, "the labels"), None, classes)
    order = np.argsort(example, kind="stable")
    return Votes(example[order], annotator[order], numbered.numpy()[order], examples, annotators, names)


def read_votes(path: str | os.PathLike[str], *, example: str, annotator: str | None, label: str) -> dict[str, Any]:
    """Read the arguments of `consensus` from a CSV file with a header, separated by commas, semicolons or tabs.

    Args:
        path: the path of the file.
        example: the column with the names of the examples.
        annotator: the column with the names of the annotators; None if the file has a row per example, and a column per annotator.
        label: the column with the labels; not used without a column of annotators.

    Returns:
        "labels", "examples" and "annotators".
    """
    names, rows = _table(Path(path))
    for column in (example,) if annotator is None else (example, annotator, label):
        if column not in names:
            raise unknown(f"column of {Path(path).name}", column, names)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    examples = columns.pop(example)
    if annotator is not None:
        return {"labels": np.array(columns[label], dtype=object), "examples": examples, "annotators": columns[annotator]}
    if not columns:
        raise InputError(f"The table {Path(path).name!r} has no column of labels besides {example!r}. Give one column per annotator.")
    return {"labels": np.array(list(columns.values()), dtype=object).T, "examples": examples, "annotators": list(columns)}


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        header = text.partition("\n")[0]
        rows = list(filter(None, csv.reader(io.StringIO(text), delimiter=max(",;\t", key=header.count), strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"The labels {str(path)!r} cannot be read ({reason(error)}). Give a CSV file in UTF-8.") from None
    if len(rows) < 2:
        raise InputError(f"There are no rows in {path.name}; give a table with a row for every label.")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise InputError(f"The columns of {path.name} must have different names. Got {listed(map(repr, names))}; rename them.")
    for number, row in enumerate(rows[1:]):
        if len(row) != len(names):
            raise InputError(f"Row {number} of {path.name} has {len(row)} columns and the first line {len(names)}; correct it.")
    return names, [[from_cell(cell) for cell in row] for row in rows[1:]]
