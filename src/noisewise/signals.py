"""Signals that ask a process to end, SIGTERM and SIGHUP, handled as Ctrl-C is: what is under way is put in order first.

Cluster managers, `timeout`, `torchrun` and a closed terminal end processes this way. This module must not know what is under way.
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
            signal.signal(each, signal.SIG_IGN)  # a second one must not cut short what the first has begun to end
    raise Stopped(number)


@contextmanager
def raised() -> Iterator[list[int]]:
    """Raise `Stopped` in the block when such a signal comes; afterwards the handlers are as they were.

    Signals that somebody handles or ignores are left alone, and so are all of them outside the main thread.
    """
    here = threading.current_thread() is threading.main_thread()
    handled = [number for number in _SIGNALS if here and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, _stop)
    try:
        yield handled
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def delayed() -> Iterator[None]:
    """Raise `Stopped` in the block when such a signal comes, and once the block has ended let the signal end the process."""
    handled: list[int] = []
    try:
        with raised() as handled:
            yield
    except Stopped as stopped:
        if stopped.number in handled:
            signal.raise_signal(stopped.number)
        raise


def exit_code(error: BaseException) -> int:
    """What a shell expects of a command that a signal ended, Ctrl-C included."""
    return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)
