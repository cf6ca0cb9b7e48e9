"""The commands that draw figures of losses and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli._app import Group, Typer, app, print_lines
from noisewise.cli._options import integers

_group = Typer(cls=Group, no_args_is_help=True, help="Draw losses and runs, for papers and slides.")
app.add_typer(_group, name="figure")

_Runs = Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain run folders.", metavar="RUN...")]
_Output = Annotated[Path, typer.Option("-o", "--output", help="A .svg, .pdf or .png file.")]


@_group.command("curves")
def _curves(
    specs: Annotated[list[str], typer.Argument(help='Losses, for example ce "imae(T=8)" "0.3*ce + 0.7*mae".', metavar="LOSS...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .html, .svg, .pdf or .png file.")] = Path("curves.html"),
    classes: Annotated[int, typer.Option(help="The number of classes; it decides where margins start.")] = 10,
) -> None:
    """Draw emphasis, loss value and gradient norm over p and over the margin."""
    from noisewise import draw

    print_lines(f"Wrote {draw.curves(specs, output, classes=classes)}")


@_group.command("bounds")
def _bounds(
    specs: Annotated[list[str], typer.Argument(help='Losses, for example ce mae "aul(a=2, q=2)".', metavar="LOSS...")],
    output: _Output = Path("bounds.svg"),
) -> None:
    """Draw how much harder losses pull at each p than at 1/2, and how much symmetric noise they tolerate in theory."""
    from noisewise import draw

    print_lines(f"Wrote {draw.bounds(specs, output)}")


@_group.command("dynamics")
def _dynamics(runs: _Runs, output: _Output = Path("dynamics.svg")) -> None:
    """Draw accuracies, α_t and mean emphasis over the training steps of runs."""
    from noisewise import draw

    print_lines(f"Wrote {draw.dynamics(runs, output)}")


@_group.command("margins")
def _margins(
    runs: _Runs,
    output: _Output = Path("margins.svg"),
    epochs: Annotated[str | None, typer.Option(help="The epochs to draw, for example 1,10,100.", metavar="N,N,...")] = None,
) -> None:
    """Draw the margins of clean and noisy examples at several epochs, and the emphasis of the loss there."""
    from noisewise import draw

    chosen = None if epochs is None else integers(epochs, "epochs", "figure margins")
    print_lines(f"Wrote {draw.margins(runs, output, epochs=chosen)}")
