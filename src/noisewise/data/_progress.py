"""How a long fetch says how far it is. It must not know what is fetched, nor how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int | None], None]
"""Called with what is under way, how many bytes are done, and how many there are in all (None: not known)."""


def silent(what: str, done: int, total: int | None) -> None:
    """Say nothing."""


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show one bar on standard error for each thing under way; nothing where that is no terminal.

    Example:
        >>> from noisewise.data._progress import progress_bars
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

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show
