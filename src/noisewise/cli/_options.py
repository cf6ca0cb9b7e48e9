"""What a training command was asked: an option for every setting, made from `Settings` itself, and a TOML file that can hold them.

A setting that is added to the engine is an option and a key of the file at once.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from rich.markup import escape

from noisewise.cli._app import flag
from noisewise.data import is_official, read
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.runs import Settings

Command = TypeVar("Command", bound=Callable[..., None])

Config = Annotated[
    Path | None, typer.Option(help="A TOML file of settings; options given here override it.", metavar="FILE.toml", show_default=False)
]

_ENTRY = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)$", re.MULTILINE)
"""An entry of the Args of a docstring: a name and what it means."""

_IN_WORDS = {str: "text", int: "an integer"}

_READING: dict[str, tuple[Any, str]] = {
    "test": (str, "What to test on: a path, or a data set's name; an official data set brings its own."),
    "label": (str, "The column of labels."),
    "true_label": (str, "The column of labels known to be right."),
    "id": (str, "The column that names every example."),
    "image": (str, "The column of image paths."),
    "features": (list[str], "A column of numbers to learn from; may be repeated. By default all that have a name and no other part."),
    "size": (int, "The side to resize images to."),
    "unreadable": (str, "What to do with images that cannot be read: refuse or skip them."),
}


def with_settings(*several: str) -> Callable[[Command], Command]:
    """Give a command, which takes ``**given``, an option for every setting of a run and for reading the user's own data.

    Args:
        *several: the settings that may be given more than once.
    """
    return _with([*_setting_options(several), *_reading_options(_READING)])


def with_reading() -> Callable[[Command], Command]:
    """Give a command, which takes ``**reading``, the options for reading the user's own data."""
    return _with(_reading_options(name for name in _READING if name != "test"))


def _with(options: list[inspect.Parameter]) -> Callable[[Command], Command]:
    def give(command: Command) -> Command:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.kind is not one.VAR_KEYWORD]
        parameters = [*own, *options]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return give


def _setting_options(several: tuple[str, ...]) -> list[inspect.Parameter]:
    meanings, kinds = dict(_ENTRY.findall(inspect.getdoc(Settings) or "")), get_type_hints(Settings)
    made = []
    for field in fields(Settings):
        kind, meaning = kinds[field.name], meanings.get(field.name, "")  # python -OO drops docstrings
        if field.name in several:
            kind, meaning = list[kind], f"{meaning.rstrip('.')}; may be repeated."  # type: ignore[valid-type]
        shown = f" Default: {field.default}." if isinstance(field.default, str | int | float) else ""
        made.append(_option(field.name, kind, [], (meaning[:1].upper() + meaning[1:]).replace("`", "") + shown, "Settings"))
    return made


def _reading_options(names: Iterable[str]) -> list[inspect.Parameter]:
    return [_option(name, kind, [flag(name)], meaning, "Your own data") for name in names for kind, meaning in [_READING[name]]]


def _option(name: str, kind: Any, flags: list[str], meaning: str, panel: str) -> inspect.Parameter:
    """An option that is None unless it is given, so that what was given can be told from defaults; typer finds flags if there are none."""
    option = typer.Option(*flags, help=escape(meaning), rich_help_panel=panel, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


@dataclass(frozen=True)
class Asked:
    """What a training command was asked.

    Args:
        settings: the settings that were given, by name.
        reading: the options of the reader of the user's own data.
        test: what to test on, or None.
    """

    settings: dict[str, Any]
    reading: dict[str, Any]
    test: str | None

    @classmethod
    def of(cls, given: Mapping[str, Any], config: Path | None) -> Asked:
        """Put the options together with the file, which they override."""
        options = only_given(given)
        written = {} if config is None else _read(config, given)
        if options.keys() & {"epochs", "steps"}:  # two ways to say how long: a new word on one unsays the other
            written = {name: value for name, value in written.items() if name not in ("epochs", "steps")}
        asked = {**written, **options}
        reading = {name: asked.pop(name) for name in _READING if name in asked}
        return cls(asked, reading, reading.pop("test", None))

    @property
    def others(self) -> dict[str, Any]:
        """The settings but for data and model."""
        return {name: value for name, value in self.settings.items() if name not in ("data", "model")}

    def sources(self) -> tuple[Any, Any]:
        """What `fit` takes as data and test: the user's own data are read here, where their options are known."""
        data, test = self.settings["data"], self.test
        if not self.reading:
            return data, test
        return read(data, **self.reading), data if test is None and is_official(data) else test


def _read(config: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    try:
        written = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"The settings file {str(config)!r} cannot be read ({error}). Give a TOML file.") from None
    kinds = {**get_type_hints(Settings), **{name: kind for name, (kind, _) in _READING.items()}}
    for name, value in written.items():
        if name not in known:
            raise unknown("setting", name, known)
        if kinds[name] in _IN_WORDS and not all(isinstance(one, kinds[name]) for one in as_list(value)):
            raise invalid_parameter(name, str(config), _IN_WORDS[kinds[name]], value)
    return written | {"features": as_list(written["features"])} if "features" in written else written


def only_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value not in (None, [])}


def read_for(command: str, data: str | None, options: Mapping[str, Any]) -> Any:
    """The data set that runs were trained on, if one is named."""
    given = only_given(options)
    if data is None and given:
        raise invalid_parameter("--data", command, f"given together with {', '.join(map(flag, given))}", None)
    return None if data is None else read(data, **given)


def integers(text: str, parameter: str, command: str) -> list[int]:
    """Numbers with commas between them."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise invalid_parameter(parameter, command, "integers, such as 0,1,2", text) from None


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
