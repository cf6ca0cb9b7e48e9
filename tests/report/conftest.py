"""Open pages in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Opened:
    """A page in the browser, with its console messages, errors and requests."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def open_page(browser: Any, folder: Path, page: str, *, width: int = 1440, before: str = "", **settings: Any) -> Opened:
    """Open a page from a file; keyword arguments are those of a browser context."""
    file = folder / "a report & more.html"
    file.write_text(page, encoding="utf-8")
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, reduced_motion="reduce", **settings)
    if before:
        context.add_init_script(before)
    result = Opened(context.new_page())
    result.page.on("console", lambda message: result.complaints.append(message.text))
    result.page.on("pageerror", lambda error: result.complaints.append(str(error)))
    result.page.on("request", lambda request: result.requests.append(request.url))
    result.page.goto(file.as_uri())
    return result


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens pages that are closed after the test."""
    contexts = []

    def visitor(page: str, **settings: Any) -> Opened:
        result = open_page(browser, tmp_path, page, **settings)
        contexts.append(result.page.context)
        return result

    yield visitor
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def visit_once(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Opened]:
    """Opens pages that the tests of a module share, because opening one takes seconds."""
    return lambda page, **settings: open_page(browser, tmp_path_factory.mktemp("page"), page, **settings)
