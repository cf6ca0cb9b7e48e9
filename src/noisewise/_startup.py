"""Ctrl-C while the command line is still loading: one line instead of a traceback.

Loading takes seconds, most of them inside torch, where an interrupt may even be turned into another error. The package imports this
module first, so it needs the standard library only. It does nothing unless this process is the command ``noisewise``.
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
    os._exit(128 + number)  # nothing was begun that would need an end


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _quit)


@contextmanager
def loaded() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block again, where a command can put in order what is under way."""
    before = signal.getsignal(signal.SIGINT)
    if before is not _quit:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
