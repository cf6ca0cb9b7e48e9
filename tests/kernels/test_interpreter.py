"""The tests of kernels without a GPU: in a separate process, because Triton chooses the interpreter when it is imported."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LIMIT

FOLDER = Path(__file__).parent
FILES = [str(FOLDER / name) for name in ("test_rows.py", "test_residual.py")]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("options", [[], pytest.param(["--slow"], marks=pytest.mark.slow)], ids=["quick", "all"])
def test_kernels_are_right_in_the_interpreter(options):
    command = [sys.executable, "-m", "pytest", *FILES, "-q", "-x", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, cwd=FOLDER.parent.parent, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout
    assert "TRITON_INTERPRET" not in ended.stdout and "needs Triton" not in ended.stdout, "tests were skipped for want of a device"
