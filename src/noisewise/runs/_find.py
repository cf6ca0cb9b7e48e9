"""Where runs are: the folders a user names, and those that lie inside them. It must not know what is in a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from noisewise.errors import InputError, invalid_parameter


def find_runs(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """The run folders at some paths: a folder that is no run itself stands for every run inside it, however deep.

    Args:
        paths: folders or runs, in the order that matters to the user; hidden folders inside them are passed over.

    Returns:
        Each run once, in the order of the paths; those inside one folder in the order of their names.

    Raises:
        InputError: a path holds no run.

    Example:
        >>> import tempfile
        >>> runs = Path(tempfile.mkdtemp())
        >>> for name in ("mae-seed0", "ce-seed0"):
        ...     (runs / name).mkdir()
        ...     _ = (runs / name / "settings.json").write_text("{}")
        >>> [folder.name for folder in find_runs(runs)]
        ['ce-seed0', 'mae-seed0']
    """
    found: dict[Path, Path] = {}
    for place in paths if isinstance(paths, Iterable) and not isinstance(paths, str | PathLike) else [paths]:
        if not isinstance(place, str | PathLike):
            raise invalid_parameter("paths", "find_runs", "folders or runs", place)
        path = Path(place)
        inside = list(_inside(path))
        if not inside:
            raise InputError(f"There is no run in {str(path)!r}. Give the folder of a run, or one that holds runs.")
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _inside(path: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(path):
        if "settings.json" in files:
            yield Path(place)
            folders.clear()  # a run holds no other run, but many folders
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
