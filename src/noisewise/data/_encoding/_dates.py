"""Dates as people write them, and the numbers that a model learns from: the day, the month, the weekday and the hour."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from noisewise.arrays import Floats

ISO = "year-month-day"
FORMATS = {
    "day.month.year": ("%d.%m.%Y", "%d.%m.%y"),
    "month/day/year": ("%m/%d/%Y", "%m/%d/%y"),
    "day/month/year": ("%d/%m/%Y", "%d/%m/%y"),
    "year/month/day": ("%Y/%m/%d",),
    "day-month-year": ("%d-%m-%Y",),
    "day month year": ("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y"),
    "month day, year": ("%b %d, %Y", "%B %d, %Y"),
}
"""The orders in which dates are read, besides ISO 8601, the first of equals first: 03/04/2024 is the fourth of March."""

_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_LONGEST = 40  # characters of a date
_LOOKS = re.compile(r".*\d.*[-/. ].*\d.*")


def order_of(texts: Sequence[str]) -> str:
    """The order in which most texts are dates, or "" if few are.

    Example:
        >>> order_of(["03.04.2024", "13.04.2024"]), order_of(["2024-04-13"]), order_of(["red", "blue"])
        ('day.month.year', 'year-month-day', '')
    """
    likely = [text for text in texts if len(text) <= _LONGEST and _LOOKS.fullmatch(text)]
    if 2 * len(likely) < len(texts):
        return ""
    best, most = "", 0
    for order in (ISO, *FORMATS):
        read = sum(_instant(text, order) is not None for text in likely)
        if read > most and 2 * read >= len(texts):
            best, most = order, read
        if most == len(likely):
            break
    return best


def parse(texts: Sequence[str], order: str) -> Any:
    """Read texts as dates in one order: datetime64[us], NaT for all other text."""
    read = [_instant(text, order) if len(text) <= _LONGEST else None for text in texts]
    return np.array([np.datetime64("NaT") if instant is None else np.datetime64(instant, "us") for instant in read], "datetime64[us]")


def parts(instants: Any) -> dict[str, Floats]:
    """Dates as numbers, by name: days since 1970, month (1 … 12), weekday (Monday is 0) and hour; NaN where there is no date."""
    days = instants.astype("datetime64[D]")
    months = instants.astype("datetime64[M]").astype(np.int64) % 12 + 1
    hours = (instants - days) / np.timedelta64(1, "h")
    weekdays = (days.astype(np.int64) + 3) % 7
    numbers = {"": days.astype(np.float64), " month": months.astype(float), " weekday": weekdays.astype(float), " hour": hours}
    return {name: np.where(np.isnat(instants), np.nan, values) for name, values in numbers.items()}


def _instant(text: str, order: str) -> datetime.datetime | None:
    """A date in UTC; dates without a time zone are taken as they are."""
    if order == ISO:
        with suppress(ValueError):
            instant = datetime.datetime.fromisoformat(text) if not text.isdigit() else None
            return instant if instant is None or instant.tzinfo is None else _in_utc(instant)
        return None
    for day in FORMATS[order]:
        for time in _TIMES[: len(_TIMES) if ":" in text else 1]:
            with suppress(ValueError):
                return datetime.datetime.strptime(text, day + time)
    return None


def _in_utc(instant: datetime.datetime) -> datetime.datetime | None:
    with suppress(OverflowError):
        return instant.astimezone(datetime.UTC).replace(tzinfo=None)
    return None
