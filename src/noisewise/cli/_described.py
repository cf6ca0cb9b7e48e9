"""Prints the description of a loss or a method in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding

from noisewise.cli._app import Console, Text

if TYPE_CHECKING:
    from noisewise.describe import Description, Parameter


def print_description(described: Description, more: Mapping[str, Sequence[str]]) -> None:
    """Print a description, with more sections after its hyper-parameters: the lines of each, by heading."""
    console = Console()
    console.print(Text(f"{described.name}: {described.summary}", style="bold"))
    for paragraph in described.details:
        console.print(Text(paragraph))
    _section(console, "Formula", described.formula)
    for paragraph in described.notes:
        console.print(Text(f"\n{paragraph}"))
    sections = {
        "Hyper-parameters": tuple(map(_parameter, described.parameters)),
        **more,
        "Example": described.session,
        "Specs": described.specs,
        "Reference": (described.reference,),
    }
    for heading, lines in sections.items():
        _section(console, heading, lines)


def _section(console: Console, heading: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(Text(f"\n{heading}", style="bold"))
        console.print(Padding(Text("\n".join(lines)), (0, 0, 0, 2)))


def _parameter(parameter: Parameter) -> str:
    default = "required" if parameter.default is None else f"default {parameter.default}"
    return f"{parameter.name} ({', '.join(filter(None, (default, parameter.requirement)))}): {parameter.meaning}"
