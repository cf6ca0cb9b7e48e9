"""Prepares docstrings for mkdocstrings: an Example and a session without a heading are code, and a Formula keeps its line breaks."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_FORMULA = re.compile(r"^Formula:\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)


class Headings(griffe.Extension):
    """Rewrites them into sections that mkdocstrings knows."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = _SESSION.sub(lambda session: f"```pycon\n{session[0]}\n```", text)
            obj.docstring.value = _FORMULA.sub(lambda formula: f"```text\n{_dedented(formula[1])}\n```\n\n", text)


def _dedented(lines: str) -> str:
    return re.sub(r"^ {4}", "", lines.rstrip(), flags=re.MULTILINE)
