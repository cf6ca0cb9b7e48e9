"""Waiting in tests: for a condition, never for a fixed time, because a busy machine can be arbitrarily slow.

The limit only ends a test that hangs. No assertion depends on it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LIMIT = 1200.0  # seconds


def wait_until(condition: Callable[[], object]) -> None:
    """Return as soon as a condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.005)


def interrupted(arguments: Sequence[object], path: Path, number: signal.Signals = signal.SIGINT) -> subprocess.CompletedProcess[str]:
    """Run a noisewise command in a separate process, and send it a signal (by default Ctrl-C) as soon as a file exists."""
    command = [sys.executable, "-m", "noisewise", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: path.exists() or process.poll() is not None)
    process.send_signal(number)
    output, errors = process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
