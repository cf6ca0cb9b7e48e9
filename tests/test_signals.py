"""Signals that ask a process to end."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noisewise import signals
from waiting import LIMIT


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """A program that starts the tests may ignore a signal: nohup ignores SIGHUP."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_raised_and_later_ones_are_ignored_until_the_block_ends(number: signal.Signals) -> None:
    cleaned_up = False
    with pytest.raises(signals.Stopped) as stopped, signals.raised():
        try:
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], LIMIT)
        finally:
            for again in (signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), again)
            cleaned_up = True
    assert cleaned_up and stopped.value.number == number and signals.exit_code(stopped.value) == 128 + number
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_handlers_of_the_user_and_handlers_outside_the_main_thread_are_not_replaced() -> None:
    def user_handler(number: int, frame: Any) -> None: ...

    handlers: list[Any] = []

    def record_handler() -> None:
        with signals.delayed():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=record_handler)
    thread.start()
    thread.join()
    signal.signal(signal.SIGTERM, user_handler)
    record_handler()
    assert signal.getsignal(signal.SIGTERM) is user_handler
    assert handlers == [signal.SIG_DFL, user_handler]
