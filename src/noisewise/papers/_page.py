"""The recipes as a page of the documentation: what each needs, what was chosen, what was misprinted, and ours beside theirs.

Everything on it comes from the recipes and the committed results, so that it cannot drift. This module must not train or read
run folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noisewise.papers._layout import as_printed, laid_out, number
from noisewise.papers._metrics import METRICS
from noisewise.papers._recipes import Cell, Recipe, available, get
from noisewise.papers._reproduce import Compared, results

_SAID = ("data", "model", "noise", "augment", "batch_size", "optimiser", "weight_decay", "schedule", "steps", "epochs")


def page() -> str:
    """Every recipe, paper by paper, in Markdown."""
    lines = [
        "# The papers' recipes",
        "",
        "Made from the recipes themselves. In tables of results the first number is ours, the second the paper's; a number alone is",
        "the paper's. **Bold** is off by more than twice the spread the paper prints, or by more than two points where it prints none.",
        "",
        "| number | what it is |",
        "|---|---|",
        *(
            f"| {name.replace('_', ' ')} | {metric.words}{f', in {metric.unit}' if metric.unit else ''} |"
            for name, metric in METRICS.items()
        ),
        "",
    ]
    held, paper = results(), None
    for recipe in map(get, available()):
        if recipe.paper != paper:
            paper = recipe.paper
            lines += [f"## {paper.title}", "", f"{paper.authors}. {paper.reference}.", ""]
        lines += _recipe(recipe, held.get(recipe.id))
    return "\n".join(lines)


def _recipe(recipe: Recipe, held: Mapping[str, Any] | None) -> Iterator[str]:
    yield from (f"### {recipe.id}", "", f"{recipe.caption}.", "")
    for sentence in filter(None, (recipe.nothing, recipe.waits, recipe.not_run)):
        yield from (sentence, "")
    if recipe.same_as is not None:
        yield from (f"The numbers of {recipe.same_as}.", "")
        return
    if recipe.runs:
        same = {
            name: recipe.runs[0][name] for name in _SAID if len({str(run.get(name)) for run in recipe.runs}) == 1 and name in recipe.runs[0]
        }
        yield from (f"{len(recipe.runs)} runs; all have " + ", ".join(f"{name} `{value}`" for name, value in same.items()) + ".", "")
    if recipe.losses is not None:
        yield from ("Drawn by `curves`: " + ", ".join(f"{words} `{loss}`" for words, loss in recipe.losses.items()) + ".", "")
    elif recipe.picture is not None:
        yield from (f"Drawn by `{recipe.picture}` from the runs.", "")
    for heading, sentences in (("Where the paper is silent:", recipe.chosen), ("Misprinted:", recipe.slips)):
        if sentences:
            yield from (heading, "", *(f"- {sentence}" for sentence in sentences), "")
    if held is not None:
        seeds = ", ".join(map(str, held["seeds"]))
        versions = ", ".join(f"{name} {', '.join(found)}" for name, found in held["versions"].items() if found)
        yield from (f"Run on {held['date']}: seeds {seeds}; {held['seconds'] / 60:.0f} minutes; {versions}.", "")
    yield from _table(_cells(recipe, held))


def _cells(recipe: Recipe, held: Mapping[str, Any] | None) -> list[Compared]:
    """The cells that are trained, with our numbers where there are any; results list them in the same order."""
    trained = [cell for cell in recipe.cells if cell.settings is not None]
    if held is None:
        return [_beside(cell, {}) for cell in trained]
    return [_beside(cell, ours) for cell, ours in zip(trained, held["cells"], strict=True)]


def _beside(cell: Cell, ours: Mapping[str, Any]) -> Compared:
    assert cell.settings is not None
    found = (ours.get("ours"), ours.get("spread"), ours.get("seeds", 0))
    return Compared(cell.words, cell.settings, cell.metric, cell.value, cell.deviation, *found)


def _table(cells: Sequence[Compared]) -> Iterator[str]:
    if not cells:
        return
    layout = laid_out(cells)
    yield "| " + " | ".join([*layout.differing, "", *(metric.replace("_", " ") for metric in layout.metrics)]) + " |"
    yield "|" + "---|" * (len(layout.differing) + 1 + len(layout.metrics))
    for key, row in layout.rows.items():
        numbers = (_number(row[metric]) if metric in row else "" for metric in layout.metrics)
        yield "| " + " | ".join([*(f"`{value}`" for value in key[:-1]), key[-1], *numbers]) + " |"
    yield ""


def _number(cell: Compared) -> str:
    theirs = as_printed(cell.theirs) + ("" if cell.deviation is None else f" ± {as_printed(cell.deviation)}")
    if cell.ours is None:
        return theirs
    ours = number(cell.ours, cell.metric) + ("" if cell.spread is None else f" ± {number(cell.spread, cell.metric)}")
    return f"**{ours}** / {theirs}" if cell.beyond else f"{ours} / {theirs}"
