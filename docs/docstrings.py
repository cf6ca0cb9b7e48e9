"""Teaches the documentation our docstring headings: an Example is code, and a Formula keeps its lines."""

from __future__ import annotations

import re
from typing import Any

import griffe

_FORMULA = re.compile(r"^Formula:\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)


class Headings(griffe.Extension):
    """Rewrites the two headings into what mkdocstrings knows."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _FORMULA.sub(lambda found: f"```text\n{_dedented(found[1])}\n```\n\n", text)


def _dedented(lines: str) -> str:
    return re.sub(r"^ {4}", "", lines.rstrip(), flags=re.MULTILINE)
