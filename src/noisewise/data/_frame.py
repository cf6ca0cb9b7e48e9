"""The columns of a pandas DataFrame. It asks the object for them and never imports that library."""

from __future__ import annotations

from typing import Any


def is_frame(source: Any) -> bool:
    """Whether something is a DataFrame of pandas, or of a class made from it."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas" for kind in type(source).__mro__)


def columns_of(frame: Any) -> tuple[list[str], list[Any]]:
    """The names and the values of all columns; names that are no text, like numbers, as text. The index is no column.

    Args:
        frame: a DataFrame.
    """
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]  # by place, as a name may occur twice
    return list(map(str, frame.columns)), [column.to_numpy(object if column.dtype.kind in "mM" else None) for column in columns]
