"""The emphasis curves of the losses."""

from __future__ import annotations

from typing import Any

from noisewise.draw import curves_figure
from noisewise.losses import MarginLoss
from noisewise.report._read import Task

LINK, ORDER = "Emphasis", 40


def task_facts(task: Task) -> dict[str, Any]:
    """The figure of the losses that have a curve, under the key "curves", and a note on the others, under "curves_note"."""
    runs = list(task.first.values())
    drawn = [run for run in runs if isinstance(run.known_loss, MarginLoss) and not run.known_loss.depends_on_batch]
    others = dict.fromkeys(run.loss for run in runs if run not in drawn)
    whose = "its" if len(others) == 1 else "their"
    note = f"No curve for {', '.join(others)}: {whose} pull is not a function of p alone." if others else None
    classes = next((len(run.classes) for run in runs if len(run.classes) > 1), None)
    # A curve has the colour that its loss has in the dynamics; runs on the labels as given come first.
    places: dict[str, int] = {}
    for place, run in sorted(enumerate(runs), key=lambda pair: pair[1].origin is not None):
        if run in drawn:
            places.setdefault(run.spec, place)
    figure = curves_figure(list(places), classes, list(places.values())) if places and classes is not None else None
    return {"curves": figure, "curves_note": note}
