"""The options of training commands: one for every field of `Settings`, and a TOML file that can contain them."""

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

from noisewise import plugins
from noisewise.cli._app import flag
from noisewise.data import is_official, is_vectors, read
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.runs import Settings

Command = TypeVar("Command", bound=Callable[..., None])

Jobs = Annotated[int | None, typer.Option(help="The number of runs at a time; by default one per processor, or eight on a GPU.", min=1)]
Config = Annotated[Path | None, typer.Option(help="A TOML file with settings; options override it.", metavar="FILE.toml")]

_ENTRY = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)$", re.MULTILINE)
"""An entry of the Args of a docstring: a name and its meaning."""

_TYPE_NAMES = {str: "text", int: "an integer"}

_READING: dict[str, tuple[Any, str]] = {
    "test": (str, "The test set: a path or the name of a data set. Official data sets have their own."),
    "label": (str, "The column with the labels."),
    "true_label": (str, "The column with the true labels, if they are known."),
    "id": (str, "The column with the ids of the examples."),
    "image": (str, "The column with the paths of the images."),
    "features": (list[str], "A column to learn from; may be repeated. By default all columns that are not used otherwise."),
    "columns": (
        list[str],
        "What a column contains, such as age:number; may be repeated. Kinds are number, boolean, date, category and text.",
    ),
    "drop": (list[str], "A column to leave out; may be repeated."),
    "text": (list[str], "A column of text; may be repeated."),
    "size": (int, "Resize images to this many pixels a side."),
    "unreadable": (str, "What to do if an image cannot be read: refuse or skip."),
    "embed": (
        str,
        "Learn from embeddings: a file with one row per example (.npy, .npz, .safetensors), or a pretrained model, such as "
        "transformers:FOLDER or timm:NAME@WEIGHTS. For columns of a table use --feature.",
    ),
    "embed_cache": (str, "The folder that keeps computed embeddings. Default: runs/embeddings."),
    "test_features": (str, "The file of embeddings of the test set, if --features is a file."),
    "download": (bool, "Allow --features to download a model."),
}
"""The options for reading the user's data: the type and the help of each."""


_TRAINING: dict[str, tuple[Any, str]] = {
    "on": (str, "Where to train: ray, ray://HOST:PORT, or slurm(gpus_per_node=1). By default on this machine."),
    "search": (
        str,
        "First search the hyper-parameters of the losses, with optuna or optuna(trials=50). They are judged on the share that --validation "
        "holds out.",
    ),
}
"""The options for clusters and searches: the type and the help of each."""


