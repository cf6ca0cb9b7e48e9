"""Keep a call within a time: stop or do not begin the runs that would not finish, so that the others do.

Runs that were stopped continue at their last checkpoint.

Runs are trained in other processes, which see files that this one writes.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisewise.errors import NoisewiseError
from noisewise.train._compare import Progress, Task

OUT_OF_TIME = "The run was stopped, because it would not have finished in time."

_WINDOW, _ENOUGH = 30.0, 10.0  # seconds over which the pace of a run is measured, and the fewest
_JUDGE_EVERY = 5.0


@dataclass(frozen=True)
class Timed(Task):
    """A task that ends when a file appears, and does not begin if that file or another one is there.

    Args:
        inner: the task.
        stop: the file that ends it.
        closed: the file that keeps it from beginning.
    """

    inner: Task
    stop: Path
    closed: Path

    def check(self) -> None:
        self.inner.check()

    def train(self, data: Any, test: Any, watch: Callable[[int, int], None]) -> object:
        def watched(step: int, steps: int) -> None:
            if self.stop.exists():
                raise NoisewiseError(OUT_OF_TIME)
            watch(step, steps)

        if self.closed.exists() or self.stop.exists():
            raise NoisewiseError(OUT_OF_TIME)
        return self.inner.train(data, test, watched)


@dataclass
class _Pace:
    """How fast a run is: its latest steps with their times, and the number of all its steps."""

    steps: int = 0
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, step: int, steps: int) -> None:
        self.steps = steps
        self.seen.append((now, step))
        while now - self.seen[0][0] > _WINDOW:
            self.seen.popleft()

    def needs(self) -> float | None:
        """The seconds to the end of the run; None if that is not known yet."""
        if not self.seen:
            return None
        (began, first), (now, last) = self.seen[0], self.seen[-1]
        return (self.steps - last) * (now - began) / (last - first) if now - began >= _ENOUGH and last > first else None


class Deadline:
    """Stops runs, judged by their progress.

    Args:
        seconds: how long training may take from now on.
        folder: an empty folder for the signs that runs look for.
        clock: the time in seconds.
    """

    def __init__(self, seconds: float, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._ends, self._judged = clock() + seconds, clock()
        self._paces: dict[int, _Pace] = {}
        self._sizes: dict[int, float] = {}
        self._waiting: set[int] = set()
        self._began: dict[int, float] = {}
        self._taken: list[float] = []  # seconds of finished runs, divided by their sizes
        if seconds <= 0:
            self._stop([])

    def timed(self, task: Task, place: int, size: float = 1.0) -> Timed:
        """A task that this deadline can stop.

        Args:
            task: the task.
            place: its index among all tasks.
            size: how much work it is, in any unit.
        """
        self._sizes[place] = size
        self._waiting.add(place)
        return Timed(task.settings, task.folder, task, self._sign(place), self._sign("new"))

    def watch(self, progress: Progress) -> None:
        """Take notice of the progress of a run, and stop runs if it is time."""
        now = self._clock()
        if progress.state == "running":
            self._waiting.discard(progress.place)
            self._began.setdefault(progress.place, now)
        if progress.state == "finished" and progress.place in self._began:
            self._taken.append((now - self._began[progress.place]) / self._sizes.get(progress.place, 1.0))
        if progress.state not in ("running", "waiting"):
            self._paces.pop(progress.place, None)
            for pace in self._paces.values():
                pace.seen.clear()  # from now on the others are faster
        elif progress.steps:
            self._paces.setdefault(progress.place, _Pace()).add(now, progress.step, progress.steps)
        if now >= self._ends:
            self._stop(list(self._paces))
        elif now - self._judged >= _JUDGE_EVERY:
            self._judged = now
            self._judge(self._ends - now)
            self._refuse(self._ends - now)

    def _judge(self, left: float) -> None:
        """Stop the runs that would not finish if the machine were shared by fewer."""
        needs = {place: pace.needs() for place, pace in self._paces.items()}
        known = sorted((seconds, place) for place, seconds in needs.items() if seconds is not None)
        if not known or len(known) < len(needs):
            return
        kept = max((number for number, (seconds, _) in enumerate(known, 1) if seconds * number / len(known) <= left), default=1)
        if kept < len(known):
            self._stop([place for _, place in known[kept:]])

    def _refuse(self, left: float) -> None:
        """Do not begin the runs that would take longer than what is left, judged by those that finished."""
        if self._taken:
            late = {place for place in self._waiting if self._sizes[place] * statistics.median(self._taken) > left}
            self._waiting -= late
            for place in late:
                self._sign(place).touch()

    def _stop(self, places: list[int]) -> None:
        """Stop these runs, and start no others."""
        for name in (*places, "new"):
            self._sign(name).touch()

    def _sign(self, name: object) -> Path:
        return self._folder / str(name)
