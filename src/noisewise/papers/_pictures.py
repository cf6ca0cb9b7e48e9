"""A figure of a paper as a picture: curves of losses, or what happened in runs, from their folders or from what results keep of them.

Results have fewer points than folders, and neither margins nor emphasis, but can be of runs whose folders are elsewhere. This module
must not train, nor know how lines are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from noisewise import draw, train
from noisewise.draw._history import MEASURES, History, alike, by_task, labels, line, task_of
from noisewise.papers._plan import as_trained
from noisewise.papers._recipes import Recipe
from noisewise.papers._results import Outcome, Results


def can_draw(recipe: Recipe, found: Results, *, quick: bool = False) -> bool:
    """Whether results are enough for the picture of a recipe."""
    return recipe.losses is not None or (recipe.picture == "dynamics" and any(_came(recipe, found, quick)))


def picture_file(recipe: Recipe) -> str:
    """Where the picture lies, seen from the page of recipes."""
    return f"figures/{recipe.id.replace('/', '-')}.svg"


def picture(recipe: Recipe, found: Results, output: Path, runs: Sequence[train.Run] = (), *, quick: bool = False) -> Path:
    """Draw the figure that a recipe is.

    Args:
        recipe: one that `can_draw`, or whose runs are given.
        found: results.
        output: the file.
        runs: those whose folders are there. They are drawn unless results have more of them.
        quick: whether to draw runs of the size that only shows that all works.

    Returns:
        The file that was written.
    """
    if recipe.losses is not None:
        return draw.curves(list(recipe.losses.values()), output, classes=recipe.classes)
    if recipe.picture == "margins":
        return draw.margins(runs, output)
    if len(runs) >= sum(map(len, _came(recipe, found, quick))):
        return draw.dynamics(runs, output)
    from noisewise.draw._figure import write_dynamics

    file, came = draw.check_figure(output), _came(recipe, found, quick)
    parts = alike({words: _history(part) for words, part in by_task(came, _settings_of).items()})
    write_dynamics(task_of(list(map(_settings_of, came))), list(parts.items()), file)
    return file


def _came(recipe: Recipe, found: Results, quick: bool) -> list[list[Outcome]]:
    """What the runs of a recipe that have results came to, for every seed."""
    return [outcomes for settings in recipe.runs if (outcomes := found.of(as_trained(settings, quick)))]


def _history(came: Sequence[Sequence[Outcome]]) -> History:
    """A line for what came of every run, the mean over its seeds."""
    settings, lines = list(map(_settings_of, came)), []
    for place, (label, outcomes) in enumerate(zip(labels(settings), came, strict=True)):
        curves = {name: [_over_steps(one, name) for one in outcomes] for name in _shown(outcomes[0])}
        lines.append(line(place, label, len(outcomes), curves))
    return History(task_of(settings), tuple(lines))


def _settings_of(outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    return outcomes[0].settings


def _shown(run: Outcome) -> list[str]:
    """What pictures of runs show, of what results hold; as it was labelled, only a training set whose true labels are not known."""
    return [name for name in MEASURES if name in run.curves and not (name == "fitting" and "validation" in run.curves)]


def _over_steps(run: Outcome, name: str) -> dict[int, float]:
    """A curve by iteration: all epochs but the last are as long as each other."""
    epochs = [int(epoch) for epoch in run.curves["epoch"] if epoch is not None]
    long = -(-run.steps // epochs[-1])
    curve = zip(epochs, run.curves[name], strict=True)
    return {min(epoch * long, run.steps): value for epoch, value in curve if value is not None}