def with_settings(*several: str, training: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command, which takes ``**options``, an option for every setting of a run and for reading the user's data.

    Args:
        *several: the settings that may be given more than once.
        training: the options for clusters and searches that the command has.
    """
    places = [_option(name, kind, [flag(name)], meaning, "Options") for name in training for kind, meaning in [_TRAINING[name]]]
    return _with([*places, *_setting_options(several), *_reading_options(_READING)])


def with_reading() -> Callable[[Command], Command]:
    """Give a command, which takes ``**reading``, the options for reading the user's data."""
    return _with(_reading_options(name for name in _READING if name not in ("test", "test_features")))


def _with(options: list[inspect.Parameter]) -> Callable[[Command], Command]:
    def add_options(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD] + options
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return add_options


def _setting_options(several: tuple[str, ...]) -> list[inspect.Parameter]:
    meanings, types = dict(_ENTRY.findall(inspect.getdoc(Settings) or "")), get_type_hints(Settings)
    options = []
    for field in fields(Settings):
        kind, meaning = types[field.name], meanings.get(field.name, "")  # python -OO drops docstrings
        if field.name in several:
            kind, meaning = list[kind], f"{meaning.rstrip('.')}; may be repeated."  # type: ignore[valid-type]
        default = f" Default: {field.default}." if isinstance(field.default, str | int | float) else ""
        options.append(_option(field.name, kind, [], (meaning[:1].upper() + meaning[1:]).replace("`", "") + default, "Settings"))
    return options


def _reading_options(names: Iterable[str]) -> list[inspect.Parameter]:
    return [_option(name, kind, [flag(name)], meaning, "Your own data") for name in names for kind, meaning in [_READING[name]]]


def _option(name: str, kind: Any, flags: list[str], meaning: str, panel: str) -> inspect.Parameter:
    """An option that is None unless it is given. Typer derives the flag from the name if there are no flags."""
    option = typer.Option(*flags, help=escape(meaning), rich_help_panel=panel)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


@dataclass(frozen=True)
class Request:
    """What the user asked a training command to do.

    Args:
        settings: the settings that were given, by name.
        reading: the options for reading the user's data.
        test: the test set, or None.
        test_features: the file of its embeddings, or None.
        on: the spec of a cluster, or None.
        search: the spec of a search, or None.
    """

    settings: dict[str, Any]
    reading: dict[str, Any]
    test: str | None
    test_features: str | None = None
    on: str | None = None
    search: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], config: Path | None) -> Request:
        """Combine the options with the file; options override it."""
        from_command = without_none(options)
        from_file = {} if config is None else _read(config, options)
        if from_command.keys() & {"epochs", "steps"}:  # each of them replaces the other
            from_file = {name: value for name, value in from_file.items() if name not in ("epochs", "steps")}
        settings = {**from_file, **from_command}
        reading = {name: settings.pop(name) for name in _READING if name in settings}
        training = {name: settings.pop(name) for name in _TRAINING if name in settings}
        return cls(settings, reading, reading.pop("test", None), reading.pop("test_features", None), **training)

    @property
    def others(self) -> dict[str, Any]:
        """The settings except data and model."""
        return {name: value for name, value in self.settings.items() if name not in ("data", "model")}

    def sources(self) -> tuple[Any, Any]:
        """The data and the test set for `fit`. Data with options for reading are read here."""
        data, test = self.settings["data"], self.test
        if not self.reading and self.test_features is None:
            return data, test
        return read(data, **self.reading), read_test(data, test, self.reading, self.test_features)


def read_test(data: str, test: str | None, reading: Mapping[str, Any], test_features: str | None) -> Any:
    """The test set for `fit`: what the user gave, read here if it has a file of embeddings; official data have their own.

    Args:
        data: the training data.
        test: the test data, or None.
        reading: the options that the training data are read with.
        test_features: the file of embeddings of the test set, or None.
    """
    if test is None and is_official(data):
        test = data if test_features is not None or not is_vectors(reading.get("embed")) else None
    if test_features is None:
        return test
    if test is None or not is_vectors(test_features):
        needed = "a file that ends in .npy, .npz or .safetensors, together with --test"
        raise invalid_parameter("--test-features", "a run", needed, test_features)
    split = {"split": "test"} if is_official(test) else {}
    return read(test, **{**reading, **split, "embed": test_features})


def _read(config: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    try:
        written = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"The settings file {str(config)!r} cannot be read ({error}). Give a TOML file.") from None
    imports = as_list(written.pop("import", []))
    if not all(isinstance(name, str) for name in imports):
        raise invalid_parameter("import", str(config), "text, or a list of texts", imports)
    if imports:
        plugins.load(*imports)
    types = {**get_type_hints(Settings), **{name: kind for name, (kind, _) in (_READING | _TRAINING).items()}}
    for name, value in written.items():
        if name not in known:
            raise unknown("setting", name, known)
        if types[name] in _TYPE_NAMES and not all(isinstance(entry, types[name]) for entry in as_list(value)):
            raise invalid_parameter(name, str(config), _TYPE_NAMES[types[name]], value)
    return written | {name: as_list(written[name]) for name in ("features", "drop", "text") if name in written}


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: those that are not None or empty."""
    return {name: value for name, value in options.items() if value not in (None, [])}


def read_for(command: str, data: str | None, options: Mapping[str, Any]) -> Any:
    """The data set that runs were trained on, or None if it is not given."""
    given = without_none(options)
    if data is None and given:
        raise invalid_parameter("--data", command, f"given together with {', '.join(map(flag, given))}", None)
    return None if data is None else read(data, **given)


def integers(text: str, parameter: str, command: str) -> list[int]:
    """Parse integers separated by commas."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise invalid_parameter(parameter, command, "integers, such as 0,1,2", text) from None


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
