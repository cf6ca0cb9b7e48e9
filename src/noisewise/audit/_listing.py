"""What the lists of findings share: rows, a DataFrame and a file, all made from the same blocks of columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from noisewise.arrays import Ints
from noisewise.data import Column
from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import as_int
from noisewise.tables import ROWS, Block, rows_of, write_blocks


class Listing:
    """A list of findings. A subclass gives the names of the columns, and the rows in blocks."""

    def _names(self) -> Sequence[str]:
        raise NotImplementedError

    def _blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    def table(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows as dicts by column name, in the order of the list.

        Args:
            limit: the number of rows; by default all.
        """
        number = None if limit is None else as_int("limit", "table", limit, 0)
        return list(islice(rows_of(self._blocks(), self._names()), number))

    def to_frame(self) -> Any:
        """The list as a pandas DataFrame."""
        return as_frame(self._blocks(), self._names())

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the list to a file.

        Args:
            path: ends in .csv, .json or .parquet.

        Returns:
            The path.
        """
        return write_blocks(path, self._blocks(), self._names())


def as_frame(blocks: Iterator[Block], names: Sequence[str]) -> Any:
    """Blocks as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise InputError("A DataFrame needs pandas, which is not installed; run: pip install pandas, or use table().") from None
    columns: list[list[Any]] = [[] for _ in names]
    for block in blocks:
        for column, part in zip(columns, block, strict=True):
            column.extend(part)
    return pandas.DataFrame(dict(zip(names, columns, strict=True)))


def parts(positions: Ints) -> Iterator[Ints]:
    """Cut positions into blocks of the size that files are written in."""
    return (positions[start : start + ROWS] for start in range(0, len(positions), ROWS))


def as_ids(ids: Sequence[Any] | None, number: int, owner: str) -> tuple[str, ...]:
    """The ids of examples as text; their indices if there are none."""
    if ids is None:
        return tuple(map(str, range(number)))
    if len(ids) != number:
        raise invalid_parameter("ids", owner, f"one for each of the {number} examples", f"{len(ids)} ids")
    return Column(ids, "the ids").ids()
