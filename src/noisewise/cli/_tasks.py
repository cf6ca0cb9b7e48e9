"""The command that writes doubtful labels as tasks for other labelling tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli._app import app, print_lines
from noisewise.cli._options import read_for, with_reading, without_none


@app.command()
@with_reading()
def tasks(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .json file to write.")] = Path("tasks.json"),
    tool: Annotated[str, typer.Option(help="label-studio or argilla.")] = "label-studio",
    limit: Annotated[int, typer.Option(help="The number of doubtful labels.", min=1)] = 200,
    url: Annotated[
        str | None, typer.Option(help='The address of an image, such as "https://example.com/{id}"; by default images are in the file.')
    ] = None,
    data: Annotated[str | None, typer.Option(help="The training data; by default the path in the run.")] = None,
    **reading: Any,
) -> None:
    """Write doubtful labels as tasks for Label Studio or Argilla; apply their exports with `correct --decisions`."""
    from noisewise.correct import write_tasks

    source = read_for("tasks", data, reading) if without_none(reading) else data
    print_lines(*write_tasks(run, output, tool=tool, limit=limit, data=source, url=url))
