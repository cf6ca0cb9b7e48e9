"""The columns of a DataFrame of pandas or polars. It asks the object for them and never imports those libraries."""

from __future__ import annotations

from typing import Any


def is_frame(source: Any) -> bool:
    """Whether something is a DataFrame of pandas or polars, or of a class made from one."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "polars") for kind in type(source).__mro__)


def columns_of(frame: Any) -> tuple[list[str], list[Any]]:
    """The names and the values of all columns; names that are no text, like numbers, as text. The index is no column.

    Args:
        frame: a DataFrame.
    """
    if hasattr(frame, "get_columns"):  # of polars, which has no index
        return list(frame.columns), [column.to_numpy() for column in frame.get_columns()]
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]  # by place, as a name may occur twice
    return list(map(str, frame.columns)), [column.to_numpy(object if column.dtype.kind in "mM" else None) for column in columns]
