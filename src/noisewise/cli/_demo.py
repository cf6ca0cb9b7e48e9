"""The command that demonstrates what wrong labels do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import Console, Text, app, percent, resumable
from noisewise.cli._compare import progress_of_runs


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The seed of the noise and of the initial weights.")] = 0,
) -> None:
    """Train a small network on digits with 40 % wrong labels, once per loss. Takes less than a minute."""
    from noisewise import demo as demonstration

    demonstration.check(folder, seed)
    with resumable(), progress_of_runs([(loss, demonstration.NOISE, seed) for loss in demonstration.LOSSES]) as watch:
        results = demonstration.run(folder, seed=seed, watch=watch)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption=demonstration.CAPTION)
    table.add_column("loss", vertical="bottom", overflow="fold")
    for column in ("test\naccuracy", "right\nlabels\nlearned", "wrong\nlabels\nlearned", "label\nerrors\nfound"):
        table.add_column(column, justify="right", vertical="bottom", no_wrap=True)
    for result in results:
        shares = (result.test, result.clean_subset, result.noisy_subset, result.errors_found)
        table.add_row(Text(result.loss), *map(percent, shares))
    console = Console()
    console.print(table)
    console.print(f"Report:  {folder / 'report.html'}\nResults: {folder / 'results.json'}", highlight=False, soft_wrap=True)
    console.print(f"Runs:    {folder / demonstration.RUNS}", highlight=False, soft_wrap=True)
