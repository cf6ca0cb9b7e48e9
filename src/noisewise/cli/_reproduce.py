"""The command that runs the papers' tables and figures again, and the list of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from noisewise.cli._app import AsJson, app, print_json, resumable, say, spoken_warnings
from noisewise.cli._compare import shown
from noisewise.errors import must

if TYPE_CHECKING:
    from noisewise.papers import Compared, Recipe, Reproduction

_LEGEND = (
    "Ours (± over seeds), then the paper's, then the difference. ! marks an accuracy that is off by more than twice the spread the paper "
    "prints, or by more than two points where it prints none."
)


@app.command()
def reproduce(
    recipe: Annotated[
        str | None, typer.Argument(help="A table or figure, like imae/table6; without one, all are listed.", show_default=False)
    ] = None,
    only: Annotated[
        str | None, typer.Option(help='The runs to do, like "loss=imae,noise=symmetric(0.4)"; by default all.', show_default=False)
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, like 0,1,2; by default as many as the paper has.", metavar="0,1,…", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only try that it works: a few examples and steps, on the CPU.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where everything goes; by default reproduced, or reproduced-quick.", show_default=False),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="How many runs at a time; by default one per processor, or eight on a GPU.", min=1, show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a table or figure of the papers again: ours beside theirs. The same command again redoes nothing that is finished."""
    from noisewise import papers

    if recipe is None:
        _list(as_json)
        return
    asked = papers.get(recipe)
    plan = papers.plan(
        asked, only=only, seeds=_seeds(seeds), quick=quick, output=output or Path("reproduced-quick" if quick else "reproduced")
    )
    for sentence in filter(None, (asked.nothing, asked.waits, asked.not_run)):
        say(sentence)
    if asked.nothing:
        return
    with resumable(), spoken_warnings(), shown(plan.rows) as watch:
        done = papers.reproduce(plan, jobs=jobs, watch=watch)
    if as_json:
        content = json.loads(done.files["results"].read_text(encoding="utf-8")) if "results" in done.files else {}
        print_json({**content, "files": {what: str(file) for what, file in done.files.items()}})
        return
    _show(done)
    if quick and done.runs:
        say("this was a quick try: a few examples and steps. Its numbers say nothing about the paper's.")


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise must("seeds", "reproduce", "whole numbers, such as 0,1,2", text) from None


def _list(as_json: bool) -> None:
    from noisewise import papers

    held = papers.results()
    rows = [(recipe, _status(recipe, held)) for recipe in map(papers.get, papers.available())]
    if as_json:
        print_json([{"recipe": one.id, "caption": one.caption, "runs": len(one.runs), "status": status} for one, status in rows])
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("table or figure", "what it shows", "runs", "status"):
        table.add_column(column, overflow="fold", no_wrap=column == "table or figure", justify="right" if column == "runs" else "left")
    for one, status in rows:
        table.add_row(Text(one.id), Text(one.caption), str(len(one.runs) or "–"), Text(status))
    Console().print(table, highlight=False)


def _status(recipe: Recipe, held: Mapping[str, Any]) -> str:
    if recipe.id in held:
        cells = held[recipe.id]["cells"]
        return f"results of {held[recipe.id]['date']}: {sum(cell['ours'] is not None for cell in cells)} of {len(cells)} numbers"
    if recipe.nothing:
        return "nothing to run"
    if recipe.same_as:
        return f"the numbers of {recipe.same_as}"
    if not recipe.runs:
        return "follows from the losses"
    return "not run: " + recipe.not_run.partition(":")[0] if recipe.not_run else "no results yet"


def _show(done: Reproduction) -> None:
    console = Console()
    if done.cells:
        console.print(_table(done), highlight=False)
        console.print(Text(_LEGEND, style="dim italic"))
        left = sum(cell.ours is None and cell.theirs is not None for cell in done.cells)
        if left:
            console.print(f"{left} of the paper's numbers have none of ours beside them yet.", highlight=False)
    if done.runs:
        rate = f", {done.images / done.seconds:,.0f} images/s" if done.seconds else ""
        console.print(f"{len(done.runs)} runs, {_time(done.seconds)}{rate}", highlight=False)
    for what, file in done.files.items():
        console.print(f"{what}: {file}", highlight=False, soft_wrap=True)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def _table(done: Reproduction) -> Table:
    from noisewise.papers._layout import laid_out

    layout = laid_out(done.cells)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text(f"{done.recipe.words}: {done.recipe.caption}"), title_justify="left")
    for column in (*layout.differing, ""):
        table.add_column(column, overflow="fold")
    for column in layout.metrics:
        table.add_column(column.replace("_", "\n"), justify="right", vertical="bottom")
    run = {key: cells for key, cells in layout.rows.items() if any(cell.ours is not None for cell in cells.values())}
    for key, cells in (run or layout.rows).items():
        table.add_row(*map(Text, key), *(_cell(cells.get(metric)) for metric in layout.metrics))
    return table


def _cell(cell: Compared | None) -> Text:
    from noisewise.papers._layout import as_printed, number

    if cell is None:
        return Text("")
    spread = "" if cell.spread is None else f" ± {number(cell.spread, cell.metric)}"
    difference = "" if cell.difference is None else f" {number(cell.difference, cell.metric, '+')}"
    shown = f"{number(cell.ours, cell.metric)}{spread} | {as_printed(cell.theirs)}{difference}{' !' if cell.beyond else ''}"
    return Text(shown, style="bold" if cell.beyond else "")
