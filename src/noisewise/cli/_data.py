"""The commands that list and download official data sets, and show how a table is read."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise import data
from noisewise.cli._app import AsJson, Console, Group, Typer, app, print_json, print_lines
from noisewise.cli._columns import print_columns
from noisewise.cli._options import with_reading, without_none
from noisewise.errors import InputError

_Root = Annotated[Path | None, typer.Option(help="The data folder; by default $NOISEWISE_DATA or your cache folder.")]
_group = Typer(cls=Group, no_args_is_help=True, help="List and download official data sets, or show how a table is read.")
app.add_typer(_group, name="data")


@_group.command("list")
def _list(root: _Root = None, as_json: AsJson = False) -> None:
    """List the official data sets."""
    data_sets = [data.describe(name, root) for name in data.available()]
    if as_json:
        print_json([asdict(data_set) for data_set in data_sets])
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption="Download a data set: noisewise data get cifar10")
    for column in ("name", "description", "size", "licence", "here?"):
        table.add_column(column, no_wrap=column in ("name", "here?"), overflow="fold", style="bold" if column == "name" else "")
    for row in data_sets:
        table.add_row(row.name, row.summary, row.size, row.licence, "yes" if row.present else "no" if row.fetchable else "on request")
    Console().print(table, highlight=False)


@_group.command("get")
def _get(
    name: Annotated[str, typer.Argument(help="The name of a data set; noisewise data list shows all.")],
    root: _Root = None,
) -> None:
    """Download a data set, check its files, and print where they are."""
    official = data.registry.get(name)
    with data.progress_bars() if sys.stderr.isatty() else nullcontext(data.silent) as progress:
        folder = data.fetch(official, root, progress)
    if official.places:
        print_lines(f"{name} is in", *(f"  {official.find(folder, either)}" for either in official.places))
    else:
        print_lines(f"Nothing to download: {official.summary}.")


@_group.command("preview")
@with_reading()
def _preview(
    source: Annotated[Path, typer.Argument(help="A table: a CSV, Parquet or Excel file.", metavar="TABLE")],
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Show what would be done to each column of a table, and write nothing."""
    if not data.is_table(source):
        raise InputError(f"A preview shows a table: a CSV, Parquet or Excel file. Got {str(source)!r}.")
    examples = data.read(source, **without_none(reading))
    encoding = examples.encoding
    if encoding is None:
        raise InputError("A preview shows the columns of a table. Leave out --image.")
    if as_json:
        print_json([asdict(column) for column in encoding.columns])
        return
    print_columns(encoding, sys.stdout)
    print_lines(f"{len(examples):,} rows, {len(encoding.names):,} inputs, {len(examples.classes):,} classes")
