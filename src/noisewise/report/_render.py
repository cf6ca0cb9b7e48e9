"""Render the report as one HTML page.

The page contains its styles, scripts, charts and numbers. Its security policy forbids network access and every script but the three in the
page. All text from the facts is escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeGuard

from noisewise.draw import as_json, as_text, bundle
from noisewise.report._facts import Facts, Group, RunFacts
from noisewise.report.sections import MODULES
from noisewise.report.sections.doubt import Example

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = ("hovertemplate", "texttemplate")  # figure strings that are meant to be markup
_WIDTH, _HEIGHT, _INSET = 120.0, 32.0, 2.0  # of a sparkline
_SMALL = 64  # images up to this width, in pixels, are not smoothed
_PNG = "data:image/png;base64,"


def render(facts: Facts) -> str:
    """Write facts as one self-contained HTML page.

    Args:
        facts: what the page shows.

    Returns:
        The page. It opens from a file, without a network, and most of it can be read without scripts.

    Example:
        >>> page = render({"title": "<b>", "made": "today", "counts": "no runs", "verdict": [], "measures": [],
        ...                "groups": [], "runs": [], "broken": [], "tasks": []})
        >>> "<h1>&lt;b&gt;</h1>" in page
        True
    """
    from markupsafe import Markup

    links = sorted((order, name, link, module) for module in MODULES for name, (link, order) in module.LINKS.items())
    sections = [
        {"name": name, "link": link, "template": f"sections/{name}.html"}
        for _, name, link, module in links
        if not hasattr(module, "is_shown") or module.is_shown(name, facts)
    ]
    page = (
        _environment()
        .get_template("page.html")
        .render(facts, sections=sections, style=Markup(_resource("page.css")), script=Markup(_resource("page.js")), plotly=Markup(bundle()))
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # a file name may contain undecodable bytes


@functools.cache
def _environment() -> Environment:
    """The templates with their filters, compiled once per process."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_resource), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "chance": _chance,
        "classes": _classes,
        "field_names": _field_names,
        "fingerprint": _fingerprint,
        "figure": lambda figure: Markup(as_json(_escape_figure(figure))),
        "json": lambda data: Markup(as_json(data)),
        "number": _number,
        "pixels": _has_few_pixels,
        "sortable": _first_number,
        "sparkline": _sparkline,
        "unfinished": _unfinished,
    }
    return environment


def _resource(name: str) -> str:
    return resources.files("noisewise.report").joinpath(name).read_text(encoding="utf-8")


def _fingerprint(script: str) -> str:
    """The hash of a script in the security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _escape_figure(figure: Any) -> Any:
    """Escape the text of a figure for plotly, whether or not it is escaped already."""
    if isinstance(figure, dict):
        return {key: value if key in _TEMPLATES else _escape_figure(value) for key, value in figure.items()}
    if isinstance(figure, list | tuple):
        return [_escape_figure(value) for value in figure]
    return as_text(html.unescape(figure)) if isinstance(figure, str) else figure


def _number(value: float, unit: str) -> str:
    """A measure as the table shows it; shares in percent, without the sign.

    Example:
        >>> _number(0.8434, "%"), _number(1.2345, ""), _number(-0.5, "")
        ('84.3', '1.23', '−0.50')
    """
    text = f"{100 * value:.1f}" if unit == "%" else f"{value:.2f}" if abs(value) < 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def _first_number(text: str) -> str:
    """The number that a printed result is sorted by; empty if it has none.

    Example:
        >>> _first_number("84.0 ± 0.3"), _first_number("not given")
        ('84.0', '')
    """
    match = re.search(r"-?\d+(\.\d+)?", text.replace("−", "-"))
    return match[0] if match else ""


def _chance(share: float) -> str:
    """A probability in percent that is never 0 or 100.

    Example:
        >>> _chance(0.934), _chance(0.9991), _chance(0.001)
        ('93 %', '> 99 %', '< 1 %')
    """
    return "> 99 %" if share > 0.99 else "< 1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")


def _unfinished(group: Group, runs: Iterable[RunFacts]) -> str:
    """A note that some of the runs of a group are not finished."""
    states = [run["state"] for run in runs if (run["task"], run["loss"]) == (group["task"], group["loss"])]
    missing = sum(state != "finished" for state in states)
    return f"{missing} of {len(states)} runs not finished" if missing else ""


def _classes(examples: Iterable[Example]) -> list[str]:
    """The classes to filter examples by."""
    return sorted({name for example in examples for name in (example["given"], example["suggested"])})


def _field_names(examples: Iterable[Example]) -> list[str]:
    """The names of all fields of the examples, in order of appearance."""
    return list(dict.fromkeys(name for example in examples for name, _ in example["fields"]))


def _has_few_pixels(image: str) -> bool:
    """Whether an image is too small to be smoothed. Images that are not PNG are photographs."""
    head = base64.b64decode(image.removeprefix(_PNG)[:32]) if image.startswith(_PNG) else b""
    return 0 < int.from_bytes(head[16:20], "big") <= _SMALL


def _is_known(margin: float | None) -> TypeGuard[float]:
    """Whether the example was seen in that epoch."""
    return margin is not None and math.isfinite(margin)


def _sparkline(margins: Sequence[float | None]) -> dict[str, Any] | None:
    """The history of a margin as polylines, with its zero line and a description; None without a history.

    Example:
        >>> drawn = _sparkline([-1.0, None, 1.0, 3.0])
        >>> drawn["strokes"], drawn["zero"], drawn["words"]
        (['2.0,30.0', '79.3,16.0 118.0,2.0'], 23.0, 'margin from −1.00 to 3.00 in training')
    """
    known = [margin for margin in margins if _is_known(margin)]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)

    def y(margin: float) -> float:
        return _INSET + (_HEIGHT - 2 * _INSET) * (high - margin) / ((high - low) or 1.0)

    strokes: list[list[str]] = [[]]
    for epoch, margin in enumerate(margins):
        if not _is_known(margin):
            strokes.append([])
        else:
            x = _INSET + (_WIDTH - 2 * _INSET) * epoch / max(1, len(margins) - 1)
            strokes[-1].append(f"{x:.1f},{y(margin):.1f}")
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "zero": round(y(0.0), 1),
        "strokes": [" ".join(stroke) for stroke in strokes if stroke],
        "end": strokes[-1][-1].split(",") if strokes[-1] else None,
        "words": f"margin from {_number(known[0], '')} to {_number(known[-1], '')} in training",
    }
