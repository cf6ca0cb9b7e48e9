"""Numbers as people write them: decimal points or commas, thousands, and a sign of a currency or per cent that all share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise.arrays import Floats

GAPS = frozenset(("", "na", "n/a", "n.a.", "#n/a", "nan", "null", "none", "nil", "missing", "?", "-", "--", ".", "<na>", "inf", "-inf"))
"""What stands for a gap among numbers and dates, in lower case."""

_SIGNS = "$€£¥%"
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?")
_COMMA_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")
_SURE = re.compile(r"[+-]?(0|\d{4,})?,\d+|.*,\d{1,2}|.*,\d{4,}")
"""A number whose comma cannot separate thousands."""


class Style(NamedTuple):
    """How the numbers of a column are written.

    Args:
        decimal: the character before the fraction: a point or a comma.
        sign: the sign that stands before or after numbers, or nothing.
    """

    decimal: str = "."
    sign: str = ""

    def number(self, text: str) -> float | None:
        """The number that a text is, or None if it is not a finite number."""
        if self.sign:
            text = text.strip(self.sign + " \u00a0\u202f")
        if self.decimal == ".,":
            return _finite(text.replace(",", ".")) if _PLAIN.fullmatch(text.replace(",", ".")) else None
        if self.decimal == ".":
            if _PLAIN.fullmatch(text):
                return _finite(text)
            return _finite(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else None
        if _COMMA.fullmatch(text):
            return _finite(text.replace(",", "."))
        return _finite(text.replace(".", "").replace(",", ".")) if _COMMA_THOUSANDS.fullmatch(text) else None


BOTH = Style(".,")
"""Decimal points and decimal commas; such a column may mean anything."""


class Numbers(NamedTuple):
    """The numbers that texts are.

    Args:
        values: one for every text; NaN for gaps and other text.
        other: which texts are neither numbers nor gaps.
        style: how the numbers are written.
    """

    values: Floats
    other: Any
    style: Style


def parse(texts: Sequence[str], style: Style) -> Numbers:
    """Read texts as numbers written in one style."""
    read = [style.number(text) for text in texts]
    values = np.array([np.nan if number is None else number for number in read], np.float64)
    other = np.array([number is None and text.lower() not in GAPS for number, text in zip(read, texts, strict=True)], np.bool_)
    return Numbers(values, other, style)


def style_of(texts: Sequence[str], commas: bool | None) -> Style:
    """The style in which most numbers are written.

    Args:
        texts: different cells of a column.
        commas: whether commas may be decimal in any column; None if only the texts can tell.
    """
    signs = [sign for sign in _SIGNS if any(sign in text for text in texts)]
    sign = signs[0] if len(signs) == 1 else ""
    bare = [text.strip(sign + " \u00a0\u202f") for text in texts] if sign else texts
    if commas:
        commas = any("," in text for text in bare)
    elif commas is None:
        commas = any(map(_SURE.fullmatch, bare)) and not any(map(_THOUSANDS.fullmatch, (text for text in bare if text.count(",") > 1)))
    return Style("," if commas else ".", sign)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if np.isfinite(number) else None
