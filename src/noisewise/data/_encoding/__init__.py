"""How the columns of a table become the inputs of a model: what each column contains, and the encoder that was fitted to it.

An `Encoding` is fitted to the training rows, stored with the run as JSON and arrays, and applied to other rows. It never sees a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise.data._encoding._cells import Cells, as_cells, as_text
from noisewise.data._encoding._encoders import ENCODERS, Boolean, Category, Date, Encoder, Scale, Text
from noisewise.data._encoding._fit import fit_encoders
from noisewise.data._encoding._kinds import KINDS, LEFT_OUT, Contents, Question, contents_of
from noisewise.data._encoding._numbers import GAPS as NUMBER_GAPS
from noisewise.errors import InputError, NoisewiseWarning, listed, warn

__all__ = ["KINDS", "LEFT_OUT", "NUMBER_GAPS", "Cells", "EncodedColumn", "Encoding", "Question", "UnreadCells", "as_cells", "as_text"]


class UnreadCells(NoisewiseWarning):
    """Some cells are not what their column contained in training, and count as gaps."""


@dataclass(frozen=True)
class EncodedColumn:
    """What was done to a column of a table.

    Args:
        name: the name of the column.
        kind: number, boolean, date, category, text, or left out.
        done: what was done to it, or why it is left out.
        gaps: the number of its cells that are gaps.
        distinct: the number of its different values.
    """

    name: str
    kind: str
    done: str
    gaps: int
    distinct: int


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become the inputs of a model.

    Args:
        columns: what was done to each column of the table, in its order.
        encoders: one for every column that is not left out, in the same order.
        plain: whether all columns are numbers without gaps, which are used as they are. Other tables are scaled here.
    """

    columns: tuple[EncodedColumn, ...]
    encoders: tuple[Encoder, ...] = field(repr=False)
    plain: bool = False

    @classmethod
    def fit(cls, questions: Sequence[Question], called: str = "the table") -> Encoding:
        """Fit an encoding to the rows of a table; all columns that cannot be read are reported in one error.

        Args:
            questions: the columns, and what the user wants of them.
            called: the name of the table in errors.
        """
        contents, problems = list[Contents](), list[str]()
        for question in questions:
            try:
                contents.append(contents_of(question))
            except InputError as error:
                problems.append(str(error))
        if problems:
            raise InputError(" ".join(problems))
        plain = all(map(_is_plain, contents))
        if not plain:
            wanted = {question.name for question in questions if question.wanted or question.forced}
            constant = "every cell is the same"
            contents = [column.left_out(constant) if column.is_constant and column.name not in wanted else column for column in contents]
        encoders, contents = fit_encoders(contents, plain=plain)
        if not encoders:
            reasons = listed(f"{column.name!r} ({column.note})" for column in contents)
            raise InputError(f"No column of {called} is left to learn from: {reasons}; name columns with 'features' or 'columns'.")
        by_name = {encoder.name: encoder for encoder in encoders}
        rows = tuple(
            EncodedColumn(column.name, column.kind, _done(column, by_name.get(column.name), plain), column.gaps, column.distinct)
            for column in contents
        )
        return cls(rows, tuple(encoders), plain)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(name for encoder in self.encoders for name in encoder.names)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the columns that are not left out."""
        return tuple(encoder.name for encoder in self.encoders)

    def apply(self, cells: Mapping[str, Cells], called: str = "the table") -> Tensor:
        """The inputs for the rows of a table, float32; a warning tells of cells that cannot be read, which are gaps.

        Args:
            cells: the cells of all columns that are used, and perhaps others.
            called: the name of the table in the warning.
        """
        inputs = np.empty((len(next(iter(cells.values()))), len(self.names)), np.float32)
        place, strange = 0, dict[str, list[str]]()
        for encoder in self.encoders:
            unread: list[str] = []
            with np.errstate(over="ignore"):
                for column in encoder.apply(cells[encoder.name], unread):
                    inputs[:, place] = column
                    place += 1
            known = set(getattr(encoder, "words", ()))
            if new := [text for text in unread if text not in known]:
                strange[f"{encoder.name!r} ({encoder.kind}) {new[0][:30]!r}"] = new
        if strange:
            warn(
                f"Some cells of {called} are not what their columns contained in training, and count as gaps: {listed(strange)}.",
                UnreadCells,
            )
        return torch.from_numpy(inputs)

    def as_json(self) -> dict[str, Any]:
        """What JSON can store; `arrays` has the rest."""
        columns = [vars(column) for column in self.columns]
        return {"plain": self.plain, "columns": columns, "encoders": [{"kind": each.kind, **each.as_json()} for each in self.encoders]}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the encoders by name."""
        return {f"{place}.{name}": values for place, each in enumerate(self.encoders) for name, values in each.arrays().items()}

    @classmethod
    def load(cls, stored: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoding that `as_json` and `arrays` stored.

        Raises:
            ValueError: this is not what they store.
        """
        try:
            columns = tuple(EncodedColumn(**column) for column in stored["columns"])
            encoders = tuple(_load(dict(each), place, arrays) for place, each in enumerate(stored["encoders"]))
            encoding = cls(columns, encoders, bool(stored["plain"]))
            encoding.apply({name: np.array([None], object) for name in encoding.used})
        except Exception as error:  # the file may contain anything
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return encoding


def _is_plain(column: Contents) -> bool:
    """Whether a column can be used as it is: it is left out, or has numbers that fit a float32 and no gaps."""
    if column.kind in ("number", "boolean") and not column.gaps:
        return bool(np.abs(column.values).max() <= np.finfo(np.float32).max)
    return column.kind == LEFT_OUT


def _load(stored: dict[str, Any], place: int, arrays: Mapping[str, NDArray[Any]]) -> Encoder:
    kind = ENCODERS[stored.pop("kind")]
    prefix = f"{place}."
    own = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    if "scale" in stored:
        stored["scale"] = Scale(**stored["scale"])
    if "scales" in stored:
        stored["scales"] = {part: Scale(**scale) for part, scale in stored["scales"].items()}
    return kind(**stored, **own)


def _done(column: Contents, encoder: Encoder | None, plain: bool) -> str:
    """What was done to a column, in a few words."""
    if encoder is None:
        return column.note
    if isinstance(encoder, Category):
        rare = ", rare ones together" if encoder.has_rare else ""
        done = f"{len(encoder.values)} values with a column each{rare}"
    elif isinstance(encoder, Text):
        done = (
            f"{len(encoder.words):,} {'pieces of words' if encoder.pieces else 'words'} in {len(encoder.directions)} columns (TF-IDF, SVD)"
        )
    elif isinstance(encoder, Date):
        done = ", ".join(["day", *(part.strip() for part in encoder.scales if part)])
    else:
        done = "as it is" if plain else "0 or 1" if isinstance(encoder, Boolean) else "scaled by quartiles"
    words = f"{', '.join(repr(word[:20]) for word in column.words[:3])}{'…' if len(column.words) > 3 else ''}"
    notes = [column.note] if column.note else []
    notes += [f"{words} {'counts as a gap' if len(column.words) == 1 else 'count as gaps'}"] if column.words else []
    fill = {"number": "gaps: the median", "date": "gaps: the median", "boolean": "gaps: the mean"}.get(column.kind)
    marks = getattr(encoder, "marks_gaps", False) or (hasattr(encoder, "scale") and encoder.scale.marks_gaps)
    notes += [f"{fill}, marked" if fill else "gaps marked"] if column.gaps and (marks or column.kind == "date") else []
    return "; ".join([done, *notes])
