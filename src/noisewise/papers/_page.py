"""The documentation page of all recipes: what each needs, what we chose, what is misprinted, and our numbers next to the papers'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from noisewise.papers._compared import Compared, compared
from noisewise.papers._identity import key
from noisewise.papers._layout import anchor, corrections, how_many, laid_out, ours, reasons, theirs
from noisewise.papers._metrics import METRICS
from noisewise.papers._recipes import Paper, Recipe, available, get
from noisewise.papers._results import Outcome, Results
from noisewise.papers._results import results as committed_results

_SHOWN = ("data", "model", "noise", "augment", "batch_size", "optimiser", "weight_decay", "schedule", "steps", "epochs")
_OURSELVES = "The authors of this package"
_VERSIONS = ("noisewise", "torch", "device", "precision")


def page(results: Results | None = None) -> str:
    """Every recipe, paper by paper, in Markdown; by default with the results that come with the package."""
    results, paper = results or committed_results(), None
    lines = [
        "# The papers' recipes",
        "",
        "This page is generated from the recipes. In tables of results the first number is ours, the second the paper's; a single",
        "number is the paper's. **Bold** numbers differ by more than twice the spread the paper prints, or by more than two points",
        "where it prints none; the reason is below the table. The page [What held here](claims.md) compares the papers' claims.",
        "",
        "| number | what it is |",
        "|---|---|",
        *(
            f"| {name.replace('_', ' ')} | {metric.words}{f', in {metric.unit}' if metric.unit else ''} |"
            for name, metric in METRICS.items()
        ),
        "",
    ]
    for recipe in map(get, available()):
        if recipe.paper != paper:
            paper = recipe.paper
            lines += [f"## {paper.title}", "", f"{paper.authors}. {paper.reference}.", "", _links(paper), ""]
        lines += _recipe(recipe, results)
    return "\n".join(lines)


def can_draw(recipe: Recipe, results: Results) -> bool:
    """Whether results are enough for the picture of a recipe."""
    return recipe.losses is not None or (recipe.picture is not None and any(runs_of(recipe, results)))


def runs_of(recipe: Recipe, results: Results) -> list[list[Outcome]]:
    """The outcomes of every run of a recipe that has results, a list over seeds each; those with margins for a figure of margins."""
    found = [results.of(settings) for settings in recipe.runs]
    if recipe.picture == "margins":
        found = [[outcome for outcome in outcomes if outcome.margins] for outcomes in found]
    return [outcomes for outcomes in found if outcomes]


def shows_margins(settings: Mapping[str, Any]) -> bool:
    """Whether a figure shows the margins of the run with these settings."""
    return key(settings) in _shown_margins()


@cache
def _shown_margins() -> frozenset[str]:
    return frozenset(key(run) for recipe in map(get, available()) if recipe.picture == "margins" for run in recipe.runs)


def picture_file(recipe: Recipe) -> str:
    """The path of the picture, relative to the page of recipes."""
    return f"figures/{recipe.id.replace('/', '-')}.svg"


def _links(paper: Paper) -> str:
    """Links to the recipes of a paper."""
    names = [recipe.id for recipe in map(get, available()) if recipe.paper == paper]
    return " · ".join(f"[{name.partition('/')[2]}](#{anchor(name)})" for name in names)


def _recipe(recipe: Recipe, results: Results) -> Iterator[str]:
    yield from (f"### {recipe.id}", "", f"{recipe.caption}.", "")
    for sentence in filter(None, (recipe.nothing, recipe.not_run)):
        yield from (sentence, "")
    if recipe.same_as is not None:
        yield from (f"The numbers of {recipe.same_as}.", "")
        return
    if recipe.runs:
        first = recipe.runs[0]
        same = {name: first[name] for name in _SHOWN if name in first and all(run.get(name) == first[name] for run in recipe.runs)}
        yield from (f"{_counted(len(recipe.runs))}; all have " + ", ".join(f"{name} `{value}`" for name, value in same.items()) + ".", "")
    if can_draw(recipe, results):
        yield from (f"![{recipe.words}]({picture_file(recipe)})", "")
    if recipe.losses is not None:
        yield from ("Drawn by `curves`: " + ", ".join(f"{words} `{loss}`" for words, loss in recipe.losses.items()) + ".", "")
    elif recipe.networks is not None:
        networks = ", ".join(f"`{model}` on `{data}`" for data, model in recipe.networks.items())
        yield from (f"Drawn by `noisewise reproduce {recipe.id}` from {networks}; needs the data sets and no training.", "")
    elif recipe.picture is not None:
        kept = ", here from the results" if can_draw(recipe, results) else ""
        yield from (f"Drawn by `{recipe.picture}` from the runs{kept}.", "")
    own = recipe.paper.authors == _OURSELVES
    yield from _listed("What we chose:" if own else "What we chose where the paper gives no details:", recipe.chosen)
    yield from _listed("Misprinted:", recipe.slips)
    yield from _how(recipe, results)
    cells = compared(recipe, results)
    yield from results_table(cells)
    run, printed = how_many(cells)
    if 0 < run < printed:
        yield from (f"{run} of the paper's {printed} numbers were run.", "")
    yield from _listed("Corrected before the second training:", corrections(cells, results))
    yield from _listed("Where our numbers differ, and why:", list(_reasons(recipe, cells)))


def _listed(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from (heading, "", *(f"- {sentence}" for sentence in sentences), "")


def _how(recipe: Recipe, results: Results) -> Iterator[str]:
    """How our runs were made: seeds, dates and versions."""
    runs = [run for outcomes in runs_of(recipe, results) for run in outcomes]
    if not runs:
        return
    dates = sorted({run.finished[:10] for run in runs})
    seeds = sorted({run.seed for run in runs})
    facts = [_counted(len(runs)), f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"]
    facts += [", ".join(f"{name} {', '.join(sorted({str(run.made_with[name]) for run in runs}))}" for name in _VERSIONS)]
    yield from (f"Run {'on' if len(dates) == 1 else 'from'} {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: {'; '.join(facts)}.", "")


def _counted(runs: int) -> str:
    return f"{runs} run{'s' if runs > 1 else ''}"


def results_table(cells: Sequence[Compared]) -> Iterator[str]:
    """Our numbers and the paper's as a Markdown table, a row for every run."""
    if not cells:
        return
    layout = laid_out(cells)
    yield "| " + " | ".join([*layout.differing, "", *(metric.replace("_", " ") for metric in layout.metrics)]) + " |"
    yield "|" + "---|" * (len(layout.differing) + 1 + len(layout.metrics))
    for (*settings, name), row in layout.rows.items():
        numbers = (_number(row[metric]) if metric in row else "" for metric in layout.metrics)
        yield "| " + " | ".join([*(f"`{value}`" for value in settings), name, *numbers]) + " |"
    yield ""


def _number(cell: Compared) -> str:
    """Our number and the paper's; a line may break only between them."""
    if cell.cell.value is None and cell.ours is not None:
        return ours(cell).replace(" ", "\N{NO-BREAK SPACE}")
    first = "" if cell.ours is None else f"**{ours(cell)}** / " if cell.beyond else f"{ours(cell)} / "
    return f"{first}{theirs(cell)}".replace(" ", "\N{NO-BREAK SPACE}").replace("/\N{NO-BREAK SPACE}", "/ ")


def _reasons(recipe: Recipe, cells: Sequence[Compared]) -> Iterator[str]:
    """The numbers that differ too much, grouped by reason; those without a known reason come last."""
    known = reasons(recipe, cells)
    unknown = known.pop(None, [])
    yield from (f"{'; '.join(differing)}: {why}" for why, differing in known.items() if why not in recipe.guesses)
    yield from (f"Not explained yet: {'; '.join(differing)}. {why}" for why, differing in known.items() if why in recipe.guesses)
    if unknown:
        yield f"Not explained yet: {'; '.join(unknown)}."
