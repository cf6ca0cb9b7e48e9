"""Read the outcome of a finished run from its folder."""

from __future__ import annotations

import datetime
from typing import Any

import torch

from noisewise import draw
from noisewise.arrays import subsample
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError
from noisewise.papers import RETRAINED, Outcome, decisive
from noisewise.reproduce import _again, _retrieved
from noisewise.train import Run

_CURVES = ("test", "clean_subset", "noisy_subset", "fitting", "validation", "snr", "alpha")
_MOST_POINTS = 100
_FEW_CLASSES = 10
_VERSIONS = ("noisewise", "python", "torch", "numpy", "device")


def outcome(run: Run, *, margins: bool = False) -> Outcome:
    """The outcome of a finished run; with `margins`, with histograms of its margins."""
    for name in ("metrics.jsonl", "model.safetensors"):
        if not (run.path / name).exists():
            raise InputError(f"The run in {str(run.path)!r} is finished, but {name} is missing. Copy the folder again, or delete it.")
    dynamics, settings, provenance = run.dynamics, run.settings, run.provenance
    numbers: dict[str, float | None] = {"best": dynamics.best, "final": dynamics.final}
    numbers |= {name: next(reversed(_curve(dynamics, name).values()), None) for name in (*_CURVES[1:], "hybrid")}
    numbers["unlearned"] = len(dynamics.unlearned)
    numbers |= _again.numbers(run.path) | _retrieved.numbers(run.path)
    epochs = subsample(tuple(dynamics.fitting), _MOST_POINTS)
    curves = {name: [_short(curve.get(epoch)) for epoch in epochs] for name in _CURVES if (curve := _curve(dynamics, name))}
    half = settings.half(torch.device("cpu" if provenance["device"] == "cpu" else "cuda"))
    last = _again.second(run.path) if RETRAINED in numbers else run.path
    ended = datetime.datetime.fromtimestamp((last / "model.safetensors").stat().st_mtime, datetime.UTC)
    return Outcome(
        settings=decisive(settings.as_json()),
        seed=settings.seed,
        numbers=numbers,
        curves={"epoch": list(epochs), **curves},
        steps=run.metrics[-1]["step"],
        finished=ended.isoformat(timespec="seconds"),
        made_with={
            **{name: provenance[name] for name in _VERSIONS},
            "precision": "bfloat16" if half else "float32",
            "compile": settings.compile,
        },
        margins=_margins(draw.film_of(dynamics)) if margins else {},
        classes=_classes(dynamics),
    )


def _classes(dynamics: Dynamics) -> dict[str, float | None]:
    accuracies = dynamics.class_accuracies() or {}
    return {name: _short(share) for name, share in accuracies.items()} if len(accuracies) <= _FEW_CLASSES else {}


def _margins(film: draw.Film) -> dict[str, Any]:
    counts = {group: counts.tolist() for group, counts in film.counts.items()}
    emphasis = None if film.emphasis is None else [[_short(value) for value in row] for row in film.emphasis.tolist()]
    return {"epochs": list(film.epochs), "edges": film.edges.tolist(), **counts, "emphasis": emphasis}


def _curve(dynamics: Dynamics, name: str) -> dict[int, float]:
    curve: dict[int, float] = getattr(dynamics, "true_label_accuracy" if name == "validation" else name)  # the GR paper's word
    return curve


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")
