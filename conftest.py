"""Settings of all tests: torch in doctests, one thread, the --slow option, Ctrl-C, no time limits, no waiting for the disk, a browser,
and a process that starts programs quickly."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from prepared import Prepared, prepared
from quick_workers import PRELOADED, quick_workers
from waiting import LIMIT

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Modules that import Triton can be searched for doctests only if it is installed.
_IN_TRITON = ("_arithmetic", "_rows", "_launch", "_operator", "_convolution")
collect_ignore = [] if importlib.util.find_spec("triton") else [f"src/noisewise/kernels/{name}.py" for name in _IN_TRITON]

collect_ignore_glob = ["tests/*/conftest.py"]  # not searched for doctests, because they have the same module name


def pytest_configure() -> None:
    """Use one thread, remove the time limits of hypothesis, and make Ctrl-C work in programs that tests start.

    A shell starts background jobs with Ctrl-C ignored, and their child processes inherit that.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # libraries that are loaded later, and other processes
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Do not wait until files are on the disk: no test cuts the power, and small runs would spend most of their time waiting."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick_workers() -> Iterator[None]:
    """The workers of `compare` start without importing torch."""
    with quick_workers():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--fuzz", type=int, default=1, metavar="N", help="run N times as many cases in the fuzzing tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _same_start(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> int:
    """The factor by which a fuzzing test multiplies its number of cases."""
    return int(request.config.getoption("--fuzz"))


@pytest.fixture(scope="session")
def python() -> Iterator[Prepared]:
    """Runs programs in processes that do not have to import torch and noisewise, because importing takes seconds."""
    with prepared(*PRELOADED, "noisewise.cli", "noisewise.audit", "noisewise.report") as server:
        yield server


class _Browser:
    """Opens contexts and pages whose time limits are long enough for a busy machine."""

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
    """A browser for the tests of a module. It is closed after them, because playwright keeps an event loop running until then."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested in a browser: pip install playwright")
    path = os.environ.get("NOISEWISE_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip("pages are tested in a browser: install chromium, or set NOISEWISE_CHROMIUM")
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=1000 * LIMIT)
        yield _Browser(started)
        started.close()
