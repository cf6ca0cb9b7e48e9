"""The kernel tests without a GPU: in a process of its own, because Triton decides when it is imported whether it interprets."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LIMIT

HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("file", ["test_rows.py", "test_residual.py"])
def test_kernels_are_right_through_the_interpreter(file):
    chosen = "not on_a_gpu and not resnet20 and not uneven and not odd"  # the larger networks run on a GPU
    command = [sys.executable, "-m", "pytest", str(HERE / file), "-q", "-x", "-p", "no:cacheprovider", "-k", chosen]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, cwd=HERE.parent.parent, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout and " skipped" not in ended.stdout
