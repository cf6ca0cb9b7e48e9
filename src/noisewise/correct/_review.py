"""The review page: suggestions one after the other, to accept or reject with the keyboard, and to export.

One HTML file that opens offline and asks the network for nothing. Decisions are kept in the browser until they are exported.
What is shown stands in the page as data and is put on it letter by letter. This module must not know how doubt is measured.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.audit import Audit
from noisewise.correct._correction import audited
from noisewise.data import Dataset, features, picture
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError
from noisewise.output import check_output, written_output
from noisewise.runs import examples_of
from noisewise.spec import as_int

_SIDE = 160  # of a picture, in pixels
_MOMENTS = 60  # of a history of margins


def review(
    found: Audit | Dynamics | str | os.PathLike[str],
    output: str | os.PathLike[str] = "review.html",
    *,
    limit: int = 200,
    data: Any = None,
) -> Path:
    """Write a page on which a person accepts or rejects the suggestions of an audit.

    Args:
        found: the audit; or a run, its folder or its dynamics, which is audited first.
        output: the file to write; it ends in .html.
        limit: how many suggestions, the most doubtful first.
        data: what the run was trained on, to show its examples; by default they are looked for where the run says, and left out
            if they are not there.

    Returns:
        The file. `read_decisions` reads what it exports, and `correct` applies that.
    """
    target = check_output(output, "review", [".html"])
    limit, found = as_int("limit", "review", limit, 1), audited(found, "review")
    doubtful = found.order[found.is_issue[found.order]][:limit]
    if not len(doubtful):
        raise InputError(f"There is nothing to review: no label of {str(found.dynamics.folder)!r} is doubtful.")
    examples = _examples(found, data, doubtful)
    page = _page(found, {"key": _key(found, doubtful), "cards": _cards(found, doubtful, examples)})
    with written_output(target) as part:
        part.write_text(page, encoding="utf-8")
    return target


def _examples(found: Audit, data: Any, places: Any) -> Dataset | None:
    """The examples at some positions; None where nobody gave them and they are not where the run says."""
    try:
        return examples_of(found.dynamics.record, data, places=places)
    except InputError:
        if data is not None:
            raise
        return None


def _key(found: Audit, doubtful: Any) -> str:
    """What decisions are kept under: the same for the same suggestions."""
    content = [found.index[doubtful].tolist(), found.given[doubtful].tolist(), found.suggested[doubtful].tolist()]
    return "noisewise-review-" + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _cards(found: Audit, doubtful: Any, examples: Dataset | None) -> list[dict[str, Any]]:
    names, histories = found.dynamics.record.classes, found.trajectories(doubtful, moments=_MOMENTS)
    return [
        {
            "index": int(found.index[place]),
            "id": found.ids[place],
            "given": names[found.given[place]],
            "suggested": names[found.suggested[place]],
            "votes": round(float(found.suggestion_probability[place]), 4),
            "chance": round(float(1 - found.quality[place]), 4),
            "margins": [None if np.isnan(value) else round(float(value), 3) for value in histories[row]],
            "image": None if examples is None else picture(examples, row, side=_SIDE),
            "values": [] if examples is None else features(examples, row),
        }
        for row, place in enumerate(doubtful.tolist())
    ]


def _page(found: Audit, content: dict[str, Any]) -> str:
    script = _beside("noisewise.correct", "review.js")
    style = _beside("noisewise.report", "page.css") + _beside("noisewise.correct", "review.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = len(content["cards"])
    every = f"These are all {shown:,} labels that look wrong."
    some = f"These are the {shown:,} most doubtful of the {found.count:,} labels that look wrong; --limit {found.count} shows all."
    parts = {
        "POLICY": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
        "TITLE": html.escape(f"Review of {Path(found.dynamics.folder).name}"),
        "STYLE": style,
        "SHOWN": every if shown == found.count else some,
        "COMMAND": html.escape(f"noisewise correct {shlex.quote(str(found.dynamics.folder))} --decisions decisions.json"),
        "CONTENT": json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"),
        "SCRIPT": script,
    }
    return re.sub(r"{{ (\w+) }}", lambda place: parts[place[1]], _beside("noisewise.correct", "review.html"))


def _beside(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
