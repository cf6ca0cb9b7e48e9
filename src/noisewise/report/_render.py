"""The report as one HTML page: facts in, text out.

The page carries its styles, script, charts and numbers, and asks the network for nothing: its own security policy forbids that, and
forbids every script but the three written into it. Whatever the facts say is shown letter by letter. This module must not know
where facts come from.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, TypeGuard

from noisewise.draw import as_json, as_text, bundle
from noisewise.report._facts import Facts, Group, RunFacts
from noisewise.report.sections import SECTIONS
from noisewise.report.sections.doubt import Example

_TEMPLATES = ("hovertemplate", "texttemplate")  # the strings of a figure that are markup by intent
_WIDE, _HIGH = 120.0, 32.0  # of a sparkline
_SMALL = 64  # pixels across, up to which an image is shown pixel by pixel
_PNG = "data:image/png;base64,"


def render(facts: Facts) -> str:
    """Write facts as one self-contained HTML page.

    Args:
        facts: what the page shows.

    Returns:
        The page, which works opened from a file, without a network, and as far as it goes without scripts.

    Example:
        >>> page = render({"title": "<b>", "made": "today", "counts": "no runs", "verdict": [], "measures": [],
        ...                "groups": [], "runs": [], "broken": [], "tasks": []})
        >>> "<h1>&lt;b&gt;</h1>" in page
        True
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_beside), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "chance": _chance,
        "classes": _classes,
        "field_names": _field_names,
        "fingerprint": _fingerprint,
        "figure": lambda figure: Markup(as_json(_spelled(figure))),
        "json": lambda data: Markup(as_json(data)),
        "number": _number,
        "pixels": _has_few_pixels,
        "sortable": _first_number,
        "sparkline": _sparkline,
        "unfinished": _unfinished,
    }
    names = [(section.__name__.rpartition(".")[2], section.LINK) for section in SECTIONS if _is_shown(section, facts)]
    sections = [{"name": name, "link": link, "template": f"sections/{name}.html"} for name, link in names]
    page = environment.get_template("page.html").render(
        facts, sections=sections, style=Markup(_beside("page.css")), script=Markup(_beside("page.js")), plotly=Markup(bundle())
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # a file name may hold bytes that are no letters


def _is_shown(section: Any, facts: Facts) -> bool:
    return not hasattr(section, "is_shown") or bool(section.is_shown(facts))


def _beside(name: str) -> str:
    return resources.files("noisewise.report").joinpath(name).read_text(encoding="utf-8")


def _fingerprint(script: str) -> str:
    """What the security policy knows a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _spelled(figure: Any) -> Any:
    """A figure whose words plotly shows letter by letter, whether or not they were made so before."""
    if isinstance(figure, dict):
        return {key: value if key in _TEMPLATES else _spelled(value) for key, value in figure.items()}
    if isinstance(figure, list | tuple):
        return [_spelled(value) for value in figure]
    return as_text(html.unescape(figure)) if isinstance(figure, str) else figure


def _number(value: float, unit: str) -> str:
    """A measure as the table shows it; shares as percent, without the sign.

    Example:
        >>> _number(0.8434, "%"), _number(1.2345, ""), _number(-0.5, "")
        ('84.3', '1.23', '−0.50')
    """
    text = f"{100 * value:.1f}" if unit == "%" else f"{value:.2f}" if abs(value) < 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def _first_number(text: str) -> str:
    """What a printed result is sorted by; nothing where it holds no number.

    Example:
        >>> _first_number("84.0 ± 0.3"), _first_number("not given")
        ('84.0', '')
    """
    found = re.search(r"-?\d+(\.\d+)?", text.replace("−", "-"))
    return found[0] if found else ""


def _chance(share: float) -> str:
    """A chance in words that never claim certainty.

    Example:
        >>> _chance(0.934), _chance(0.9991), _chance(0.001)
        ('93 %', '> 99 %', '< 1 %')
    """
    return "> 99 %" if share > 0.99 else "< 1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")


def _unfinished(group: Group, runs: Iterable[RunFacts]) -> str:
    """What an average owes its reader when some of its runs did not finish."""
    states = [run["state"] for run in runs if (run["task"], run["loss"]) == (group["task"], group["loss"])]
    missing = sum(state != "finished" for state in states)
    return f"{missing} of {len(states)} runs not finished" if missing else ""


def _classes(examples: Iterable[Example]) -> list[str]:
    """The classes examples can be filtered by."""
    return sorted({name for example in examples for name in (example["given"], example["suggested"])})


def _field_names(examples: Iterable[Example]) -> list[str]:
    """The columns that hold all fields of the examples, in the order they first come up."""
    return list(dict.fromkeys(name for example in examples for name, _ in example["fields"]))


def _has_few_pixels(image: str) -> bool:
    """Whether an image is so small that smoothing it would only blur it; what is no PNG is a photograph."""
    head = base64.b64decode(image.removeprefix(_PNG)[:32]) if image.startswith(_PNG) else b""
    return 0 < int.from_bytes(head[16:20], "big") <= _SMALL


def _is_known(margin: float | None) -> TypeGuard[float]:
    """Whether an example was seen in an epoch."""
    return margin is not None and math.isfinite(margin)


def _sparkline(margins: Sequence[float | None]) -> dict[str, Any] | None:
    """A margin's history as the strokes of a small drawing, its zero line, and the same in words; None without a history.

    Example:
        >>> drawn = _sparkline([-1.0, None, 1.0, 3.0])
        >>> drawn["strokes"], drawn["zero"], drawn["words"]
        (['2.0,30.0', '79.3,16.0 118.0,2.0'], 23.0, 'margin from −1.00 to 3.00 in training')
    """
    known = [margin for margin in margins if _is_known(margin)]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)
    inset = 2.0

    def up(margin: float) -> float:
        return inset + (_HIGH - 2 * inset) * (high - margin) / ((high - low) or 1.0)

    strokes: list[list[str]] = [[]]
    for place, margin in enumerate(margins):
        if not _is_known(margin):
            strokes.append([])
        else:
            across = inset + (_WIDE - 2 * inset) * place / max(1, len(margins) - 1)
            strokes[-1].append(f"{across:.1f},{up(margin):.1f}")
    return {
        "wide": _WIDE,
        "high": _HIGH,
        "zero": round(up(0.0), 1),
        "strokes": [" ".join(stroke) for stroke in strokes if stroke],
        "end": strokes[-1][-1].split(",") if strokes[-1] else None,
        "words": f"margin from {_number(known[0], '')} to {_number(known[-1], '')} in training",  # not every epoch is among them
    }
