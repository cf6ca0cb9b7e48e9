"""Print what was done to each column of a table."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import Console, Text, inform
from noisewise.data import Encoding

_SHOWN = 30


def print_columns(encoding: Encoding | None, file: Any = None) -> None:
    """Print a table of the columns, on stderr by default. Numbers that are used as they are need none."""
    if encoding is None:
        return
    left_out = [column for column in encoding.columns if column.name not in encoding.used]
    if encoding.plain and file is None:
        for column in left_out[:_SHOWN]:
            inform(f"column {column.name!r} is left out: {column.done}.")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("column", "kind", "what was done", "gaps", "different"):
        table.add_column(title, justify="right" if title in ("gaps", "different") else "left", overflow="fold")
    for column in encoding.columns[:_SHOWN]:
        table.add_row(Text(column.name), column.kind, Text(column.done), f"{column.gaps:,}", f"{column.distinct:,}")
    console = Console(file=file or sys.stderr)
    console.print(table, highlight=False)
    if len(encoding.columns) > _SHOWN:
        kinds = Counter(column.kind for column in encoding.columns[_SHOWN:])
        console.print(Text(f"and {sum(kinds.values()):,} more: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}"))
