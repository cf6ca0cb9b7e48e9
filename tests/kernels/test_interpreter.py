"""The kernel tests without a GPU: in a process of its own, because Triton decides when it is imported whether it interprets."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LIMIT

HERE = Path(__file__).parent
LARGE = ("on_a_gpu", "resnet20", "uneven", "odd")  # networks that run on a GPU
# Tests of many seconds each, which a GPU runs in no time.
COSTLY = (
    *("lies_in_memory", "any_strides", "same_bits", "not_a_number_stays", "frozen", "gone_through_twice", "shape1"),
    *("begin_anywhere", "would_underflow", "compiles_as_one_graph", "breaks_its_graph"),
)
QUICK = " and ".join(f"not {name}" for name in (*LARGE, *COSTLY))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_rows.py", "as_exact_as"),  # every loss; in a process of its own, so that two workers share the work
        ("test_rows.py", f"{QUICK} and not as_exact_as"),
        ("test_residual.py", QUICK),
        *(pytest.param(file, " or ".join(COSTLY), marks=pytest.mark.slow) for file in ("test_rows.py", "test_residual.py")),
    ],
)
def test_kernels_are_right_through_the_interpreter(file, chosen):
    command = [sys.executable, "-m", "pytest", str(HERE / file), "-q", "-x", "-p", "no:cacheprovider", "-k", chosen]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, cwd=HERE.parent.parent, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout and " skipped" not in ended.stdout
