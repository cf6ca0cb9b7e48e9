"""A file the user asked for: refused before any work if it cannot be written, and then there whole or not at all.

This module must not know what is in a file.
"""

from __future__ import annotations

import glob
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from noisewise.errors import InputError, must

PART = ".part"
_NOBODY_WRITES_SO_LONG = 24 * 60 * 60


def check_output(output: str | os.PathLike[str], owner: str, endings: Sequence[str]) -> Path:
    """The file, after a check that it can be written.

    Args:
        output: the file.
        owner: what writes it, for the error.
        endings: what its name may end in.
    """
    file = Path(output)
    if file.suffix.lower() not in endings:
        raise must("output", owner, f"a file that ends in {', '.join(endings)}", str(file))
    check_place(file)
    return file


def check_place(file: Path) -> None:
    """Refuse a file whose folder is not there, or that may not be written."""
    folder = file.resolve().parent
    if not folder.is_dir():
        raise InputError(
            f"The file {file.name!r} cannot be written: the folder {str(folder)!r} does not exist. "
            "Make it first, or give another output file."
        )
    if file.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise InputError(f"The file {str(file)!r} cannot be written. Give another output file.")


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when the block ends well and is gone when it does not.

    The path is nobody else's: of several who write one file, each writes its own, and the last to end has the file. What one that was
    killed left is removed by whoever writes the same file a day later.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "list.txt"
        >>> with written_whole(file) as part:
        ...     _ = part.write_text("whole")
        >>> [one.name for one in file.parent.iterdir()]
        ['list.txt']
    """
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}{PART}")
    _sweep(file)
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _sweep(file: Path) -> None:
    for left in file.parent.glob(f".{glob.escape(file.name)}.*{PART}"):
        with suppress(OSError):  # another may have removed it first
            if time.time() - left.stat().st_mtime > _NOBODY_WRITES_SO_LONG:
                left.unlink()
