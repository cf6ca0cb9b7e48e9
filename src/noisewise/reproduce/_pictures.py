"""Draw the figures of papers: curves of losses, or lines of runs, from their folders or from results.

Results have fewer points than folders, no emphasis over time, and margins only of runs that a figure shows them of, but they also exist
for runs on other machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noisewise import draw
from noisewise.papers import Outcome, Recipe, Results, runs_of
from noisewise.reproduce._start import margins_before_training
from noisewise.reproduce._sweeps import panels_of
from noisewise.train import Run


def picture(recipe: Recipe, results: Results, output: Path, runs: Sequence[Run] = ()) -> Path:
    """Draw the figure of a recipe.

    Args:
        recipe: a figure.
        results: our results.
        output: the file.
        runs: runs with folders. They are drawn unless the results have more runs.
    """
    if recipe.networks is not None:
        measured = {f"{data}, {model}": margins_before_training(data, model) for data, model in recipe.networks.items()}
        return draw.start(measured, output)
    if recipe.losses is not None:
        return draw.curves(list(recipe.losses.values()), output, classes=recipe.classes)
    if recipe.sweep is not None:
        return draw.sweep(panels_of(recipe, results), recipe.sweep["x"], output)
    outcomes = runs_of(recipe, results)
    from_folders = len(runs) >= sum(map(len, outcomes))
    if recipe.picture == "margins":
        return (
            draw.margins(runs, output)
            if from_folders
            else draw.films([(seeds[0].settings, as_film(seeds[0])) for seeds in outcomes], output)
        )
    if from_folders:
        return draw.dynamics(runs, output)
    return draw.curves_of_runs([as_curves(seeds) for seeds in outcomes], output)


def as_film(run: Outcome) -> draw.Film:
    """The margins of a run as a film."""
    edges, emphasis = np.array(run.margins["edges"]), run.margins["emphasis"]
    return draw.Film(
        loss=run.settings["loss"],
        edges=edges,
        epochs=tuple(run.margins["epochs"]),
        counts={group: np.array(run.margins[group]) for group in ("clean", "noisy", "all") if group in run.margins},
        margins=np.linspace(edges[0], edges[-1], 2 if emphasis is None else len(emphasis[0])),
        emphasis=None if emphasis is None else np.array(emphasis),
    )


def as_curves(seeds: Sequence[Outcome]) -> draw.RunCurves:
    """The curves of a run over iterations, for every seed."""
    return draw.RunCurves(seeds[0].settings, [{name: _over_steps(run, name) for name in _shown(run)} for run in seeds])


def _shown(run: Outcome) -> list[str]:
    """The measures to draw; accuracy by the given labels only where the true labels are not known."""
    return [name for name in draw.CURVES if name in run.curves and not (name == "fitting" and "validation" in run.curves)]


def _over_steps(run: Outcome, name: str) -> dict[int, float]:
    """A curve by iteration. All epochs have the same number of steps, except perhaps the last."""
    epochs = [int(epoch) for epoch in run.curves["epoch"] if epoch is not None]
    per_epoch = -(-run.steps // epochs[-1])
    curve = zip(epochs, run.curves[name], strict=True)
    return {min(epoch * per_epoch, run.steps): value for epoch, value in curve if value is not None}
