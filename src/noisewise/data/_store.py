"""Where data live, and how files come to be there: whole and checked, or not at all.

A `Holding` lists the files of one data set with their official checksums, and the sources that may deliver them. Files are
delivered into a workshop beside the data, checked there, and moved into place one by one, so that a file under its own name
is always a whole one. This module must not know how a source works, nor how files are read.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from noisewise.data._progress import Progress, silent
from noisewise.errors import InputError

VARIABLE = "NOISEWISE_DATA"


def checksum(path: Path) -> str:
    """The md5 of a file: what the official sites state. It guards against damage; TLS guards the way here."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class Source(Protocol):
    """A place that files can be had from."""

    @property
    def title(self) -> str:
        """What the source is called in messages."""

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        """Leave the files in ``into`` under the paths they have in the data folder.

        Args:
            workshop: kept until the fetch succeeds; an unfinished download may stay in it.
            into: an empty folder.
            progress: told how far the delivery is.

        Raises:
            InputError: the files cannot be had from here; the message says why.
        """


@dataclass(frozen=True)
class Holding:
    """The files of one data set, and where they can be had.

    Args:
        name: what it is called in messages and in the workshop.
        layouts: for every form the data set is distributed in, the checksum of each file by its path in the data folder.
        sources: where to look, in this order.
    """

    name: str
    layouts: tuple[Mapping[str, str], ...]
    sources: tuple[Source, ...]

    def verified(self, root: Path) -> bool:
        """Whether every file of some layout is in the folder, with its official checksum."""
        return any(all(_matches(root / path, md5) for path, md5 in layout.items()) for layout in self.layouts)

    def fetch(self, root: Path, progress: Progress = silent) -> None:
        """Have the files in the folder, from the first source that delivers them whole; do nothing where they are there.

        Raises:
            InputError: no source delivered them; the message says why each did not. What was in the folder stays.
        """
        if self.verified(root):
            return
        try:
            workshop = root / ".fetching" / self.name
            workshop.mkdir(parents=True, exist_ok=True)
            with _locked(workshop.with_suffix(".lock")):
                if not self.verified(root):  # another process may have fetched them while this one waited
                    self._fetch(root, workshop, progress)
        except OSError as error:
            raise InputError(f"The data set {self.name!r} cannot be put in {str(root)!r}: {error}. Say where in {VARIABLE}.") from error

    def _fetch(self, root: Path, workshop: Path, progress: Progress) -> None:
        into, failures = workshop / "delivered", []
        for source in self.sources:
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir(parents=True)
            try:
                source.deliver(workshop, into, progress)
                if not self.verified(into):
                    raise InputError("its files do not have the official checksums")
            except InputError as error:
                failures.append(f"{source.title}: {error}")
                continue
            _move(into, root)
            shutil.rmtree(workshop)
            return
        shutil.rmtree(into, ignore_errors=True)
        raise InputError(
            f"The data set {self.name!r} cannot be fetched; tried {'; '.join(failures)}. "
            f"Try again with a network, or put its files in {str(root)!r}."
        )


def _move(folder: Path, root: Path) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        target = root / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def _matches(path: Path, md5: str) -> bool:
    return path.is_file() and checksum(path) == md5


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system releases when the process ends, however it ends."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                with suppress(OSError):  # LK_LOCK gives up after ten seconds
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
