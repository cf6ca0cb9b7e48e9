"""The review page: accept or reject suggestions one by one with the keyboard, and export the decisions.

It is one HTML file that opens offline and needs no network. The browser keeps the decisions until they are exported. All text from the
data is inserted by script as text, never as markup.
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
_POINTS = 60  # of a margin history


def review(
    audit_or_run: Audit | Dynamics | str | os.PathLike[str],
    output: str | os.PathLike[str] = "review.html",
    *,
    limit: int = 200,
    data: Any = None,
) -> Path:
    """Write a page on which a person accepts or rejects the suggestions of an audit.

    Args:
        audit_or_run: the audit; or a run, its folder or its dynamics, which is audited first.
        output: the file to write; it ends in .html.
        limit: the number of suggestions, the most doubtful first.
        data: the training data, to show the examples; by default the source that the run names. If it is gone, examples are not shown.

    Returns:
        The file that was written. `read_decisions` reads the decisions it exports, and `correct` applies them.
    """
    target = check_output(output, "review", [".html"])
    limit, result = as_int("limit", "review", limit, 1), audited(audit_or_run, "review")
    doubtful = result.order[result.is_issue[result.order]][:limit]
    if not len(doubtful):
        raise InputError(f"There is nothing to review: no label of {str(result.dynamics.folder)!r} is doubtful.")
    examples = _examples(result, data, doubtful)
    page = _page(result, {"key": _key(result, doubtful), "cards": _cards(result, doubtful, examples)})
    with written_output(target) as part:
        part.write_text(page, encoding="utf-8")
    return target


def _examples(result: Audit, data: Any, positions: Any) -> Dataset | None:
    """The examples at some positions; None if no data was given and the source of the run is gone."""
    try:
        return examples_of(result.dynamics.record, data, places=positions)
    except InputError:
        if data is not None:
            raise
        return None


def _key(result: Audit, doubtful: Any) -> str:
    """The key of the decisions in the browser, the same for the same suggestions."""
    content = [result.index[doubtful].tolist(), result.given[doubtful].tolist(), result.suggested[doubtful].tolist()]
    return "noisewise-review-" + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _cards(result: Audit, doubtful: Any, examples: Dataset | None) -> list[dict[str, Any]]:
    names, histories = result.dynamics.record.classes, result.trajectories(doubtful, moments=_POINTS)
    return [
        {
            "index": int(result.index[index]),
            "id": result.ids[index],
            "given": names[result.given[index]],
            "suggested": names[result.suggested[index]],
            "votes": round(float(result.suggestion_probability[index]), 4),
            "chance": round(float(1 - result.quality[index]), 4),
            "margins": [None if np.isnan(value) else round(float(value), 3) for value in histories[row]],
            "image": None if examples is None else picture(examples, row, side=_SIDE),
            "values": [] if examples is None else features(examples, row),
        }
        for row, index in enumerate(doubtful.tolist())
    ]


def _page(result: Audit, content: dict[str, Any]) -> str:
    script = _resource("noisewise.correct", "review.js")
    style = _resource("noisewise.report", "page.css") + _resource("noisewise.correct", "review.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = len(content["cards"])
    every = f"These are all {shown:,} labels that look wrong."
    some = f"These are the {shown:,} most doubtful of the {result.count:,} labels that look wrong; --limit {result.count} shows all."
    parts = {
        "POLICY": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
        "TITLE": html.escape(f"Review of {Path(result.dynamics.folder).name}"),
        "STYLE": style,
        "SHOWN": every if shown == result.count else some,
        "COMMAND": html.escape(f"noisewise correct {shlex.quote(str(result.dynamics.folder))} --decisions decisions.json"),
        "CONTENT": json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"),
        "SCRIPT": script,
    }
    return re.sub(r"{{ (\w+) }}", lambda name: parts[name[1]], _resource("noisewise.correct", "review.html"))


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
