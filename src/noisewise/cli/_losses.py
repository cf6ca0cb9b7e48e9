"""The command that lists and describes losses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, print_json, print_lines
from noisewise.cli._described import print_description
from noisewise.errors import invalid_parameter

_SPREAD = "the variance of ‖∂L/∂s‖₁, twice the emphasis, over uniform p"
_CAPTION = (
    "Hyper-parameters are the defaults, or those of an example if there is no default. "
    f"Focus: the p with the largest emphasis. Spread: {_SPREAD}. –: not a function of p alone.\n"
    'Details of a loss: noisewise losses imae, or noisewise losses "gce(q=0.5)".'
)


@app.command()
def losses(
    spec: Annotated[str | None, typer.Argument(help='A loss to show in detail, for example imae or "gce(q=0.5)".')] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write value and emphasis of the loss by margin, for other frameworks: .csv, .json or .parquet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all losses, or show one in detail."""
    from noisewise import describe

    if table is not None:
        _write_table(spec, table)
        return
    if spec is None:
        rows = describe.table()
        if as_json:
            print_json([describe.as_data(*row) for row in rows])
        else:
            _show_table(rows)
        return
    described, figures = describe.one(spec)
    if as_json:
        print_json(describe.as_data(described, figures))
    else:
        _show_loss(described, figures)


def _write_table(spec: str | None, file: Path) -> None:
    from noisewise.integrations.numpy import emphasis_table
    from noisewise.tables import write_blocks

    if spec is None:
        raise invalid_parameter("--table", "losses", "given with a loss", str(file))
    columns = emphasis_table(spec)
    print_lines(write_blocks(file, [[column.tolist() for column in columns.values()]], tuple(columns)))


def _figure(number: float | None) -> str:
    return "–" if number is None else f"{number:.3g}"


def _show_table(rows: list[tuple[Any, Any]]) -> None:
    console = Console()
    shown = {
        "loss": [row.name for row, _ in rows],
        "value": [row.value for row, _ in rows],
        "emphasis w": [row.emphasis for row, _ in rows],
        "where": [row.constraints for row, _ in rows],
        "focus": [_figure(figures.focus) for _, figures in rows],
        "spread": [_figure(figures.spread) for _, figures in rows],
        "reference": [row.reference for row, _ in rows],
    }
    for column, least_width in (("reference", 150), ("where", 110)):
        if console.width < least_width:
            del shown[column]
    table = Table(box=SIMPLE_HEAD, leading=1, pad_edge=False, caption_justify="left", caption=_CAPTION)
    for column in shown:
        short = column in ("loss", "focus", "spread")
        table.add_column(column, no_wrap=short, overflow="fold", style="bold" if column == "loss" else "")
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*map(Text, cells))
    console.print(table)


def _show_loss(described: Any, figures: Any) -> None:
    measured = (f"focus  {_figure(figures.focus)}", f"spread {_figure(figures.spread)} ({_SPREAD})")
    print_description(described, {f"Figures of {figures.spec}": measured})
