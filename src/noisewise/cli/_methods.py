"""The command that lists and describes methods."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, print_json
from noisewise.cli._described import print_description

if TYPE_CHECKING:
    from noisewise.describe import Description

_CAPTION = (
    "Needs: besides one network, labels and a loss. A method that needs whole batches cannot be used with --accumulate.\n"
    "Details of a method: noisewise methods elr. Use one: noisewise train … --method elr."
)


@app.command()
def methods(
    spec: Annotated[str | None, typer.Argument(help='A method to show in detail, for example elr or "elr(lam=7)".')] = None,
    as_json: AsJson = False,
) -> None:
    """List all methods, training rules that need more than a loss, or show one in detail."""
    from noisewise import describe
    from noisewise.methods import available, get

    names = available() if spec is None else [spec if spec in available() else get(spec).name]
    rows = [(describe.describe_method(name), describe.needs(name)) for name in names]
    if as_json:
        found = [{**asdict(described), "needs": list(needs)} for described, needs in rows]
        print_json(found if spec is None else found[0])
    elif spec is None:
        _show_table(rows)
    else:
        ((described, needs),) = rows
        print_description(described, {"Needs": needs})


def _show_table(rows: list[tuple[Description, tuple[str, ...]]]) -> None:
    console = Console()
    shown = {
        "method": [described.name for described, _ in rows],
        "what it does": [described.summary for described, _ in rows],
        "needs": [", ".join(needs) or "–" for _, needs in rows],
        "reference": [described.reference for described, _ in rows],
    }
    if console.width < 150:
        del shown["reference"]
    table = Table(box=SIMPLE_HEAD, leading=1, pad_edge=False, caption_justify="left", caption=_CAPTION)
    for column in shown:
        table.add_column(column, no_wrap=column == "method", overflow="fold", style="bold" if column == "method" else "")
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*map(Text, cells))
    console.print(table)
