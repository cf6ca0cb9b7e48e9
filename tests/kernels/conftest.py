"""The device that runs the kernels: a CUDA device, or the CPU through Triton's interpreter."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch

from noisewise.kernels import _switch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--error-table", metavar="FILE", help="write the errors of the kernels over their full range to a JSON file")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """The device on which kernels run, with kernels switched on."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton")
    if not (INTERPRETED or torch.cuda.is_available()):
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1 from the start of the process: test_interpreter.py runs it so")
    monkeypatch.setattr(_switch, "_switched_on", True)
    return "cpu" if INTERPRETED else "cuda"


@pytest.fixture
def costly_if_interpreted(device: str, request: pytest.FixtureRequest) -> None:
    """Skip a test that takes many seconds in the interpreter, but none on a GPU."""
    if INTERPRETED and not request.config.getoption("--slow"):
        pytest.skip("slow: run with --slow")


@pytest.fixture(scope="session")
def error_table(request: pytest.FixtureRequest):
    """A list to which tests add rows. It is printed at the end, and written to the file of --error-table."""
    rows: list[dict[str, object]] = []
    yield rows
    if rows:
        for row in rows:
            print({key: f"{value:.2g}" if isinstance(value, float) else value for key, value in row.items()})
        path = request.config.getoption("--error-table", None)
        if path:
            Path(path).write_text(json.dumps(rows, indent=1), encoding="utf-8")
