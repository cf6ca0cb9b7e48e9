"""The commands about official data sets: which there are, and getting them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise import data
from noisewise.cli._app import AsJson, Console, OneSentence, app, print_json, show

_Root = Annotated[
    Path | None, typer.Option(help="The data folder; by default $NOISEWISE_DATA or the user's cache folder.", show_default=False)
]
_group = typer.Typer(cls=OneSentence, no_args_is_help=True, help="List and get official data sets.")
app.add_typer(_group, name="data")


@_group.command("list")
def _list(root: _Root = None, as_json: AsJson = False) -> None:
    """List the official data sets."""
    found = [data.describe(name, root) for name in data.available()]
    if as_json:
        print_json([asdict(one) for one in found])
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption="Get one that is not here: noisewise data get cifar10")
    for column in ("name", "what", "size", "licence", "here?"):
        table.add_column(column, no_wrap=column in ("name", "here?"), overflow="fold", style="bold" if column == "name" else "")
    for one in found:
        table.add_row(one.name, one.summary, one.size, one.licence, "yes" if one.present else "no" if one.fetchable else "on request")
    Console().print(table, highlight=False)


@_group.command("get")
def _get(
    name: Annotated[str, typer.Argument(help="A data set of noisewise data list.")],
    root: _Root = None,
) -> None:
    """Fetch a data set, every file checked, and say where it is."""
    official = data.registry.get(name)
    with data.progress_bars() if sys.stderr.isatty() else nullcontext(data.silent) as progress:
        folder = data.fetch(official, root, progress)
    if official.places:
        show(f"{name} is in", *(f"  {official.find(folder, either)}" for either in official.places))
    else:
        show(f"Nothing to fetch: {official.summary}.")
