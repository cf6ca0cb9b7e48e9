"""Print one line instead of a traceback if Ctrl-C interrupts the command line while it is still loading.

Loading takes seconds, mostly in torch, which may turn an interrupt into another error. The package imports this module first, so it uses
the standard library only. It does nothing unless this process is the command ``noisewise``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType


def _is_command() -> bool:
    """Whether this process was started as ``noisewise`` or ``python -m noisewise``."""
    words = sys.orig_argv[1:]
    for position, word in enumerate(words):
        if word == "-m":
            return words[position + 1 : position + 2] == ["noisewise"]
        if not word.startswith("-"):
            return PurePath(word).stem == "noisewise"
    return False


def _quit(number: int, frame: FrameType | None) -> None:
    os.write(2, b"noisewise: interrupted.\n")
    os._exit(128 + number)  # nothing has started, so there is nothing to clean up


@contextmanager
def loading() -> Iterator[None]:
    """End the process at once on Ctrl-C while the block imports; outside the command line, do nothing."""
    if not _is_command() or signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, _quit):
        yield
        return
    before = signal.signal(signal.SIGINT, _quit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def loaded() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block again, so that a command can clean up."""
    before = signal.getsignal(signal.SIGINT)
    if before is not _quit:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _quit)
