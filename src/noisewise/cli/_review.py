"""The command that serves the review page of a run."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli._app import app, inform, print_lines, resumable
from noisewise.cli._options import read_for, with_reading, without_none
from noisewise.output import check_replacing
from noisewise.tables import has_columns


@app.command()
@with_reading()
def review(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file of corrected labels; by default corrected.csv in the run folder.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The number of doubtful labels; by default all.", min=1)] = None,
    port: Annotated[int, typer.Option(help="The port on this machine; by default any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open the page in the browser.")] = True,
    data: Annotated[str | None, typer.Option(help="The training data; by default the path in the run.")] = None,
    **reading: Any,
) -> None:
    """Decide on doubtful labels in the browser. Every decision is saved at once."""
    from noisewise.audit import audit_run
    from noisewise.correct import CORRECTION_COLUMNS, review_server

    target = run / "corrected.csv" if output is None else output
    check_replacing(target, data or str(run), lambda file: has_columns(file, CORRECTION_COLUMNS), "list of labels")
    source = read_for("review", data, reading) if without_none(reading) else data
    with review_server(audit_run(run), target, limit=limit, data=source, port=port) as server:
        print_lines(server.url)
        sys.stdout.flush()  # a program that starts this command reads the address
        inform(f"decisions are saved in {server.log.path}; press Ctrl-C to stop, and run the command again to continue.")
        apply = f"noisewise correct {shlex.quote(str(run))} --decisions {shlex.quote(str(server.log.path))}"
        with resumable(f"; all decisions are saved. Run the same command again to continue, or apply them: {apply}"):
            if browser:
                webbrowser.open(server.url)
            server.serve_forever()
    if server.written is not None:
        correction, file = server.written
        print_lines(repr(correction), file)
