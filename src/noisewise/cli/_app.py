"""The app the commands belong to, and what they all share: the one sentence when something is wrong, JSON, warnings."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import noisewise
from noisewise.errors import InputError, unknown

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has carried it under several names

_FLAGS = {name: f"--{name.replace('_', '-')}" for name in ("label", "true_label", "id", "image", "size", "unreadable", "data", "clip")}
_FLAGS["features"] = "--feature"
"""What the parameters that sentences advise are called here; one that is not listed, like ``classes=[…]``, has no flag."""

AsJson = Annotated[bool, typer.Option("--json", help="Print plain data for machines.")]


_NOT_OURS = (errno.ENAMETOOLONG, errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS)
"""What a file system refuses wherever it is asked, and no check can know beforehand."""


def _file(name: Any) -> str:
    """A file in a sentence, in short if its name is long; while one is written to, its name is not known."""
    text = str(name)
    return "A file" if name is None else f"The file {text if len(text) <= 100 else f'{text[:50]}…{text[-50:]}'!r}"


class OneSentence(TyperGroup):
    """Ends every wrong input with exit code 2 and one sentence on stderr."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a sign the terminal or a pipe has not must not end a command
        try:
            sys.exit(super().main(args, prog_name, complete_var, False, windows_expand_args, **extra))
        except InputError as error:
            sentence = in_flags(str(error))
        except _UsageError as error:
            sentence = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            sentence = f"{_file(error.filename)} cannot be used ({error.strerror})."
        except (typer.Abort, KeyboardInterrupt):
            sys.exit(130)
        if sentence:  # a group without a command has printed its help
            say(sentence)
        sys.exit(2)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _spoken_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted.")
            raise typer.Exit(130) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown("command", args[0], self.commands)
        name, command, rest = super().resolve_command(ctx, args)
        _check_once(ctx, command, rest)
        return name, command, rest


def _check_once(parent: Any, command: Any, args: list[str]) -> None:
    """Refuse an option that is given more often than it counts; the last would win, and the others do nothing."""
    _, _, order = command.make_parser(typer.Context(command, parent=parent, resilient_parsing=True)).parse_args(list(args))
    for option in order:
        times = order.count(option)
        if option.param_type_name == "option" and not option.multiple and times > 1:
            raise InputError(f"The option {option.opts[-1]} is taken once. Got it {times} times; give it once.")


def flag(name: str) -> str:
    """What a parameter is called on the command line."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def in_flags(sentence: str) -> str:
    """A sentence for Python as one for the command line: ``features=[…]`` is ``--feature`` here."""
    known = "|".join(_FLAGS)
    sentence = re.sub(rf"\b({known})=(…|\[…\])", lambda found: flag(found[1]), sentence)
    sentence = re.sub(rf"\b({known})='(\w+)'", lambda found: f"{flag(found[1])} {found[2]}", sentence)
    sentence = re.sub(rf"The '({known})' parameter of from_\w+ must", lambda found: f"The option {flag(found[1])} must", sentence)
    return re.sub(r" The options it takes: [\w, ]+\.", "", sentence)  # by their names in Python; some have no flag


app = typer.Typer(
    cls=OneSentence,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train classifiers on labels you cannot fully trust.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"noisewise {noisewise.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def say(sentence: str) -> None:
    """Tell the user something that is no result."""
    print(f"noisewise: {sentence}", file=sys.stderr)


def print_json(data: Any) -> None:
    readable = sys.stdout.encoding.lower().startswith("utf")  # elsewhere other signs are escaped, as JSON has it
    print(json.dumps(data, indent=2, ensure_ascii=not readable, allow_nan=False))


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    """Say warnings as the one line they are, without the file and line of the code that gave them."""
    with warnings.catch_warnings():
        for ours in (noisewise.train.Underfitting, noisewise.train.Unlearned, noisewise.data.Unreadable):
            warnings.filterwarnings("always", category=ours)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield


@contextmanager
def resumable() -> Iterator[None]:
    """Let Ctrl-C end the command with a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; run the same command again and it goes on from the last checkpoint.")
        raise typer.Exit(130) from None
