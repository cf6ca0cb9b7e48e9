"""Output files: checked before any work starts, and written completely or not at all."""

from __future__ import annotations

import glob
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from noisewise.errors import InputError, cannot_write, invalid_parameter

PART = ".part"
_ABANDONED = 24 * 60 * 60  # seconds after which a temporary file is deleted
_GENERATOR = b'<meta name="generator" content="noisewise">'


def check_output(output: str | os.PathLike[str], owner: str, endings: Sequence[str]) -> Path:
    """The path of an output file, after a check that it can be written.

    Args:
        output: the file.
        owner: what writes it, for the error.
        endings: the allowed file endings.
    """
    file = Path(output)
    if file.suffix.lower() not in endings:
        raise invalid_parameter("output", owner, f"a file that ends in {', '.join(endings)}", str(file))
    check_place(file)
    return file


def check_place(file: Path) -> None:
    """Refuse a file that cannot be written, or whose folder does not exist, by creating a temporary file."""
    folder = file.resolve().parent
    if not folder.is_dir():
        raise InputError(
            f"The file {file.name!r} cannot be written: the folder {str(folder)!r} does not exist. "
            "Make it first, or give another output file."
        )
    with _storage_errors(file):
        if file.is_dir() or (file.exists() and not os.access(file, os.W_OK)):
            raise InputError(f"The file {str(file)!r} cannot be written. Give another output file.")
        _try(file)


def is_page(file: Path) -> bool:
    """Whether an existing file is a report or a review page that noisewise wrote."""
    with file.open("rb") as opened:
        return _GENERATOR in opened.read(512)


def check_replacing(file: Path, source: str | os.PathLike[str] | None, ours: Callable[[Path], bool], kind: str) -> None:
    """Refuse to replace the file that is read, or a file that noisewise did not write. An empty file may be replaced.

    Args:
        file: the file that will be written.
        source: the input, a path or a name; None if it cannot be the file.
        ours: a function that returns whether noisewise wrote a file.
        kind: what will be written, for the error.
    """
    with _storage_errors(file):
        if not file.exists():
            return
        if source is not None and Path(source).exists() and file.samefile(source):
            raise InputError(f"The file {str(file)!r} is the input and would be lost. Give another output file.")
        if file.stat().st_size and not ours(file):
            raise InputError(f"The file {str(file)!r} already exists and is not a {kind} that noisewise wrote. Give another output file.")


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist, and refuse one that cannot be written to."""
    with _storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _try(folder / "try")


@contextmanager
def written_output(file: Path) -> Iterator[Path]:
    """`written_whole` for a file that the user named; raises `InputError` if it cannot be written."""
    with _storage_errors(file), written_whole(file) as part:
        yield part


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, "Give another output.") from None


def _try(file: Path) -> None:
    part = _part(file)
    part.touch()
    part.unlink()


def _part(file: Path) -> Path:
    return file.with_name(f".{file.name}.{secrets.token_hex(8)}{PART}")


@contextmanager
def written_whole(file: Path, sweep: bool = True, later: set[Path] | None = None) -> Iterator[Path]:
    """A temporary path to write to, which is renamed to the file at the end of the block, or deleted if the block fails.

    The file is synced to disk before this returns, so that a power cut leaves the old file or the new one. Several processes may write the
    same file: the last one wins. Temporary files of killed processes are removed when the same file is written a day later.

    Args:
        file: the file.
        sweep: whether to remove such temporary files, which is slow in a folder with many files.
        later: a set to add the folder to, for a caller that writes many files and then calls `sync_folders`; by default the folder is
            synced at once.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "list.txt"
        >>> with written_whole(file) as part:
        ...     _ = part.write_text("whole")
        >>> [path.name for path in file.parent.iterdir()]
        ['list.txt']
    """
    part = _part(file)
    if sweep:
        _sweep(file)
    try:
        yield part
        _sync(part, os.O_RDWR)  # Windows syncs only what is open for writing
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    if later is None:
        sync_folders({file.parent})
    else:
        later.add(file.parent)


def append_lines(file: Path, lines: Iterable[str]) -> None:
    """Append lines to a file, and wait until they are on the disk. If that fails, the file is as before.

    Args:
        file: the file, which is made if it does not exist. What it contains ends with a line.
        lines: the lines without their ends.
    """
    content = "".join(f"{line}\n" for line in lines).encode()
    with _storage_errors(file), file.open("ab") as opened:
        size = opened.tell()
        try:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(file, size)
            raise
    if not size:
        sync_folders({file.parent})


def sync_folders(folders: set[Path]) -> None:
    """Wait until the names of files in some folders are on the disk, and empty the set."""
    while folders:
        with suppress(OSError):  # Windows and some network disks cannot sync folders
            _sync(folders.pop(), os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(file: Path) -> None:
    for part in file.parent.glob(f".{glob.escape(file.name)}.*{PART}"):
        with suppress(OSError):  # another process may have removed it
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()
