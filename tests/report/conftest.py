"""The page in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Opened:
    """A page in the browser, and all that it said or asked for since it was opened."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens a page from a file; keyword arguments are those of a browser context."""
    contexts = []

    def opener(page: str, *, width: int = 1440, before: str = "", **settings: Any) -> Opened:
        file = tmp_path / "a report & more.html"
        file.write_text(page, encoding="utf-8")
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, reduced_motion="reduce", **settings)
        contexts.append(context)
        if before:
            context.add_init_script(before)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(file.as_uri())
        return opened

    yield opener
    for context in contexts:
        context.close()
