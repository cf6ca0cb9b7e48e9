"""Charts: the emphasis curves of the losses, the measures over the iterations, and histograms of margins epoch by epoch."""

from __future__ import annotations

from typing import Any

from noisewise.draw import Figure, Film, History, curves_figure, dynamics_figure, loss_curves
from noisewise.report._tasks import ReportRun, Task, averaged_runs

LINKS = {"emphasis": ("Emphasis", 40), "dynamics": ("Dynamics", 50), "film": ("Margins", 60)}


def task_facts(task: Task) -> dict[str, Any]:
    """The keys "curves", "curves_note", "dynamics" and "films"; a figure that cannot be drawn is None."""
    curves, note = _emphasis(list(task.first.values()))
    labelled = {label: [run.compared for run in averaged_runs(runs) if _has_curves(run)] for label, runs in task.runs_by_label.items()}
    films = {f"{label}{run.seed_words}": run.film(task.frames) for label, run in task.first.items()}
    return {
        "curves": curves,
        "curves_note": note,
        "dynamics": dynamics_figure(History(task.name, loss_curves(labelled))),
        "films": [_film(label, film) for label, film in films.items() if film is not None],
    }


def _emphasis(runs: list[ReportRun]) -> tuple[Figure | None, str | None]:
    """The figure of the losses that have a curve, and a note on the others."""
    drawn = [run for run in runs if run.known_loss is not None and run.known_loss.has_curve]
    others = dict.fromkeys(run.loss for run in runs if run not in drawn)
    whose = "its" if len(others) == 1 else "their"
    note = f"No curve for {', '.join(others)}: {whose} emphasis is not one function of p alone." if others else None
    classes = next((len(run.classes) for run in runs if len(run.classes) > 1), None)
    # A loss has the same colour here as in the dynamics; runs on uncorrected labels come first.
    colours: dict[str, int] = {}
    for index, run in sorted(enumerate(runs), key=lambda pair: pair[1].origin is not None):
        if run in drawn:
            colours.setdefault(run.spec, index)
    return curves_figure(list(colours), classes, list(colours.values())) if colours and classes is not None else None, note


def _has_curves(run: ReportRun) -> bool:
    """Whether a run has anything to draw; a damaged run is left out and gets a note."""
    return bool(run.attempt(lambda: loss_curves({run.name: [run.dynamics]})))


def _film(label: str, film: Film) -> dict[str, Any]:
    """Histograms of the margins of one run: counts[group][frame][bin]. The emphasis has one row of values, or one for each frame."""
    return {
        "label": label,
        "edges": film.edges.tolist(),
        "epochs": list(film.epochs),
        "counts": {group: counts.tolist() for group, counts in film.counts.items()},
        "emphasis": None if film.emphasis is None else {"margins": film.margins.tolist(), "values": film.emphasis.tolist()},
    }
