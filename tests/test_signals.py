"""Signals that ask a process to end."""

import os
import signal
import threading
from typing import Any

import pytest

from noisewise import signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_raised_and_the_next_are_ignored_until_the_block_has_ended(number: signal.Signals) -> None:
    later = []
    with pytest.raises(signals.Stopped, match=number.name) as stopped, signals.raised():
        try:
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 5)
        finally:
            for again in (signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), again)
            later.append(number)
    assert later == [number] and signals.exit_code(stopped.value) == 128 + number
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_handler_of_somebody_else_stays_and_so_do_all_outside_the_main_thread() -> None:
    def mine(number: int, frame: Any) -> None: ...

    seen: list[Any] = []

    def look() -> None:
        with signals.delayed():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGTERM, mine)
    try:
        look()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIG_DFL, mine]
