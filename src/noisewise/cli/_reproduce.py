"""The command that runs the papers' tables and figures again, and the list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.measure import Measurement
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, flag, print_json, resumable, say
from noisewise.cli._compare import shown
from noisewise.cli._options import integers
from noisewise.errors import InputError, invalid_parameter

if TYPE_CHECKING:
    from noisewise.papers import Compared, Recipe, Results
    from noisewise.reproduce import Reproduction

_LEGEND = (
    "Ours (± over seeds), then the paper's (± as it prints it), then the difference. ! marks an accuracy that is off by more than twice "
    "the spread the paper prints, or by more than two points where it prints none."
)

_ANY_WIDTH = 10_000  # letters: more than any table takes
_TOLD = ("data", "model", "noise", "loss", "optimiser", "weight_decay")


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
    held: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", help="Results from elsewhere, a file or a folder of them: their runs are not trained again.", show_default=False
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Train nothing: show what was run, as it comes with the package, or what --with gives.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="On a GPU and at full size, compile wide networks: it makes them faster.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Train a table or figure of the papers again, and compare. The same command again does not repeat what is finished."""
    from noisewise import papers
    from noisewise import reproduce as again

    if recipe is None:
        _check_alone(
            "recipe", "named with options for one", only=only, seeds=seeds, quick=quick, output=output, jobs=jobs, show=show, held=held
        )
        _list(as_json)
        return
    asked = papers.get(recipe)
    if show:
        drawn = asked.picture is not None
        _check_alone("show", "given without options for training", only=only, seeds=seeds, quick=quick, jobs=jobs)
        _check_alone("output", f"left out with {asked.id} --show, which writes nothing", output=None if drawn else output)
        done = again.show(asked, papers.results(*held or ()), output or "shown")
        if not done.cells and not done.files:
            why = asked.nothing or "Results have not what it is drawn from. Train it without --show."
            raise InputError(f"The option --show shows what was run, and of {asked.id} there is nothing. {why}")
        _tell(done, quick, as_json)
        return
    plan = again.plan(
        asked,
        only=only,
        seeds=None if seeds is None else integers(seeds, "seeds", "reproduce"),
        quick=quick,
        output=output or Path("reproduced-quick" if quick else "reproduced"),
        held=papers.results(*held) if held else None,
        compile=compile,
    )
    for sentence in filter(None, (asked.nothing, asked.not_run)):
        say(sentence)
    if asked.nothing:
        if as_json:
            _tell(again.Reproduction(asked, (), (), papers.Results(), {}), quick, as_json)
        return
    if asked.runs and not plan.tasks:
        say(f"nothing is left to train: results or runs are in {plan.folder}" + (" or were given by --with." if held else "."))
    try:
        with resumable(), shown(plan.rows) as watch:
            done = again.reproduce(plan, jobs=jobs, watch=watch)
    except again.RecipeFailedError as failed:
        _tell(failed.done, quick, as_json)
        raise
    _tell(done, quick, as_json)


def _check_alone(parameter: str, requirement: str, **options: object) -> None:
    """Refuse options that would do nothing."""
    given = ["--with" if name == "held" else flag(name) for name, value in options.items() if value]
    if given:
        raise invalid_parameter(parameter, "reproduce", requirement, " ".join(given))


def _tell(done: Reproduction, quick: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(done, quick))
        return
    _show(done)
    if quick and done.recipe.runs:
        say("this was a quick try: a few examples and steps. Its numbers say nothing about the paper's.")


def _list(as_json: bool) -> None:
    from noisewise import papers

    found = papers.results()
    rows = [(recipe, _status(recipe, found)) for recipe in map(papers.get, papers.available())]
    if as_json:
        print_json([{"recipe": one.id, "caption": one.caption, "runs": len(one.runs), "status": status} for one, status in rows])
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("table or figure", "what it shows", "runs", "status"):
        table.add_column(column, overflow="fold", no_wrap=column == "table or figure", justify="right" if column == "runs" else "left")
    for one, status in rows:
        table.add_row(Text(one.id), Text(one.caption), str(len(one.runs) or "–"), Text(status))
    Console().print(table, highlight=False)


