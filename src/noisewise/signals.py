"""Handle SIGTERM and SIGHUP like Ctrl-C, so that a run can clean up before its process ends.

Cluster managers, `timeout`, `torchrun` and a closed terminal send these signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> None:
    for each in _SIGNALS:
        if signal.getsignal(each) is _stop:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleaning up
    raise Stopped(number)


@contextmanager
def raised() -> Iterator[list[int]]:
    """Raise `Stopped` in the block when a signal arrives, and restore the handlers afterwards.

    Signals that are already handled or ignored are not changed. Outside the main thread this does nothing.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = [number for number in _SIGNALS if in_main_thread and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, _stop)
    try:
        yield handled
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def delayed() -> Iterator[None]:
    """Raise `Stopped` in the block when a signal arrives, and let the signal end the process after the block."""
    handled: list[int] = []
    try:
        with raised() as handled:
            yield
    except Stopped as stopped:
        if stopped.number in handled:
            signal.raise_signal(stopped.number)
        raise


def exit_code(error: BaseException) -> int:
    """The exit code of a command that was ended by a signal or Ctrl-C."""
    return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)
