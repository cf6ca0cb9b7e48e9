"""The review page as a file: it opens offline, needs no server, and exports the decisions of the person who opened it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from noisewise.audit import Audit
from noisewise.correct._cards import Cards
from noisewise.correct._correction import audited
from noisewise.correct._page import page
from noisewise.dynamics import Dynamics
from noisewise.output import check_output, written_output
from noisewise.spec import as_int

_SIDE = 256  # of a picture, in pixels


def review(
    audit_or_run: Audit | Dynamics | str | os.PathLike[str],
    output: str | os.PathLike[str] = "review.html",
    *,
    limit: int = 200,
    data: Any = None,
) -> Path:
    """Write a page on which a person decides on the doubtful labels of an audit.

    Args:
        audit_or_run: the audit; or a run, its folder or its dynamics, which is audited first.
        output: the file to write; it ends in .html.
        limit: the number of labels, the most doubtful first.
        data: the training data, to show the examples; by default the source that the run names. If it is gone, examples are not shown.

    Returns:
        The file that was written. `read_decisions` reads the decisions it exports, and `correct` applies them.
    """
    target = check_output(output, "review", [".html"])
    limit = as_int("limit", "review", limit, 1)
    cards = Cards(audited(audit_or_run, "review"), limit, data)
    details = cards.details(range(len(cards)))
    for number, card in enumerate(details):
        card["image"] = cards.picture(number, side=_SIDE)
    with written_output(target) as part:
        part.write_text(page(cards, details)[0], encoding="utf-8")
    return target
