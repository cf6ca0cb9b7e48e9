"""The app, its table of commands, and what the commands share: error sentences, warnings, escaped and JSON output."""

from __future__ import annotations

import errno
import io
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Annotated, Any

import rich.console
import rich.text
import typer
from rich.console import ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

import noisewise
from noisewise import _startup, signals
from noisewise.errors import UNPRINTABLE, InputError, NoisewiseError, NoisewiseWarning, StorageError, is_storage, printable, unknown

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has carried it under several names

COMMANDS = {
    "audit": ("_audit", "Find labels that look wrong, in a run or in your own data."),
    "compare": ("_compare", "Train several losses on several noises with several seeds."),
    "correct": ("_audit", "Correct wrong labels; every change is listed and can be undone."),
    "data": ("_data", "List and download official data sets."),
    "demo": ("_demo", "Train on digits with 40 % wrong labels, under several losses; takes less than a minute."),
    "figure": ("_figure", "Draw losses and runs, for papers and slides."),
    "losses": ("_losses", "List all losses, or show one in full."),
    "report": ("_report", "Write a page that shows what happened in your runs."),
    "reproduce": ("_reproduce", "Run a table or figure of the papers again and compare the numbers."),
    "train": ("_train", "Train one run."),
}
"""The module of every command, and what ``noisewise --help`` says about it."""

AsJson = Annotated[bool, typer.Option("--json", help="Print plain data for machines.")]


_REFUSED = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)
"""What a file system may refuse at any time, so that no check can find it beforehand."""


def _file(name: Any) -> str:
    """A file in a sentence, shortened if its name is long. The name is not known while a file is being written."""
    text = str(name)
    return "A file" if name is None else f"The file {text if len(text) <= 100 else f'{text[:50]}…{text[-50:]}'!r}"


class OneSentence(TyperGroup):
    """A group of commands that ends with one sentence on stderr, and the exit code of its kind, when something is wrong."""

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
            sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: the terminal may not have every character
        code = InputError.exit_code
        try:
            with _startup.loaded(), signals.raised():
                sys.exit(super().main(args, prog_name, complete_var, False, windows_expand_args, **extra))
        except NoisewiseError as error:
            sentence, code = str(error), error.exit_code
        except _UsageError as error:
            sentence = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno not in _REFUSED and not is_storage(error):
                raise
            code = StorageError.exit_code if is_storage(error) else code
            sentence = f"{_file(error.filename)} cannot be used ({error.strerror})."
        except (typer.Abort, KeyboardInterrupt) as error:
            sys.exit(signals.exit_code(error))
        if sentence:  # a group without a command has printed its help
            say(sentence)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _spoken_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _ended(error, ".") from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise unknown("command", args[0], names)
        name, command, rest = super().resolve_command(ctx, args)
        _check_once(ctx, command, rest)
        return name, command, rest


class Commands(OneSentence):
    """The top-level group: it loads a command when the command runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command if it is loaded; otherwise its summary, for the help."""
        known = TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None
        return self.commands.get(cmd_name, known)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            with _startup.loading():
                import_module("torch")  # every command needs it, most of them later
                import_module(f"noisewise.cli.{COMMANDS[args[0]][0]}")  # registers its commands
            self.commands = typer.main.get_group(app).commands
        return super().resolve_command(ctx, args)


def _check_once(parent: Any, command: Any, args: list[str]) -> None:
    """Refuse an option that is given more often than it counts; the last would win, and the others do nothing."""
    _, _, order = command.make_parser(typer.Context(command, parent=parent, resilient_parsing=True)).parse_args(list(args))
    for option in order:
        times = order.count(option)
        if option.param_type_name == "option" and not option.multiple and times > 1:
            raise InputError(f"The option {option.opts[-1]} is taken once. Got it {times} times; give it once.")


def flag(name: str) -> str:
    """What a parameter is called on the command line."""
    return "--feature" if name == "features" else f"--{name.replace('_', '-')}"  # given once per column


app = typer.Typer(
    cls=Commands,
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
    """Print warnings as one line, without the file and line of the code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=NoisewiseWarning)
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
