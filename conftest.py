"""What every test run shares: torch in doctests, one thread, the --slow switch, Ctrl-C, no time limits, a browser."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from waiting import LIMIT

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Modules that are written in Triton can only be looked into for doctests where it is installed.
_IN_TRITON = ("_arithmetic", "_rows", "_launch", "_operator", "_convolution")
collect_ignore = [] if importlib.util.find_spec("triton") else [f"src/noisewise/kernels/{name}.py" for name in _IN_TRITON]

collect_ignore_glob = ["tests/*/conftest.py"]  # read as fixtures, not looked into for doctests: they all have one name


def pytest_configure() -> None:
    """Compute with one thread from the start, draw examples without a time limit, and let programs that tests start hear Ctrl-C.

    A shell's background job is deaf to it and passes that on.
    """
    torch.set_num_threads(1)
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--fuzz", type=int, default=1, metavar="N", help="run N times as many cases in the fuzzing tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _steady(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> int:
    """How many times its usual number of cases a fuzzing test runs."""
    return int(request.config.getoption("--fuzz"))


class _Browser:
    """Opens contexts and pages that wait for as long as a busy machine takes."""

    def __init__(self, started: Any) -> None:
        self._started = started

    def new_context(self, **options: Any) -> Any:
        context = self._started.new_context(**options)
        context.set_default_timeout(1000 * LIMIT)
        return context

    def new_page(self, **options: Any) -> Any:
        return self.new_context(**options).new_page()


@pytest.fixture(scope="module")
def browser() -> Iterator[_Browser]:
    """One browser, ended before other tests run: playwright keeps an event loop going as long as it lives."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested in a browser: pip install playwright")
    path = os.environ.get("NOISEWISE_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip("pages are tested in a browser: install chromium, or name one in NOISEWISE_CHROMIUM")
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=1000 * LIMIT)
        yield _Browser(started)
        started.close()
