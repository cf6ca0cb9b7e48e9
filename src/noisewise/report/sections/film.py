"""Histograms of the margins of every loss, epoch by epoch."""

from __future__ import annotations

from typing import Any, TypedDict

from noisewise.draw import Film
from noisewise.report._read import Task

LINK, ORDER = "Margins", 60


class EmphasisFacts(TypedDict):
    """The emphasis at some margins: one row of values, or one for every frame of the film."""

    margins: list[float]
    values: list[list[float]]


class FilmFacts(TypedDict):
    """Histograms of the margins of one run, epoch by epoch: counts[group][frame][bin], groups "clean" and "noisy", or "all"."""

    label: str
    edges: list[float]
    epochs: list[int]
    counts: dict[str, list[list[int]]]
    emphasis: EmphasisFacts | None


def task_facts(task: Task) -> dict[str, Any]:
    """The films of a task, one for every loss, under the key "films"."""
    films = {f"{label}{run.seed_words}": run.film(task.frames) for label, run in task.first.items()}
    return {"films": [_film(label, film) for label, film in films.items() if film is not None]}


def _film(label: str, film: Film) -> FilmFacts:
    return {
        "label": label,
        "edges": film.edges.tolist(),
        "epochs": list(film.epochs),
        "counts": {group: counts.tolist() for group, counts in film.counts.items()},
        "emphasis": None if film.emphasis is None else {"margins": film.margins.tolist(), "values": film.emphasis.tolist()},
    }
