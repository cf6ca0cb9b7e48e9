"""Find run folders: those that a user names, and those inside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from noisewise.errors import InputError, invalid_parameter


def find_runs(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Find the run folders at some paths. A folder that is not a run stands for every run inside it, at any depth.

    Args:
        paths: folders or runs; hidden folders inside them are skipped.

    Returns:
        Each run once, in the order of the paths; the runs inside one folder are sorted by name.

    Raises:
        InputError: there is no run at one of the paths.

    Example:
        >>> import tempfile
        >>> runs = Path(tempfile.mkdtemp())
        >>> for name in ("mae-seed0", "ce-seed0"):
        ...     (runs / name).mkdir()
        ...     _ = (runs / name / "settings.json").write_text("{}")
        >>> [folder.name for folder in find_runs(runs)]
        ['ce-seed0', 'mae-seed0']
    """
    runs: dict[Path, Path] = {}
    for path in paths if isinstance(paths, Iterable) and not isinstance(paths, str | PathLike) else [paths]:
        if not isinstance(path, str | PathLike):
            raise invalid_parameter("paths", "find_runs", "folders or runs", path)
        inside = list(_inside(Path(path)))
        if not inside:
            raise InputError(f"There is no run in {str(path)!r}. Give the folder of a run, or a folder that contains runs.")
        for folder in inside:
            runs.setdefault(folder.resolve(), folder)
    return list(runs.values())


def _inside(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        if "settings.json" in files:
            yield Path(folder)
            folders.clear()  # a run contains many folders, but no other run
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
