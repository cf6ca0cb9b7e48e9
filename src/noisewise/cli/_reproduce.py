"""The command that reproduces the papers' tables and figures, and lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, flag, inform, print_json, resumable
from noisewise.cli._compare import progress_of_runs
from noisewise.cli._options import Jobs, integers
from noisewise.errors import InputError, invalid_parameter

if TYPE_CHECKING:
    from noisewise.papers import Compared, Recipe, Results
    from noisewise.reproduce import Reproduction

_LEGEND = (
    "± is the standard deviation over seeds, or what the paper prints. ! marks an accuracy that differs by more than twice the paper's "
    "deviation, or by more than two points if the paper prints none."
)
_SETTINGS = ("data", "model", "noise", "loss", "optimiser", "weight_decay")


@app.command()
def reproduce(
    recipe: Annotated[str | None, typer.Argument(help="A table or figure, for example imae/table6. Without one, all are listed.")] = None,
    only: Annotated[
        str | None, typer.Option(help='The runs to train, for example "loss=imae,noise=symmetric(0.4)"; by default all.')
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="The seeds, for example 0,1,2; by default as many as in the paper.", metavar="0,1,…")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only test that it works, on the CPU with a few examples and steps.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The output folder; by default reproduced, or reproduced-quick.")
    ] = None,
    jobs: Jobs = None,
    existing: Annotated[
        list[Path] | None, typer.Option("--with", help="A file or folder of existing results; their runs are not trained again.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Train nothing: show the results that come with the package, or those of --with.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile wide networks on a GPU, which makes them faster.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Train a table or figure of the papers and compare the numbers. Run the same command again to resume."""
    from noisewise import papers
    from noisewise import reproduce as again

    training = {"only": only, "seeds": seeds, "quick": quick, "jobs": jobs}
    if recipe is None:
        _check_unused("recipe", "given with", output=output, show=show, existing=existing, **training)
        _list(as_json)
        return
    table = papers.get(recipe)
    if show:
        _check_unused("show", "given without", **training, output=output if table.picture is None else None)
        done = again.show(table, papers.results(*existing or ()), output or "shown")
        if not done.cells and not done.files:
            raise InputError(f"There are no results of {table.id} to show. {table.nothing or 'Train it without --show.'}")
        _print(done, quick, as_json)
        return
    plan = again.plan(
        table,
        only=only,
        seeds=None if seeds is None else integers(seeds, "seeds", "reproduce"),
        quick=quick,
        output=output or Path("reproduced-quick" if quick else "reproduced"),
        held=papers.results(*existing) if existing else None,
        compile=compile,
    )
    for sentence in filter(None, (table.nothing, table.not_run)):
        inform(sentence)
    if table.nothing:
        if as_json:
            _print(again.Reproduction(table, (), (), papers.Results(), {}), quick, as_json)
        return
    if table.runs and not plan.tasks:
        inform(f"nothing to train: all results are in {plan.folder}" + (" or in --with." if existing else "."))
    try:
        with resumable(), progress_of_runs(plan.rows) as watch:
            done = again.reproduce(plan, jobs=jobs, watch=watch)
    except again.RecipeFailedError as failed:
        _print(failed.done, quick, as_json)
        raise
    _print(done, quick, as_json)


def _check_unused(parameter: str, requirement: str, **options: object) -> None:
    """Refuse options that would be ignored."""
    unused = ["--with" if name == "existing" else flag(name) for name, value in options.items() if value]
    if unused:
        raise invalid_parameter(parameter, "reproduce", f"{requirement} {', '.join(unused)}", None)


