"""What a command shows while one run is trained: how far it is, and where it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from noisewise.cli._app import Console, resumable, say


class Bar:
    """A bar over the steps of a run, told of every step as `fit` tells it.

    Args:
        progress: what it is shown in.
        words: what stands before it.
    """

    def __init__(self, progress: Progress, words: str) -> None:
        self._progress, self._task = progress, progress.add_task(words, total=None)
        self.moved = False
        """Whether any step was made."""

    def __call__(self, step: int, steps: int) -> None:
        if not self.moved and step > 1:
            say(f"goes on after step {step - 1} of {steps}.")
        self.moved = True
        self._progress.update(self._task, completed=step, total=steps)


@contextmanager
def trained(words: str) -> Iterator[Bar]:
    """Show a bar on standard error while a run is trained, nothing where that is no terminal.

    Ctrl-C ends the command with a word on how to go on.

    Args:
        words: what stands before the bar.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with resumable(), Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, words)
