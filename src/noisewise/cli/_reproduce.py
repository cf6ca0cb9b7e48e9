"""The command that reproduces the papers' tables and figures, and lists them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
    from noisewise.papers import Compared, Outcome, Recipe, Results
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
    minutes: Annotated[
        float | None,
        typer.Option(help="How long training may take. Runs that would not finish are stopped early; the same command continues them."),
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

    training = {"only": only, "seeds": seeds, "quick": quick, "jobs": jobs, "minutes": minutes}
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
            done = again.reproduce(plan, jobs=jobs, watch=watch, minutes=minutes)
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
    verdicts = papers.verdicts(results, (*papers.CLAIMS, *papers.FINDINGS.values()))
    rows = [(recipe, _progress(recipe, results), verdicts.get(recipe.id, {})) for recipe in recipes]
    if as_json:
        print_json(
            [
                {"recipe": recipe.id, "caption": recipe.caption, "runs": len(recipe.runs), **asdict(progress), "conditions": conditions}
                for recipe, progress, conditions in rows
            ]
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("table or figure", "runs", "numbers", "seeds"):
        table.add_column(column, justify="left" if column == "table or figure" else "right", no_wrap=column != "table or figure")
    for recipe, progress, conditions in rows:
        runs = f"{progress.runs_with_results} of {len(recipe.runs)}" if recipe.runs else "–"
        numbers = f"{progress.numbers_run} of {progress.numbers}" if progress.numbers else "–"
        seeds = " to ".join(map(str, dict.fromkeys(progress.seeds))) or "–"
        counts = ", ".join(f"{number} {words}" for words, number in conditions.items())
        about = f"{progress.status}; conditions of claims: {counts}" if counts else progress.status
        words = Text.assemble((recipe.id, "bold"), f"\n{recipe.caption}\n", (about, "dim"))
        table.add_row(words, *map(Text, (runs, numbers, seeds)))
    console = Console()
    console.print(table, highlight=False)
    own = [progress for recipe, progress, _ in rows if recipe.same_as is None]
    run, printed = sum(one.numbers_run for one in own), sum(one.numbers for one in own)
    console.print(f"{run} of the papers' {printed} numbers were run. Runs and seeds are those that have results.", highlight=False)


@dataclass(frozen=True)
class _Progress:
    """How much of a recipe has results.

    Args:
        status: when it was run last, or why it was not.
        runs_with_results: the number of its runs that have results.
        numbers: how many numbers the paper prints.
        numbers_run: how many of them were run.
        seeds: the smallest and the largest number of seeds of its runs; empty without results.
    """

    status: str
    runs_with_results: int
    numbers: int
    numbers_run: int
    seeds: tuple[int, ...]


def _progress(recipe: Recipe, results: Results) -> _Progress:
    from noisewise import papers

    runs = papers.runs_of(recipe, results)
    run, printed = papers.how_many(papers.compared(recipe, results))
    seeds = (min(map(len, runs)), max(map(len, runs))) if runs else ()
    return _Progress(_status(recipe, runs), len(runs), printed, run, seeds)


def _status(recipe: Recipe, runs: list[list[Outcome]]) -> str:
    if recipe.nothing:
        return "nothing to run"
    if recipe.same_as:
        return f"the numbers of {recipe.same_as}"
    if runs:
        return f"run on {max(outcome.finished for outcomes in runs for outcome in outcomes)[:10]}"
    if recipe.networks is not None:
        return "needs data sets and no training"
    if not recipe.runs:
        return "follows from the losses"
    if recipe.not_run:
        return "not run: " + recipe.not_run.partition(":")[0]
    return "no results with margins yet" if recipe.picture == "margins" else "no results yet"


def _cell_as_json(cell: Compared) -> dict[str, Any]:
    settings = {name: cell.settings[name] for name in _SETTINGS if name in cell.settings}
    theirs = {"theirs": cell.cell.value, "deviation": cell.cell.deviation}
    ours = {"ours": cell.ours, "spread": cell.spread, "difference": cell.difference, "seeds": cell.seeds, "beyond": cell.beyond}
    return {"row": cell.cell.words, "metric": cell.cell.metric, **settings, **theirs, **ours}


def _print(done: Reproduction, quick: bool, as_json: bool) -> None:
    from noisewise.papers import corrections, how_many

    if as_json:
        cells, files = [_cell_as_json(cell) for cell in done.cells], {kind: str(file) for kind, file in done.files.items()}
        print_json(
            {
                "recipe": done.recipe.id,
                "quick": quick,
                "cells": cells,
                "runs": [str(run.path) for run in done.runs],
                "files": files,
                "left": done.left,
            }
        )
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
    if done.left:
        runs = "1 run" if done.left == 1 else f"{done.left} runs"
        inform(f"{runs} did not finish in the time given; run the same command again to continue.")
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
