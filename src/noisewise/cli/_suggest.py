"""The command that suggests how to train on the user's data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import noisewise
from noisewise.cli._app import AsJson, Console, app, print_json, print_lines
from noisewise.cli._options import with_reading, without_none


@app.command()
@with_reading()
def suggest(
    source: Annotated[str, typer.Argument(help="Your data: a table, a folder of images, or the name of a data set.", metavar="DATA")],
    seed: Annotated[int, typer.Option(help="The seed of the sample, of the models and of the held-out share.")] = 0,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Estimate how noisy labels are and of which kind, and suggest a loss."""
    with Console(stderr=True).status("probing the data"):
        suggestion = noisewise.suggest(source, seed=seed, **without_none(reading))
    if as_json:
        print_json(suggestion.as_dict())
    else:
        print_lines(*str(suggestion).splitlines())
