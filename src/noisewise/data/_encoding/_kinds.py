"""Decide what a column contains: numbers, true or false, dates, categories, text, or nothing to learn from.

The rules look at the cells of one column and at its name. They never see a label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.data._encoding import _dates, _numbers
from noisewise.data._encoding._cells import Cells, Distinct, as_text, distinct, gaps
from noisewise.errors import InputError

KINDS = ("number", "boolean", "date", "category", "text")
LEFT_OUT = "left out"

TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}

_MOSTLY = 0.95  # of the cells that are not gaps decide the kind
_OFTEN = 0.7  # of them are numbers, if few different words are among them
_FEW_WORDS = 3
_SAMPLE = 1000  # different values from which the style of numbers is found
_DATES = 200  # different values from which the order of dates is found
_WORDS = 3.0  # words in a cell of text, on average
_LONG = 60.0  # characters in a cell of text, on average
_REPEATED = 5  # rows that share a value of a category, on average
_FEW = 20  # different values are a category even in a small table
_UNIQUE = 0.9  # different values per row of names and ids
_NAMES_ROWS = re.compile(r"(.*[\W_])?(id|ids|index|idx|uuid|guid|row([\W_]?(no|nr|number))?)", re.IGNORECASE)
_CAMEL = re.compile(r".*[a-z](Id|ID)")


@dataclass(frozen=True)
class Contents:
    """What a column contains.

    Args:
        name: the name of the column.
        kind: one of `KINDS`, or `LEFT_OUT`.
        gaps: the number of gaps.
        distinct: the number of different values.
        note: what is special about it, for people; the reason if it is left out.
        values: numbers, or dates, or the different texts of a category or text.
        style: how its numbers, dates or truths are written.
        words: the texts that count as gaps, because they are not of this kind.
    """

    name: str
    kind: str
    gaps: int
    distinct: int
    note: str = ""
    values: Any = None
    style: Any = None
    words: Sequence[str] = ()

    @property
    def is_constant(self) -> bool:
        """Whether all cells are the same."""
        return self.kind != LEFT_OUT and self.distinct == 1 and not self.gaps

    def left_out(self, reason: str) -> Contents:
        """The same column, left out for a reason."""
        return Contents(self.name, LEFT_OUT, self.gaps, self.distinct, reason)


@dataclass(frozen=True)
class Question:
    """What is asked about a column.

    Args:
        name: the name of the column.
        called: its name in errors.
        cells: its cells.
        forced: the kind that the user wants; None to decide.
        wanted: whether the user named the column, so that it is not left out.
        commas: whether commas are decimal; None if only the cells can tell.
    """

    name: str
    called: str
    cells: Cells
    forced: str | None = None
    wanted: bool = False
    commas: bool | None = None


def contents_of(question: Question) -> Contents:
    """Decide what a column contains, or read it as the kind that the user wants.

    Raises:
        InputError: it cannot be read as that kind.
    """
    cells, forced = question.cells, question.forced
    if forced in ("category", "text"):
        return _words(question, distinct(as_text(cells)), forced)
    if cells.dtype.kind == "f" and forced in (None, "number"):
        return _number_column(question)
    if cells.dtype.kind == "M" and forced in (None, "date"):
        return _finished(question, "date", int(gaps(cells).sum()), len(np.unique(cells[~np.isnat(cells)])), values=cells, style=_dates.ISO)
    texts = distinct(as_text(cells))
    if cells.dtype.kind == "b" and forced in (None, "boolean"):
        return _boolean(question, texts, TRUTHS)
    return _from_text(question, texts) if forced is None else _forced(question, texts, forced)


def _from_text(question: Question, texts: Distinct) -> Contents:
    truths = {text: TRUTHS.get(text.lower()) for text in texts.values}
    words = [text for text, truth in truths.items() if truth is None and text.lower() not in _numbers.GAPS]
    if texts.values and not words and len({truth for truth in truths.values() if truth is not None}) > 0:
        return _boolean(question, texts, TRUTHS)
    number = _as_number(question, texts)
    if number is not None:
        return number
    date = _as_date(question, texts)
    return _words(question, texts, None) if date is None else date


def _forced(question: Question, texts: Distinct, kind: str) -> Contents:
    """Read text as the kind that the user wants; at least half of the cells must be of that kind."""
    if kind == "boolean":
        known = {text: TRUTHS.get(text.lower()) for text in texts.values}
        truths = {text: truth for text, truth in known.items() if truth is not None}
        if len(truths) < len(known) and len(known) == 2:
            truths = {text: float(place) for place, text in enumerate(sorted(known))}
        share, result, other = _share(texts, [text not in truths for text in texts.values]), _boolean(question, texts, truths), truths
        wrong = next((text for text in texts.values if text not in other), "")
    elif kind == "number":
        numbers = _numbers.parse(texts.values, _numbers.style_of(texts.values[:_SAMPLE], question.commas))
        share, result = _share(texts, numbers.other), _number(question, texts, numbers)
        wrong = next((text for text, other in zip(texts.values, numbers.other, strict=True) if other), "")
    else:
        order = _dates.order_of(texts.values[:_DATES])
        instants = _dates.parse(texts.values, order or _dates.ISO)
        share, result = _share(texts, np.isnat(instants)), _date(question, texts, instants, order)
        wrong = next((text for text, other in zip(texts.values, np.isnat(instants), strict=True) if other), "")
    if 1 - share < 0.5:
        raise InputError(
            f"C{question.called[1:]} cannot be read as {kind}: {share:.0%} of its cells are something else, such as {wrong[:50]!r}; "
            "leave that option out."
        )
    return result


def _share(texts: Distinct, other: Any) -> float:
    """The share of the cells with a value for which something holds."""
    counts = texts.counts
    return float(counts[np.asarray(other, np.bool_)].sum() / max(1, counts.sum()))


def _boolean(question: Question, texts: Distinct, truths: Mapping[str, float]) -> Contents:
    known = {text: truths.get(text, truths.get(text.lower())) for text in texts.values}
    per_value = np.array([np.nan if known[text] is None else known[text] for text in texts.values], np.float64)
    values = texts.spread(per_value, np.nan)
    style = {text: truth for text, truth in known.items() if truth is not None}
    words = [text for text, truth in known.items() if truth is None and text.lower() not in _numbers.GAPS]
    return _finished(question, "boolean", int(np.isnan(values).sum()), len(set(style.values())), values=values, style=style, words=words)


def _number_column(question: Question) -> Contents:
    cells = np.where(np.isfinite(question.cells), question.cells, np.nan)
    known = cells[~np.isnan(cells)]
    number = len(np.unique(known))
    if _is_row_number(question, known, number):
        return _left_out(question, len(cells) - len(known), number, "it numbers the rows")
    style = _numbers.Style("," if question.commas else ".")
    return _finished(question, "number", len(cells) - len(known), number, values=cells, style=style)


def _is_row_number(question: Question, known: Any, number: int) -> bool:
    if question.wanted or question.forced or len(known) < len(question.cells) or number < len(known):
        return False
    return _is_name_of_rows(question.name) and bool((known == known.round()).all())


def _is_name_of_rows(name: str) -> bool:
    return _NAMES_ROWS.fullmatch(name) is not None or _CAMEL.fullmatch(name) is not None


def _as_number(question: Question, texts: Distinct) -> Contents | None:
    sample = texts.values[:_SAMPLE]
    numbers = _numbers.parse(sample, _numbers.style_of(sample, question.commas))
    if numbers.other.sum() > 0.5 * len(sample) + _FEW_WORDS:  # most different values are words, so the rest is not read
        return None
    numbers = _numbers.parse(texts.values, numbers.style)
    other = _share(texts, numbers.other)
    if numbers.style.decimal == "," and numbers.other.any() and not _numbers.parse(texts.values, _numbers.BOTH).other.any():
        raise InputError(
            f"The numbers in {question.called} have decimal commas in some rows and decimal points in others; use one, or drop the column."
        )
    if not np.isfinite(numbers.values).any() or other > 1 - _OFTEN or (other > 1 - _MOSTLY and numbers.other.sum() > _FEW_WORDS):
        return None
    return _number(question, texts, numbers)


def _number(question: Question, texts: Distinct, numbers: _numbers.Numbers) -> Contents:
    values = texts.spread(numbers.values, np.nan)
    words = [text for text, other in zip(texts.values, numbers.other, strict=True) if other]
    missing = int(np.isnan(values).sum())
    known = values[~np.isnan(values)]
    if _is_row_number(question, known, len(np.unique(known))):
        return _left_out(question, missing, len(known), "it numbers the rows")
    notes = ["decimal commas"] if numbers.style.decimal == "," and not question.commas else []
    note = ", ".join([*notes, *([f"without {numbers.style.sign}"] if numbers.style.sign else [])])
    return _finished(question, "number", missing, len(np.unique(known)), note=note, values=values, style=numbers.style, words=words)


def _as_date(question: Question, texts: Distinct) -> Contents | None:
    known = [text for text in texts.values[:_DATES] if text.lower() not in _numbers.GAPS]
    order = _dates.order_of(known)
    if not order:
        return None
    instants = _dates.parse(texts.values, order)
    other = [bool(gap) and text.lower() not in _numbers.GAPS for gap, text in zip(np.isnat(instants), texts.values, strict=True)]
    return None if _share(texts, other) > 1 - _MOSTLY else _date(question, texts, instants, order)


def _date(question: Question, texts: Distinct, instants: Any, order: str) -> Contents:
    values = texts.spread(instants, np.datetime64("NaT"))
    note = "" if order in ("", _dates.ISO) else order
    known = values[~np.isnat(values)]
    words = [text for text, bad in zip(texts.values, np.isnat(instants), strict=True) if bad and text.lower() not in _numbers.GAPS]
    return _finished(question, "date", len(values) - len(known), len(np.unique(known)), note=note, values=values, style=order, words=words)


def _words(question: Question, texts: Distinct, kind: str | None) -> Contents:
    """A category, a text, or names of the rows."""
    rows, missing = int(texts.counts.sum()), int((texts.codes < 0).sum())
    different = len(texts.values)
    if kind is None and different > 1:
        length = np.array([len(text) for text in texts.values], float) @ texts.counts / rows
        words = np.array([text.count(" ") + 1 for text in texts.values], float) @ texts.counts / rows
        is_long = words >= _WORDS or (length >= _LONG and words > 1)
        few = different * _REPEATED <= rows or (different <= _FEW and different * 2 <= rows)
        kind = "category" if few else "text" if is_long else "category"
        unique = different >= _UNIQUE * rows and (rows > 1)
        if kind == "category" and unique and not question.wanted:
            return _left_out(question, missing, different, "nearly every row has its own value, like a name or an id")
    return _finished(question, kind or "category", missing, different, values=texts)


def _finished(question: Question, kind: str, missing: int, different: int, **more: Any) -> Contents:
    """The contents, or that the column is left out because all cells are gaps."""
    if different == 0:
        return _left_out(question, missing, different, "every cell is a gap")
    return Contents(question.name, kind, missing, different, **more)


def _left_out(question: Question, missing: int, different: int, reason: str) -> Contents:
    return Contents(question.name, LEFT_OUT, missing, different, reason)
