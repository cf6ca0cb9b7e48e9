"""What a person decided on the review page, read from the file it exports. This module must not know labels or runs."""

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
    """What was decided on one example, true if the suggestion was accepted; the rest is what the person saw, where that is known.

    Args:
        accepted: whether the suggestion was accepted.
        id: of the example.
        given: its label.
        suggested: the label that was suggested, and is given to the example if it was accepted.
    """

    accepted: bool
    id: str | None = None
    given: str | None = None
    suggested: str | None = None

    def __bool__(self) -> bool:
        return self.accepted


def read_decisions(path: str | os.PathLike[str]) -> dict[int, Decision]:
    """Read decisions from the JSON or CSV file a review page exports.

    Args:
        path: of the file; every entry has an "index", the number of the example in its source, and a "decision", "accept" or
            "reject". It may have an "id" and a "given_label", which must then be the example's, and a "suggested_label", which may
            be another than the audit's: what is accepted is what stands there.

    Returns:
        What was decided, by the number of the example.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "decisions.csv").write_text("index,suggested_label,decision\\n7,cat,accept\\n")
        >>> read_decisions(folder / "decisions.csv")
        {7: Decision(accepted=True, id=None, given=None, suggested='cat')}
    """
    found: dict[int, Decision] = {}
    read_text = str if Path(path).suffix.lower() == ".json" else from_cell
    for number, entry in enumerate(_entries(Path(path)), 1):
        try:
            example, accepted = _whole(entry["index"]), _WORDS[entry["decision"]]
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"Entry {number} of {str(path)!r} must have an index, an integer, and a decision, accept or reject. "
                f"Got {shown(entry)} instead."
            ) from None
        if example in found:
            raise InputError(f"Entry {number} of {str(path)!r} decides on example {example} again. Keep one entry for every example.")
        seen = (entry.get(name) for name in ("id", "given_label", "suggested_label"))
        found[example] = Decision(accepted, *(None if value in (None, "") else read_text(str(value)) for value in seen))
    return found


def _whole(value: Any) -> int:
    """An integer, which CSV has as a word; JSON has fractions and true besides, which int() would take."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _entries(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        entries = parse_json(text) if path.suffix.lower() == ".json" else list(csv.DictReader(io.StringIO(text)))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"The decisions {str(path)!r} cannot be read ({reason(error)}). Give the file a review page exported.") from None
    if not isinstance(entries, list):
        raise InputError(f"The decisions {str(path)!r} must be a list. Give the file a review page exported.")
    return entries