def _status(recipe: Recipe, found: Results) -> str:
    from noisewise import papers

    runs = papers.runs_of(recipe, found)
    if runs and recipe.same_as is None:
        run, printed = papers.how_many(papers.compared(recipe, found))
        done = f"{run} of {printed} numbers" if printed else f"{len(runs)} of {len(recipe.runs)} runs"
        return f"results of {max(one.finished for outcomes in runs for one in outcomes)[:10]}: {done}"
    if recipe.nothing:
        return "nothing to run"
    if recipe.same_as:
        return f"the numbers of {recipe.same_as}"
    if not recipe.runs:
        return "follows from the losses"
    return "not run: " + recipe.not_run.partition(":")[0] if recipe.not_run else "no results yet"


def _as_json(done: Reproduction, quick: bool) -> dict[str, Any]:
    return {
        "recipe": done.recipe.id,
        "quick": quick,
        "cells": [_cell_as_json(one) for one in done.cells],
        "runs": [str(run.path) for run in done.runs],
        "files": {what: str(file) for what, file in done.files.items()},
    }


def _cell_as_json(one: Compared) -> dict[str, Any]:
    settings = {name: one.settings[name] for name in _TOLD if name in one.settings}
    theirs = {"theirs": one.cell.value, "deviation": one.cell.deviation}
    ours = {"ours": one.ours, "spread": one.spread, "difference": one.difference, "seeds": one.seeds, "beyond": one.beyond}
    return {"row": one.cell.words, "metric": one.cell.metric, **settings, **theirs, **ours}


def _show(done: Reproduction) -> None:
    from noisewise.papers import corrections, how_many

    console = Console()
    if done.cells:
        console.print(_table(done, console), highlight=False)
        console.print(Text(_LEGEND, style="dim italic"))
        run, printed = how_many(done.cells)
        left = printed - run
        if left:
            beside = "has none of ours beside it" if left == 1 else "have none of ours beside them"
            console.print(f"{left} of the paper's numbers {beside} yet.", highlight=False)
        for line in corrections(done.cells, done.found):
            console.print(Text(line))
    if done.runs:
        runs = f"{len(done.runs)} run{'s' if len(done.runs) > 1 else ''}"
        console.print(f"{runs} in {done.runs[0].path.parents[2]}", highlight=False, soft_wrap=True)
    if done.recipe.picture == "margins" and "picture" not in done.files:
        say("its picture needs the folders of the runs: results do not keep all that it shows.")
    for what, file in done.files.items():
        console.print(f"{what}: {file}", highlight=False, soft_wrap=True)


def _table(done: Reproduction, console: Console) -> Table:
    """A column for every metric as in the paper; a line for every number where the console is too narrow for that."""
    from noisewise.papers import laid_out

    layout = laid_out(done.cells)
    run = {place: cells for place, cells in layout.rows.items() if any(one.ours is not None for one in cells.values())}
    rows, options = run or layout.rows, console.options.update(max_width=_ANY_WIDTH)
    wide = _headed(done, layout.differing)
    for metric in layout.metrics:
        wide.add_column(metric.replace("_", "\n"), justify="right", vertical="bottom")
    for place, cells in rows.items():
        wide.add_row(*map(Text, place), *(_cell(cells[metric]) if metric in cells else "" for metric in layout.metrics))
    return wide if Measurement.get(console, options, wide).maximum <= console.width else _long(_headed(done, layout.differing), rows)


def _headed(done: Reproduction, differing: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text(f"{done.recipe.words}: {done.recipe.caption}"), title_justify="left")
    for column in (*differing, ""):
        table.add_column(column, overflow="fold")
    return table


def _long(table: Table, rows: Mapping[tuple[str, ...], Mapping[str, Compared]]) -> Table:
    for column in ("", "ours", "theirs", ""):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for place, cells in rows.items():
        for number, (metric, one) in enumerate(cells.items()):
            named = map(Text, [""] * len(place) if number else place)  # what a row is stands beside its first number
            ours, theirs, difference = _parts(one)
            table.add_row(*named, metric.replace("_", " "), ours, theirs, difference, style="bold" if one.beyond else "")
    return table


def _cell(one: Compared) -> Text:
    ours, theirs, difference = _parts(one)
    return Text(f"{ours} | {theirs} {difference}".rstrip(), style="bold" if one.beyond else "")


def _parts(one: Compared) -> tuple[str, str, str]:
    """Ours, theirs, and the difference with its mark."""
    from noisewise.papers import number, ours, theirs

    difference = "" if one.difference is None else f"{number(one.difference, one.cell.metric, '+')}{' !' if one.beyond else ''}"
    return ours(one), theirs(one), difference
