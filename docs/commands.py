"""Generates the reference of the command line from the commands themselves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from noisewise.cli import app
from noisewise.cli._app import COMMANDS


def on_files(files: Any, config: Any) -> Any:
    """Add the page to those found in the folder."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "commands.md", content=commands_page()))
    return files


def commands_page() -> str:
    """Every command with its arguments and options."""
    for module, _ in COMMANDS.values():
        import_module(f"noisewise.cli.{module}")  # registers its commands
    lines = [
        "# Commands and options",
        "",
        "`noisewise COMMAND --help` prints the same. [The command line](command-line.md) has examples.",
        "",
    ]
    for name, command in _commands("noisewise", typer.main.get_command(app)):
        lines += [f"## {name}", "", str(command.help).strip(), "", "| | meaning | default |", "|---|---|---|"]
        lines += [_row(parameter) for parameter in command.params if parameter.name != "help" and not getattr(parameter, "hidden", False)]
        lines.append("")
    return "\n".join(lines)


def _commands(name: str, command: Any) -> list[tuple[str, Any]]:
    """The commands of a group, and of the groups in it."""
    if not hasattr(command, "commands"):
        return [(name, command)]
    return [pair for part, inner in sorted(command.commands.items()) for pair in _commands(f"{name} {part}", inner)]


def _row(parameter: Any) -> str:
    shown = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    default = "" if parameter.default in (None, False, ()) or parameter.param_type_name == "argument" else f"`{parameter.default}`"
    return f"| `{shown}` | {str(parameter.help or '').replace('|', chr(92) + '|')} | {default} |"
