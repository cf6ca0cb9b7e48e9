"""The command that writes a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli._app import app, print_lines


@app.command()
def card(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")] = Path("card"),
    title: Annotated[str | None, typer.Option(help="The title of the card; by default the model and the data.")] = None,
    license: Annotated[str | None, typer.Option(help="The license of the model, such as apache-2.0.")] = None,
) -> None:
    """Write a folder with the model of a run and a model card, ready for the Hugging Face hub. It has no labels."""
    from noisewise.report import write_card

    print_lines(write_card(run, output, title=title, license=license))
