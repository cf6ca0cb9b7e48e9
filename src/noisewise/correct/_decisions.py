"""Read the decisions that a person made: a file that a review page or another labelling tool exports, or what `noisewise review` keeps."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.correct._exports import from_tool
from noisewise.errors import InputError, invalid_parameter, reason, shown
from noisewise.runs import parse_json
from noisewise.tables import from_cell

ACTIONS = ("relabel", "keep", "drop", "unsure")
UNDECIDED = "undecided"
"""In a file of lines, takes back the decisions on an example that come before."""


@dataclass(frozen=True)
class Decision:
    """The decision of a person on one example.

    Args:
        action: "relabel"; "keep" the given label; "drop" the example, because none of the classes fits; or "unsure", which changes
            nothing.
        label: the new label of "relabel"; None for the label that the audit suggests.
        id: the id of the example, if known.
        given: the given label, if known.
    """

    action: str
    label: str | None = None
    id: str | None = None
    given: str | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise invalid_parameter("action", "Decision", f"one of {', '.join(ACTIONS)}", self.action)


def read_decisions(path: str | os.PathLike[str]) -> dict[int, Decision]:
    """Read decisions from a JSON or CSV file of a review page, from the ``decisions.jsonl`` of a reviewed run, or from a JSON export.

    An export is what Label Studio ("JSON") or Argilla (``to_json``) writes of the tasks of `write_tasks`. Examples without an answer are
    left out.

    Args:
        path: the path of the file. Each entry has an "index", the index of the example in its source, and a "decision": "relabel",
            "keep", "drop" or "unsure". It may have a "label", the new one of "relabel"; without it the suggestion of the audit is used.
            It may have an "id" and a "given_label", which must be those of the example. In a .jsonl file, which has an entry in every
            line, the last entry on an example counts, "undecided" takes a decision back, and an unfinished last line is ignored.

    Returns:
        The decisions by the index of the example.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "decisions.csv").write_text("index,decision,label\\n7,relabel,cat\\n")
        >>> read_decisions(folder / "decisions.csv")
        {7: Decision(action='relabel', label='cat', id=None, given=None)}
    """
    file, decisions = Path(path), dict[int, Decision]()
    kind = file.suffix.lower()
    for number, entry in enumerate(_entries(file, kind), 1):
        try:
            entry = from_tool(entry)
            if entry is None:
                continue
            index, decision = _as_index(entry["index"]), _decision(entry, from_cell if kind == ".csv" else str)
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"Entry {number} of {str(path)!r} must have an index, an integer, and a decision, one of {', '.join(ACTIONS)}. "
                f"Got {shown(entry)} instead."
            ) from None
        if index in decisions and kind != ".jsonl":
            raise InputError(f"Entry {number} of {str(path)!r} is a second decision on example {index}. Keep one entry for each example.")
        if decision is not None:
            decisions[index] = decision
        elif kind == ".jsonl":
            decisions.pop(index, None)
    return decisions


def _decision(entry: Any, read_text: Any) -> Decision | None:
    """The decision of an entry; None if it takes a decision back."""
    if entry["decision"] == UNDECIDED:
        return None
    values = (entry.get(name) for name in ("label", "id", "given_label"))
    return Decision(entry["decision"], *(None if value in (None, "") else read_text(str(value)) for value in values))


def _as_index(value: Any) -> int:
    """An integer, which CSV has as text; fractions and booleans, which int() accepts, are errors."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _entries(path: Path, kind: str) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if kind == ".jsonl":
            return list(lines_of(text))
        entries = parse_json(text) if kind == ".json" else list(csv.DictReader(io.StringIO(text)))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"The decisions {str(path)!r} cannot be read ({reason(error)}). Give a file exported by a review page.") from None
    if not isinstance(entries, list):
        raise InputError(f"The decisions {str(path)!r} must be a list. Give a file exported by a review page.")
    return entries


def lines_of(text: str) -> Iterator[Any]:
    """The entries of a file of JSON lines; a last line without an end is left out if a killed process did not finish it."""
    *lines, rest = text.split("\n")
    yield from map(parse_json, lines)
    if is_whole(rest):
        yield parse_json(rest)


def is_whole(line: str) -> bool:
    """Whether a line is a JSON object, and not the beginning of one."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