def _list(as_json: bool) -> None:
    from noisewise import papers

    results = papers.results()
    recipes = list(map(papers.get, papers.available()))
    verdicts = papers.verdicts(results)
    rows = [(recipe, _status(recipe, results), verdicts.get(recipe.id, {})) for recipe in recipes]
    if as_json:
        print_json(
            [
                {"recipe": recipe.id, "caption": recipe.caption, "runs": len(recipe.runs), "status": status, "conditions": conditions}
                for recipe, status, conditions in rows
            ]
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("table or figure", "content", "runs", "status", "conditions of claims"):
        table.add_column(column, overflow="fold", no_wrap=column == "table or figure", justify="right" if column == "runs" else "left")
    for recipe, status, conditions in rows:
        counts = ", ".join(f"{number} {words}" for words, number in conditions.items())
        table.add_row(Text(recipe.id), Text(recipe.caption), str(len(recipe.runs) or "–"), Text(status), Text(counts))
    Console().print(table, highlight=False)


def _status(recipe: Recipe, results: Results) -> str:
    from noisewise import papers

    runs = papers.runs_of(recipe, results)
    if runs and recipe.same_as is None and recipe.picture != "margins":
        run, printed = papers.how_many(papers.compared(recipe, results))
        done = f"{run} of {printed} numbers" if printed else f"{len(runs)} of {len(recipe.runs)} runs"
        fewest, most = (pick(map(len, runs)) for pick in (min, max))
        seeds = f"{fewest} seed{'s' if fewest > 1 else ''}" if fewest == most else f"{fewest} to {most} seeds"
        return f"results of {max(outcome.finished for outcomes in runs for outcome in outcomes)[:10]}: {done}, {seeds} each"
    if recipe.nothing:
        return "nothing to run"
    if recipe.same_as:
        return f"the numbers of {recipe.same_as}"
    if not recipe.runs:
        return "follows from the losses"
    if recipe.not_run:
        return "not run: " + recipe.not_run.partition(":")[0]
    return "needs run folders, which results do not contain" if recipe.picture == "margins" else "no results yet"


def _cell_as_json(cell: Compared) -> dict[str, Any]:
    settings = {name: cell.settings[name] for name in _SETTINGS if name in cell.settings}
    theirs = {"theirs": cell.cell.value, "deviation": cell.cell.deviation}
    ours = {"ours": cell.ours, "spread": cell.spread, "difference": cell.difference, "seeds": cell.seeds, "beyond": cell.beyond}
    return {"row": cell.cell.words, "metric": cell.cell.metric, **settings, **theirs, **ours}


def _print(done: Reproduction, quick: bool, as_json: bool) -> None:
    from noisewise.papers import corrections, how_many

    if as_json:
        cells, files = [_cell_as_json(cell) for cell in done.cells], {kind: str(file) for kind, file in done.files.items()}
        print_json({"recipe": done.recipe.id, "quick": quick, "cells": cells, "runs": [str(run.path) for run in done.runs], "files": files})
        return
    console = Console()
    if done.cells:
        console.print(_table(done), highlight=False)
        console.print(Text(_LEGEND, style="dim italic"))
        run, printed = how_many(done.cells)
        if run < printed:
            console.print(f"{run} of the paper's {printed} numbers were run.", highlight=False)
        for line in corrections(done.cells, done.results):
            console.print(Text(line))
    if done.runs:
        runs = f"{len(done.runs)} run{'s' if len(done.runs) > 1 else ''}"
        console.print(f"{runs} in {done.runs[0].path.parents[2]}", highlight=False, soft_wrap=True)
    if done.recipe.picture == "margins" and "picture" not in done.files:
        inform("the picture needs the run folders: results do not contain margins.")
    for kind, file in done.files.items():
        console.print(f"{kind}: {file}", highlight=False, soft_wrap=True)
    if quick and done.recipe.runs:
        inform("with --quick, runs have few examples and steps; do not compare their numbers with the paper's.")


def _table(done: Reproduction) -> Table:
    """A line for every number; rows that were not run are left out if others were."""
    from noisewise.papers import laid_out, number, ours, theirs

    layout = laid_out(done.cells)
    run = {row: cells for row, cells in layout.rows.items() if any(cell.ours is not None for cell in cells.values())}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text(f"{done.recipe.words}: {done.recipe.caption}"), title_justify="left")
    for column in (*layout.differing, ""):
        table.add_column(column, overflow="fold")
    for column in ("", "ours", "paper", "difference"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row, cells in (run or layout.rows).items():
        for index, (metric, cell) in enumerate(cells.items()):
            name = map(Text, [""] * len(row) if index else row)
            difference = "" if cell.difference is None else f"{number(cell.difference, metric, '+')}{' !' if cell.beyond else ''}"
            table.add_row(*name, metric.replace("_", " "), ours(cell), theirs(cell), difference, style="bold" if cell.beyond else "")
    return table
