"""The recipes as a page of the documentation: what each needs, what was chosen, what was misprinted, and ours beside theirs.

Everything on it comes from the recipes and the committed results, so that it cannot drift. This module must not train or read
run folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noisewise.papers._compared import Compared, compared
from noisewise.papers._layout import anchor, corrections, how_many, laid_out, ours, reasons, spent, theirs, took
from noisewise.papers._metrics import METRICS
from noisewise.papers._pictures import can_draw, picture_file
from noisewise.papers._recipes import Paper, Recipe, available, get
from noisewise.papers._results import Results, results

_SAID = ("data", "model", "noise", "augment", "batch_size", "optimiser", "weight_decay", "schedule", "steps", "epochs")
_VERSIONS = ("noisewise", "torch", "device", "precision")


def page(found: Results | None = None) -> str:
    """Every recipe, paper by paper, in Markdown.

    Args:
        found: our results; by default the committed ones.
    """
    found, paper = found or results(), None
    lines = [
        "# The papers' recipes",
        "",
        "Made from the recipes themselves. In tables of results the first number is ours, the second the paper's; a number alone is",
        "the paper's. **Bold** is off by more than twice the spread the paper prints, or by more than two points where it prints none;",
        "below the table stands why. What the numbers say together is on the page of [what held here](claims.md).",
        "",
        f"All results together: {spent(found.portions)}." if found.portions else "There are no results yet.",
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
        lines += _recipe(recipe, found)
    return "\n".join(lines)


def _links(paper: Paper) -> str:
    """The recipes of a paper, each leading to its place on the page."""
    mine = [recipe.id for recipe in map(get, available()) if recipe.paper == paper]
    return " · ".join(f"[{name.partition('/')[2]}](#{anchor(name)})" for name in mine)


def _recipe(recipe: Recipe, found: Results) -> Iterator[str]:
    yield from (f"### {recipe.id}", "", f"{recipe.caption}.", "")
    for sentence in filter(None, (recipe.nothing, recipe.not_run)):
        yield from (sentence, "")
    if recipe.same_as is not None:
        yield from (f"The numbers of {recipe.same_as}.", "")
        return
    if recipe.runs:
        same = {
            name: recipe.runs[0][name] for name in _SAID if len({str(run.get(name)) for run in recipe.runs}) == 1 and name in recipe.runs[0]
        }
        yield from (f"{_counted(len(recipe.runs))}; all have " + ", ".join(f"{name} `{value}`" for name, value in same.items()) + ".", "")
    if can_draw(recipe, found):
        yield from (f"![{recipe.words}]({picture_file(recipe)})", "")
    if recipe.losses is not None:
        yield from ("Drawn by `curves`: " + ", ".join(f"{words} `{loss}`" for words, loss in recipe.losses.items()) + ".", "")
    elif recipe.picture is not None:
        kept = ", here from what results keep of them" if can_draw(recipe, found) else ""
        yield from (f"Drawn by `{recipe.picture}` from the runs{kept}.", "")
    yield from _listed("Where the paper is silent:", recipe.chosen)
    yield from _listed("Misprinted:", recipe.slips)
    yield from _how(recipe, found)
    cells = compared(recipe, found)
    yield from _table(cells)
    run, printed = how_many(cells)
    if 0 < run < printed:
        yield from (f"Run were {run} of the paper's {printed} numbers.", "")
    yield from _listed("Corrected before the second training:", corrections(cells, found))
    yield from _listed("Where ours are off, and why:", list(_reasons(recipe, cells)))


def _listed(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from (heading, "", *(f"- {sentence}" for sentence in sentences), "")


def _how(recipe: Recipe, found: Results) -> Iterator[str]:
    """How our runs were made: seeds, dates, time and versions."""
    runs = [run for settings in recipe.runs for run in found.of(settings)]
    if not runs:
        return
    dates = sorted({run.finished[:10] for run in runs})
    seeds = sorted({run.seed for run in runs})
    said = [_counted(len(runs)), f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}", took(recipe, found)]
    said += [", ".join(f"{name} {', '.join(sorted({str(run.made_with[name]) for run in runs}))}" for name in _VERSIONS)]
    yield from (
        f"Run {'on' if len(dates) == 1 else 'from'} {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: {'; '.join(filter(None, said))}.",
        "",
    )


def _counted(runs: int) -> str:
    return f"{runs} run{'s' if runs > 1 else ''}"


def _table(cells: Sequence[Compared]) -> Iterator[str]:
    if not cells:
        return
    layout = laid_out(cells)
    yield "| " + " | ".join([*layout.differing, "", *(metric.replace("_", " ") for metric in layout.metrics)]) + " |"
    yield "|" + "---|" * (len(layout.differing) + 1 + len(layout.metrics))
    for place, row in layout.rows.items():
        numbers = (_number(row[metric]) if metric in row else "" for metric in layout.metrics)
        yield "| " + " | ".join([*(f"`{value}`" for value in place[:-1]), place[-1], *numbers]) + " |"
    yield ""


def _number(one: Compared) -> str:
    """Ours and theirs: a line may end between them, where a table is too wide for its page, and nowhere else."""
    return _parted(one).replace(" ", "\N{NO-BREAK SPACE}").replace("/\N{NO-BREAK SPACE}", "/ ")


def _parted(one: Compared) -> str:
    if one.ours is None:
        return theirs(one)
    return f"**{ours(one)}** / {theirs(one)}" if one.beyond else f"{ours(one)} / {theirs(one)}"


def _reasons(recipe: Recipe, cells: Sequence[Compared]) -> Iterator[str]:
    """The numbers that are off, together where they have one reason; those without any come last."""
    known = reasons(recipe, cells)
    unknown = known.pop(None, [])
    yield from (f"{'; '.join(told)}: {why}" for why, told in known.items())
    if unknown:
        yield f"Not explained yet: {'; '.join(unknown)}."
