"""What every test run shares: torch in doctests, one thread, the --slow switch."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


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
