"""The command that exports the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli._app import app, print_lines


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model to write: .onnx, or .pt2 for PyTorch.")] = Path("model.onnx"),
) -> None:
    """Write the model of a run for programs without noisewise, with a description of its inputs beside it."""
    from noisewise.integrations.export import export as write

    file = write(run, output)
    print_lines(file, file.with_suffix(".json"))
