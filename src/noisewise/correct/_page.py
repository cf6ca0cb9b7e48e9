"""The review page as HTML: one file with its style, its script and its content, and the policy that allows nothing else.

All text from the data is inserted by the script as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

from noisewise.correct._cards import Cards


def page(cards: Cards, details: list[dict[str, Any]] | None) -> tuple[str, str]:
    """The page of some cards, and its content security policy.

    Args:
        cards: the cards.
        details: the details of all cards, for a page that stays alone; None for a page that gets them from its server.
    """
    script = _resource("noisewise.correct", "review.js")
    style = _resource("noisewise.report", "page.css") + _resource("noisewise.correct", "review.css")
    folder, served = str(cards.result.dynamics.folder), details is None
    content = {
        "served": served,
        "by_features": cards.result.model is not None,
        "key": cards.key,
        "classes": cards.classes,
        "cards": cards.summaries(),
        "details": details,
    }
    connect = "connect-src 'self'; img-src 'self' data:" if served else "img-src data:"
    policy = (
        f"default-src 'none'; {connect}; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    command = f"noisewise review {shlex.quote(folder)}" if served else f"noisewise correct {shlex.quote(folder)} --decisions decisions.json"
    parts = {
        "POLICY": html.escape(policy, quote=False),
        "TITLE": html.escape(f"Review of {Path(folder).resolve().name}"),
        "STYLE": style,
        "SHOWN": _shown(cards),
        "COMMAND": html.escape(command),
        "CONTENT": json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"),
        "SCRIPT": script,
    }
    return re.sub(r"{{ (\w+) }}", lambda name: parts[name[1]], _resource("noisewise.correct", "review.html")), policy


def _shown(cards: Cards) -> str:
    shown, doubtful = len(cards), cards.result.count
    if shown == doubtful:
        return f"All {shown:,} labels that look wrong, the most doubtful first."
    return f"The {shown:,} most doubtful of the {doubtful:,} labels that look wrong; --limit {doubtful} shows all."


def _digest(text: str) -> str:
    """The source expression that allows a script or a style by its content."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
