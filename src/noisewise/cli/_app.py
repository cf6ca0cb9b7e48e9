"""The app the commands belong to, and what they all share: the one sentence when something is wrong, JSON, warnings."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import rich.console
import rich.text
import typer
from rich.console import ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from typer.core import TyperGroup

import noisewise
from noisewise import _startup, signals
from noisewise.errors import UNPRINTABLE, InputError, printable, unknown

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
            with _startup.loaded(), signals.raised():
                sys.exit(super().main(args, prog_name, complete_var, False, windows_expand_args, **extra))
        except InputError as error:
            sentence = in_flags(str(error))
        except _UsageError as error:
            sentence = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            sentence = f"{_file(error.filename)} cannot be used ({error.strerror})."
        except (typer.Abort, KeyboardInterrupt) as error:
            sys.exit(signals.exit_code(error))
        if sentence:  # a group without a command has printed its help
            say(sentence)
        sys.exit(2)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _spoken_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _ended(error, ".") from None

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
        show(f"noisewise {noisewise.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())  # which is ours, colours and all


def say(sentence: str) -> None:
    """Tell the user something that is not a result, in one line on stderr; a terminal that is closed is not told."""
    with suppress(OSError):
        print(f"noisewise: {printable(' '.join(sentence.splitlines()))}", file=sys.stderr)


def show(*lines: object) -> None:
    """Print results. Commands print plain lines with this, and tables and bars with `Console` and `Text`, which all escape what would
    steer the terminal: names of files and classes can hold anything.
    """
    print(printable("\n".join(map(str, lines))))


class Console(rich.console.Console):
    """Rich's console, but for what would steer the terminal in the text it is given."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Text(rich.text.Text):
    """Rich's text, escaped before a table measures it."""

    def __init__(self, text: str = "", *args: Any, **kwargs: Any) -> None:
        super().__init__(printable(text), *args, **kwargs)


def print_json(data: Any) -> None:
    readable = sys.stdout.encoding.lower().startswith("utf")  # elsewhere other signs are escaped, as JSON has it
    text = json.dumps(data, indent=2, ensure_ascii=not readable, allow_nan=False)
    print(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))  # as JSON escapes them, so that the data are the same


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    """Say warnings as the one line they are, without the file and line of the code that gave them."""
    with warnings.catch_warnings():
        data, train = noisewise.data, noisewise.train
        for category in (train.Underfitting, train.Unlearned, data.SimilarLabels, data.Unreadable):
            warnings.filterwarnings("always", category=category)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield


@contextmanager
def resumable() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the command with a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise _ended(error, "; run the same command again and it goes on from the last checkpoint.") from None


def _ended(error: KeyboardInterrupt, advice: str) -> typer.Exit:
    """Say that a signal ended the command; the exit that shells expect then."""
    say(f"stopped by {error}{advice}" if isinstance(error, signals.Stopped) else f"interrupted{advice}")
    return typer.Exit(signals.exit_code(error))


class Bar:
    """A bar over the steps of a run, told of every step as `fit` tells it.

    Args:
        progress: what it is shown in.
        words: what stands before it.
    """

    def __init__(self, progress: Progress, words: str) -> None:
        self._progress, self._task = progress, progress.add_task(words, total=None)
        self.moved = False
        """Whether any step was made."""

    def __call__(self, step: int, steps: int) -> None:
        if not self.moved and step > 1:
            say(f"goes on after step {step - 1} of {steps}.")
        self.moved = True
        self._progress.update(self._task, completed=step, total=steps)


@contextmanager
def trained(words: str) -> Iterator[Bar]:
    """Show a bar on standard error while a run is trained, nothing where that is no terminal.

    Ctrl-C ends the command with a word on how to go on.

    Args:
        words: what stands before the bar.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with resumable(), Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, words)
