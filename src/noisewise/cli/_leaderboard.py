"""The command that prints the leaderboard, and trains the runs that it lacks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table as Printed

from noisewise.cli._app import AsJson, Console, Text, app, flag, inform, print_json, print_lines, resumable
from noisewise.cli._compare import progress_of_runs
from noisewise.cli._options import Jobs, integers
from noisewise.errors import InputError, invalid_parameter

if TYPE_CHECKING:
    from noisewise.leaderboard import Board, Missing, Results, Table

_OUTPUT = Path("leaderboard.jsonl")
_SEEDS = "0,1,2"
_BESIDE = 32  # characters of a row beside its cells
_CELL = 13

Names = list[str] | None


@app.command()
def leaderboard(
    protocol: Annotated[
        Names, typer.Option(help='A way to train, such as resnet20, or a pattern such as "resnet*"; may be repeated.')
    ] = None,
    condition: Annotated[Names, typer.Option(help='Data and noise, such as "cifar10 sym 40" or "cifar100 *"; may be repeated.')] = None,
    row: Annotated[Names, typer.Option(help='A loss or method, such as GCE or "NCE*"; may be repeated.')] = None,
    measure: Annotated[
        str, typer.Option(help="What to print: final, best, held_out, learned, balanced, least or noise.", metavar="NAME")
    ] = "final",
    existing: Annotated[
        list[Path] | None, typer.Option("--with", help="A file or folder of results besides those of the package; may be repeated.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Train the runs that have no result. Run it again to continue.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which runs have no result, and how many images they take.")] = False,
    seeds: Annotated[str, typer.Option(help="The seeds to train.", metavar="0,1,…")] = _SEEDS,
    jobs: Jobs = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="How long training may take. Runs that would not finish do not begin, or are stopped early.", min=0),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file for new results; results that it has are not trained again.")
    ] = _OUTPUT,
    as_json: AsJson = False,
) -> None:
    """Print the leaderboard: losses and methods on noisy labels, from committed results. With --train, train what is missing."""
    from noisewise import leaderboard as lb

    if not train:
        unused = {"jobs": jobs, "minutes": minutes is not None, "output": output != _OUTPUT}
        _check_unused({**unused, "seeds": seeds != _SEEDS and not dry_run})
    chosen = lb.board().chosen(protocol or (), condition or (), row or ())
    if not chosen.protocols:
        raise InputError("No protocol has these rows and conditions together. Leave out one of --protocol, --condition and --row.")
    files = [*(existing or ()), *([output] if train and output.exists() else [])]
    results = lb.results(*files)
    if train or dry_run:
        wanted = integers(seeds, "seeds", "leaderboard")
        runs = lb.missing(chosen, results, wanted)
        if dry_run:
            _print_missing(runs, as_json)
            return
        _train(runs, output, jobs, minutes)
        results = lb.results(*(existing or ()), *([output] if output.exists() else []))
    _print(chosen, results, measure, as_json)


def _check_unused(options: dict[str, Any]) -> None:
    """Refuse options that would be ignored."""
    unused = [flag(name) for name, given in options.items() if given]
    if unused:
        raise invalid_parameter("train", "leaderboard", f"given with {', '.join(unused)}", False)


def _train(runs: list[Missing], output: Path, jobs: int | None, minutes: float | None) -> None:
    from noisewise import leaderboard as lb

    if not runs:
        inform("nothing to train: all of these runs have results.")
        return
    rows = [(str(run.spec), run.condition.name, run.seed) for run in runs]
    with resumable(), progress_of_runs(rows) as watch:
        late = lb.train(runs, output, jobs=jobs, minutes=minutes, watch=watch)
    left = f" {late} runs did not finish in time; run the same command again." if late else ""
    inform(f"the results are in {output}.{left}")


def _print_missing(runs: list[Missing], as_json: bool) -> None:
    """Say what is missing, by protocol and condition."""
    numbers, images = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for run in runs:
        where = run.protocol.name, run.condition.name
        numbers[where] += 1
        images[where] += run.images
    if as_json:
        parts = [{"protocol": where[0], "condition": where[1], "runs": numbers[where], "images": images[where]} for where in numbers]
        print_json({"runs": len(runs), "images": images.total(), "missing": parts})
        return
    table = Printed(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("protocol", "condition", "missing runs", "million images"):
        table.add_column(column, justify="right" if column[0] == "m" else "left")
    for where, number in numbers.items():
        table.add_row(*where, str(number), f"{images[where] / 1e6:.1f}")
    if runs:
        Console().print(table, highlight=False)
    print_lines(f"{len(runs)} runs are missing: {images.total() / 1e6:,.1f} million training images.")


def _print(board: Board, results: Results, measure: str, as_json: bool) -> None:
    from noisewise import leaderboard as lb

    if measure not in lb.MEASURES:
        raise invalid_parameter("measure", "leaderboard", f"one of {', '.join(lb.MEASURES)}", measure)
    found = lb.tables(board, results)
    if as_json:
        print_json({"tables": [lb.as_json(table) for table in found]})
        return
    console = Console()
    for table in found:
        console.print(Text(f"{table.title} ({table.protocol.name})", style="bold"))
        room = max(1, (console.width - _BESIDE - 24) // _CELL)
        for start in range(0, len(table.conditions), room):
            console.print(_part(table, start, start + room, measure), highlight=False)
    if found:
        console.print(Text(f"Numbers are the {lb.MEASURES[measure]}: mean ± standard deviation over seeds.", style="dim italic"))
        console.print(
            Text("Ranks are those of the final test accuracy; published numbers have other networks and seeds.", style="dim italic")
        )
    else:
        inform("there are no results of these rows yet. Train them with --train.")


def _part(table: Table, start: int, stop: int, measure: str) -> Printed:
    """Some columns of a table."""
    from noisewise import leaderboard as lb

    conditions = table.conditions[start:stop]
    printed = Printed(box=SIMPLE_HEAD, pad_edge=False)
    printed.add_column("", overflow="fold")
    for column in (*(condition.short for condition in conditions), "rank", "seeds", "cost"):
        printed.add_column(column, justify="right", no_wrap=True)
    for entry in table.entries:
        cells = [lb.number(entry.cells[each.name].over_seeds(measure)) if each.name in entry.cells else "" for each in conditions]
        rank = "" if entry.rank is None else f"{entry.rank:.1f}"
        printed.add_row(*map(Text, [entry.name, *cells, rank, lb.seeds_in_words(entry), lb.cost_in_words(entry)]))
    for mark in table.marks if measure == "final" else ():
        published = [f"{mark.accuracy[each.name]:.1f}" if each.name in mark.accuracy else "" for each in conditions]
        if any(published):
            printed.add_row(*map(Text, [f"{mark.name}, published", *published, "", "", ""]), style="italic")
    return printed
