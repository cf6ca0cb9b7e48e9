"""What a person decided on the review page, read from the file it exports. This module must not know labels or runs."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from noisewise.errors import InputError

_WORDS = {"accept": True, "reject": False}


def read_decisions(path: str | os.PathLike[str]) -> dict[int, bool]:
    """Read decisions from the JSON or CSV file a review page exports.

    Args:
        path: of the file; every entry has an "index", the number of the example in its source, and a "decision", "accept" or
            "reject".

    Returns:
        Whether each suggestion was accepted, by the number of the example.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "decisions.csv").write_text("index,decision\\n7,accept\\n9,reject\\n")
        >>> read_decisions(folder / "decisions.csv")
        {7: True, 9: False}
    """
    found: dict[int, bool] = {}
    for number, entry in enumerate(_entries(Path(path)), 1):
        try:
            example, accepted = _whole(entry["index"]), _WORDS[entry["decision"]]
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"Entry {number} of {str(path)!r} must have an index, a whole number, and a decision, accept or reject. "
                f"Got {str(entry)[:80]} instead."
            ) from None
        if example in found:
            raise InputError(f"Entry {number} of {str(path)!r} decides on example {example} again. Keep one entry for every example.")
        found[example] = accepted
    return found


def _whole(value: Any) -> int:
    """A whole number, which CSV has as a word; JSON has fractions and true besides, which int() would take."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _entries(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        entries = json.loads(text) if path.suffix.lower() == ".json" else list(csv.DictReader(io.StringIO(text)))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"The decisions {str(path)!r} cannot be read ({error}). Give the file a review page exported.") from None
    if not isinstance(entries, list):
        raise InputError(f"The decisions {str(path)!r} must be a list. Give the file a review page exported.")
    return entries
