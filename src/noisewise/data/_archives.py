"""Unpack untrusted archives safely.

Absolute paths, "..", links, devices and more bytes than the limit are refused. A refused or damaged archive leaves nothing behind.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from noisewise.errors import InputError
from noisewise.output import written_whole

LIMIT = 4 << 30
_CHUNK = 1 << 20
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unpack(archive: Path, folder: Path, *, limit: int = LIMIT) -> None:
    """Unpack a tar (plain or compressed) or zip archive into a new folder, which appears when all files are complete.

    Raises:
        InputError: the archive is damaged, unpacks to more bytes than the limit, or contains anything but files inside the folder.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        try:
            for name, content in _members(archive):
                limit -= _copy(content, unpacked / _safe(name, archive), limit, archive)
        except _DAMAGE as error:
            raise InputError(f"The archive {str(archive)!r} is truncated or damaged: {error}. Fetch it again.") from error
        unpacked.replace(folder)


def gunzip(archive: Path, target: Path, *, limit: int = LIMIT) -> None:
    """Unpack a gzip file; the target appears when it is complete."""
    try:
        with written_whole(target) as part, gzip.open(archive) as content:
            _copy(content, part, limit, archive)
    except _DAMAGE as error:
        raise InputError(f"The file {str(archive)!r} is truncated or damaged: {error}. Fetch it again.") from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if entry.external_attr >> 28 not in (0, 0o04, 0o10):  # the Unix file type: not stated, a folder, a file
                    raise _refused(archive, f"{entry.filename!r} is a link or a device")
                if not entry.is_dir():
                    with zipped.open(entry) as content:
                        yield entry.filename, content
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if not (member.isfile() or member.isdir()):
                raise _refused(archive, f"{member.name!r} is a link or a device")
            if (file := tarred.extractfile(member)) is not None:
                yield member.name, file


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or any(sign in name for sign in "\\:\0"):
        raise _refused(archive, f"{name!r} would be written outside its folder")
    return path


def _copy(content: IO[bytes] | gzip.GzipFile, target: Path, limit: int, archive: Path) -> int:
    """Copy at most ``limit`` bytes and return their number. The sizes stated in an archive are not trusted."""
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while chunk := content.read(_CHUNK):
                written += len(chunk)
                if written > limit:
                    raise _refused(archive, "it unpacks to more bytes than any known data set has")
                file.write(chunk)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise _refused(archive, f"two of its files are named {target.name!r}") from None
    return written


def _refused(archive: Path, why: str) -> InputError:
    return InputError(f"The archive {str(archive)!r} is refused: {why}. Delete it and fetch the official file.")


def copy_out(source: Path, target: Path) -> None:
    """Copy an unpacked file, and unpack it if only the source is gzipped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".gz" and target.suffix != ".gz":
        gunzip(source, target)
    else:
        shutil.copyfile(source, target)
