"""The command that writes the page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli._app import Console, app, show
from noisewise.cli._options import read_for, with_reading


@app.command()
@with_reading()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold run folders.", metavar="RUN...", show_default=False)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write, a .html file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The title of the page.")] = "What the losses did",
    data: Annotated[
        str | None,
        typer.Option(help="What the runs were trained on, to show doubtful examples; by default where each says.", show_default=False),
    ] = None,
    **reading: Any,
) -> None:
    """Show what each loss did: one page that opens offline, from any number of runs."""
    show(f"Wrote {write(runs, output, title=title, data=read_for('report', data, reading))}")


def write(runs: list[Path], output: Path, **options: Any) -> Path:
    """Write a report and show on a terminal what is being done."""
    from noisewise.report import report as write_report

    console = Console(stderr=True)
    with console.status("reading runs") as status:
        return write_report(runs, output, tell=status.update, **options)
