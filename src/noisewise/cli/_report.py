"""The command that writes the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli._app import Console, app, print_lines
from noisewise.cli._options import read_for, with_reading


@app.command()
@with_reading()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain run folders.", metavar="RUN...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The report, a .html file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The title of the report.")] = "What the losses did",
    data: Annotated[str | None, typer.Option(help="The training data, to show doubtful examples; by default the path in the run.")] = None,
    **reading: Any,
) -> None:
    """Write one page, readable offline, that shows what each loss did in any number of runs."""
    print_lines(f"Wrote {write(runs, output, title=title, data=read_for('report', data, reading))}")


def write(runs: list[Path], output: Path, **options: Any) -> Path:
    """Write a report; a terminal shows the progress."""
    from noisewise.report import report as write_report

    console = Console(stderr=True)
    with console.status("reading runs") as status:
        return write_report(runs, output, tell=status.update, **options)
