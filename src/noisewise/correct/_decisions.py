"""Read the decisions that a person made on the review page, from the file that the page exports."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, reason, shown
from noisewise.runs import parse_json
from noisewise.tables import from_cell

_WORDS = {"accept": True, "reject": False}


@dataclass(frozen=True)
class Decision:
    """The decision on one example; it is true if the suggestion was accepted.

    Args:
        accepted: whether the suggestion was accepted.
        id: the id of the example, if known.
        given: the given label, if known.
        suggested: the suggested label, if known.
    """

    accepted: bool
    id: str | None = None
    given: str | None = None
    suggested: str | None = None

    def __bool__(self) -> bool:
        return self.accepted


def read_decisions(path: str | os.PathLike[str]) -> dict[int, Decision]:
    """Read decisions from the JSON or CSV file that a review page exports.

    Args:
        path: the path of the file. Each entry has an "index", the index of the example in its source, and a "decision", "accept" or
            "reject". It may have an "id" and a "given_label", which must be those of the example, and a "suggested_label", which is used
            instead of the suggestion of the audit.

    Returns:
        The decisions by the index of the example.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "decisions.csv").write_text("index,suggested_label,decision\\n7,cat,accept\\n")
        >>> read_decisions(folder / "decisions.csv")
        {7: Decision(accepted=True, id=None, given=None, suggested='cat')}
    """
    decisions: dict[int, Decision] = {}
    read_text = str if Path(path).suffix.lower() == ".json" else from_cell
    for number, entry in enumerate(_entries(Path(path)), 1):
        try:
            index, accepted = _as_index(entry["index"]), _WORDS[entry["decision"]]
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"Entry {number} of {str(path)!r} must have an index, an integer, and a decision, accept or reject. "
                f"Got {shown(entry)} instead."
            ) from None
        if index in decisions:
            raise InputError(f"Entry {number} of {str(path)!r} is a second decision on example {index}. Keep one entry for each example.")
        values = (entry.get(name) for name in ("id", "given_label", "suggested_label"))
        decisions[index] = Decision(accepted, *(None if value in (None, "") else read_text(str(value)) for value in values))
    return decisions


def _as_index(value: Any) -> int:
    """An integer, which CSV has as text; fractions and booleans, which int() accepts, are errors."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _entries(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        entries = parse_json(text) if path.suffix.lower() == ".json" else list(csv.DictReader(io.StringIO(text)))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"The decisions {str(path)!r} cannot be read ({reason(error)}). Give a file exported by a review page.") from None
    if not isinstance(entries, list):
        raise InputError(f"The decisions {str(path)!r} must be a list. Give a file exported by a review page.")
    return entries
