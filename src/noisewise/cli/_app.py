"""The app, its table of commands, and what the commands share: errors, warnings, escaped and JSON output, progress bars."""

from __future__ import annotations

import errno
import functools
import inspect
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
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

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # its name differs between versions of typer

COMMANDS = {
    "audit": ("_audit", "Find labels that look wrong, in a run or in your data."),
    "card": ("_card", "Write the model of a run with a model card, to push to a hub."),
    "compare": ("_compare", "Train several losses, methods and noises with several seeds, and compare them."),
    "consensus": ("_annotators", "Find one label per example from the labels of several annotators."),
    "correct": ("_audit", "Correct wrong labels; every change is listed and can be undone."),
    "data": ("_data", "List and download official data sets, or show how a table is read."),
    "demo": ("_demo", "Train several losses on digits with 40 % wrong labels, in less than a minute."),
    "export": ("_export", "Write the model of a run as ONNX or as a PyTorch program."),
    "figure": ("_figure", "Draw losses and runs, for papers and slides."),
    "leaderboard": ("_leaderboard", "Compare losses and methods on noisy labels; train what is missing."),
    "losses": ("_losses", "List all losses, or show one in detail."),
    "methods": ("_methods", "List all methods, training rules that need more than a loss, or show one in detail."),
    "predict": ("_predict", "Predict the classes of new rows with a trained run."),
    "report": ("_report", "Write a page that shows what happened in your runs."),
    "reproduce": ("_reproduce", "Reproduce a table or figure of the papers and compare the numbers."),
    "review": ("_review", "Decide on doubtful labels in the browser."),
    "suggest": ("_suggest", "Estimate how noisy your labels are and of which kind, and suggest a loss."),
    "tasks": ("_tasks", "Write doubtful labels as tasks for Label Studio or Argilla."),
    "train": ("_train", "Train one run."),
}
"""The module of every command, and its line in ``noisewise --help``."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_REFUSED = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)
"""File system errors that no check can rule out beforehand."""


class Group(TyperGroup):
    """A group of commands that reports an error as one sentence on stderr and exits with the code of its kind."""

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
            sys.stdout.reconfigure(errors="backslashreplace")  # like stderr, for terminals without UTF-8
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
            name = "A file" if error.filename is None else f"The file {str(error.filename)[-100:]!r}"
            sentence = f"{name} cannot be used ({error.strerror})."
        except (typer.Abort, KeyboardInterrupt) as error:
            sys.exit(signals.exit_code(error))
        if sentence:  # it is empty if a group without a command printed its help
            inform(sentence)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _warnings_as_lines():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _stopped(error, ".") from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise unknown("command", args[0], names)
        name, command, rest = super().resolve_command(ctx, args)
        _check_once(ctx, command, rest)
        return name, command, rest


class LazyGroup(Group):
    """The top-level group: it imports the module of a command when the command runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command if it is loaded; otherwise a stub with its summary, for the help."""
        stub = TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None
        return self.commands.get(cmd_name, stub)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            with _startup.loading():
                import_module("torch")  # every command needs it
                import_module(f"noisewise.cli.{COMMANDS[args[0]][0]}")  # registers the command
            self.commands = typer.main.get_group(app).commands
        return super().resolve_command(ctx, args)


def _check_once(parent: Any, command: Any, args: list[str]) -> None:
    """Refuse an option that is given twice but can have only one value; click would silently take the last."""
    _, _, order = command.make_parser(typer.Context(command, parent=parent, resilient_parsing=True)).parse_args(list(args))
    for option in order:
        times = order.count(option)
        if option.param_type_name == "option" and not option.multiple and times > 1:
            raise InputError(f"The option {option.opts[-1]} can be given only once. Got it {times} times.")


def flag(name: str) -> str:
    """The command-line option for a parameter."""
    # --feature names one column; --features is where all features come from, instead of the columns.
    name = {"features": "feature", "columns": "column", "embed": "features", "embed_cache": "features-cache"}.get(name, name)
    return f"--{name.replace('_', '-')}"


class Typer(typer.Typer):
    """Typer, in which every command can first import the user's own code."""

    def command(self, *args: Any, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:  # type: ignore[override]
        register = super().command(*args, **options)

        def add(command: Callable[..., None]) -> Callable[..., None]:
            register(_with_import(command))
            return command

        return add


_Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="First import a Python file or module with your own losses, models and so on; may be repeated."),
]


def _with_import(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(*, imports: Any, **options: Any) -> None:
        if imports:
            from noisewise import plugins

            plugins.load(*imports)
        command(**options)

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    parameters.append(inspect.Parameter("imports", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Imports))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


app = Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train classifiers on labels you cannot fully trust.",
)


def _version(requested: bool) -> None:
    if requested:
        print_lines(f"noisewise {noisewise.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())  # not escaped: it contains colours


def inform(sentence: str) -> None:
    """Print a message that is not a result as one line on stderr; do nothing if the terminal is closed."""
    with suppress(OSError):
        print(f"noisewise: {printable(' '.join(sentence.splitlines()))}", file=sys.stderr)


def print_lines(*lines: object) -> None:
    """Print lines of results, with control characters escaped: names of files and classes may contain any.

    For tables and bars use `Console` and `Text`, which escape them too.
    """
    print(printable("\n".join(map(str, lines))))


class Console(rich.console.Console):
    """Rich's console, with control characters in its text escaped."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Text(rich.text.Text):
    """Rich's text, with control characters escaped before a table measures it."""

    def __init__(self, text: str = "", *args: Any, **kwargs: Any) -> None:
        super().__init__(printable(text), *args, **kwargs)


def print_json(data: Any) -> None:
    unicode = sys.stdout.encoding.lower().startswith("utf")
    text = json.dumps(data, indent=2, ensure_ascii=not unicode, allow_nan=False)
    print(UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))  # JSON's own escapes, so the data stay the same


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print warnings as one line, without the file and line of the code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=NoisewiseWarning)
        warnings.showwarning = lambda message, *_, **__: inform(str(message))
        yield


@contextmanager
def resumable(advice: str = "; run the same command again to resume at the last checkpoint.") -> Iterator[None]:
    """On Ctrl-C, SIGTERM or SIGHUP, say how to resume and exit."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise _stopped(error, advice) from None


def _stopped(error: KeyboardInterrupt, advice: str) -> typer.Exit:
    """Report the signal that stopped the command; return the exit that shells expect."""
    inform(f"stopped by {error}{advice}" if isinstance(error, signals.Stopped) else f"interrupted{advice}")
    return typer.Exit(signals.exit_code(error))


class Bar:
    """A progress bar over the steps of a run; `fit` calls it after every step."""

    def __init__(self, progress: Progress, description: str) -> None:
        self._progress, self._task = progress, progress.add_task(description, total=None)
        self.moved = False
        """Whether a step was made."""

    def __call__(self, step: int, steps: int) -> None:
        if not self.moved and step > 1:
            inform(f"resuming at step {step} of {steps}.")
        self.moved = True
        self._progress.update(self._task, completed=step, total=steps)


@contextmanager
def progress_bar(description: str) -> Iterator[Bar]:
    """Show a bar on stderr, if that is a terminal, while a run is trained. Ctrl-C says how to resume."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with resumable(), Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, description)
