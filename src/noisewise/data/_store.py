"""The data folder: files are fetched, checked and only then moved to their names.

A `Holding` lists the files of a data set with their official checksums, and the sources that deliver them. Sources deliver into a
temporary folder next to the data, so that a file under its own name is always complete.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from noisewise.errors import InputError

VARIABLE = "NOISEWISE_DATA"

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a download, the number of bytes so far, and the total or None."""


def silent(name: str, done: int, total: int | None) -> None:
    """Show no progress."""


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar on standard error for every download, if that is a terminal.

    Example:
        >>> with progress_bars() as progress:
        ...     progress("images.tar.gz", 1024, 4096)
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show


def checksum(path: Path) -> str:
    """The md5 of a file, which the official sites publish. It detects damage; TLS protects the download."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class Source(Protocol):
    """Where files can be fetched from; `title` is its name in messages."""

    @property
    def title(self) -> str: ...

    def deliver(self, workshop: Path, into: Path, progress: Progress) -> None:
        """Write the files into the empty folder ``into``, or raise `InputError`; unfinished downloads stay in ``workshop``."""


@dataclass(frozen=True)
class Holding:
    """The files of one data set, and where to fetch them.

    Args:
        name: the name in messages.
        layouts: for every distributed form of the data set, the checksum of each file by its path in the data folder.
        sources: the sources to try, in order.
    """

    name: str
    layouts: tuple[Mapping[str, str], ...]
    sources: tuple[Source, ...]

    def verified(self, root: Path) -> bool:
        """Whether the folder has every file of some layout, with its official checksum."""
        return any(all((root / path).is_file() and checksum(root / path) == md5 for path, md5 in layout.items()) for layout in self.layouts)

    def fetch(self, root: Path, progress: Progress = silent) -> None:
        """Fetch the files from the first source that delivers all of them, unless the folder has them.

        Raises:
            InputError: every source failed; the message says why. Existing files are unchanged.
        """
        if self.verified(root):
            return
        try:
            workshop = root / ".fetching" / self.name
            workshop.mkdir(parents=True, exist_ok=True)
            with _locked(workshop.with_suffix(".lock")):
                if not self.verified(root):  # another process may have fetched them in the meantime
                    self._fetch(root, workshop, progress)
        except OSError as error:
            message = f"The data set {self.name!r} cannot be stored in {str(root)!r}: {error}. Set {VARIABLE} to another folder."
            raise InputError(message) from error

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
            for path in sorted(path for path in into.rglob("*") if path.is_file()):
                target = root / path.relative_to(into)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
            shutil.rmtree(workshop)
            return
        shutil.rmtree(into, ignore_errors=True)
        raise InputError(
            f"The data set {self.name!r} cannot be fetched; tried {'; '.join(failures)}. "
            f"Connect to a network and try again, or copy its files to {str(root)!r}."
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file until the block or the process ends; Windows has no such locks, and two processes may fetch at once."""
    with path.open("ab") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
