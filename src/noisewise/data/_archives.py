"""Unpacking archives that others made, without letting them write anywhere else or fill the disk.

Only files and folders are unpacked. Absolute paths, "..", links, devices and more bytes than the limit are refused, and a
refused or damaged archive leaves nothing behind. This module must not know which data set an archive holds.
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
    """Unpack a tar (plain or compressed) or zip archive into a folder that is not there yet.

    Args:
        archive: the archive; what it is is told by its content.
        folder: where its files go; it appears only when all of them are there.
        limit: the most bytes that may come out.

    Raises:
        InputError: the archive is damaged, truncated, too large or holds something other than files inside the folder.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        inside = Path(temporary) / "unpacked"
        inside.mkdir()
        left = limit
        try:
            for name, content in _members(archive):
                target = inside / _safe(name, archive)
                left -= _copy(content, target, left, archive)
        except _DAMAGE as error:
            raise InputError(f"The archive {str(archive)!r} is truncated or damaged: {error}. Fetch it again.") from error
        inside.replace(folder)


def gunzip(archive: Path, target: Path, *, limit: int = LIMIT) -> None:
    """Unpack a gzip file; the target appears only when it is whole.

    Raises:
        InputError: the file is damaged, truncated or too large.
    """
    try:
        with written_whole(target) as part, gzip.open(archive) as content:
            _copy(content, part, limit, archive)
    except _DAMAGE as error:
        raise InputError(f"The file {str(archive)!r} is truncated or damaged: {error}. Fetch it again.") from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                kind = entry.external_attr >> 28  # the file type of Unix, 0 where the archive comes from elsewhere
                if kind not in (0, 0o04, 0o10):
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
    """Copy at most ``limit`` bytes; sizes that an archive states are not believed."""
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while chunk := content.read(_CHUNK):
                written += len(chunk)
                if written > limit:
                    raise _refused(archive, "it unpacks to more bytes than any of these data sets has")
                file.write(chunk)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise _refused(archive, f"two of its files are named {target.name!r}") from None
    return written


def _refused(archive: Path, why: str) -> InputError:
    return InputError(f"The archive {str(archive)!r} is refused: {why}. Delete it and fetch the official file.")


def copy_out(source: Path, target: Path) -> None:
    """Copy one unpacked file to its place, unpacking it further where only its source is gzipped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".gz" and target.suffix != ".gz":
        gunzip(source, target)
    else:
        shutil.copyfile(source, target)
