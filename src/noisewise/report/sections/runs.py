"""How every run was made: its settings and versions, and the command that trains it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from noisewise.data import is_official
from noisewise.report._facts import RunFacts
from noisewise.report._read import Page, Reading
from noisewise.runs import Settings
from noisewise.spec import readable

LINK, ORDER = "Runs", 80

_FLAGS = {name: f"--{name.replace('_', '-')}" for name in ("label", "true_label", "id", "image", "size")} | {"features": "--feature"}
"""The options of the command line for reading custom data."""

_ITS_OWN = ("source", "split", "features", "classes")

Source = Mapping[str, Any]


def page_facts(page: Page) -> dict[str, Any]:
    """Every run, under the key "runs", and the folders that could not be read, under "broken"."""
    labels = {run.folder: (task.number, label) for task in page.tasks for label, runs in task.by_label.items() for run in runs}
    return {"runs": [_run(run, *labels[run.folder]) for run in page.runs], "broken": page.broken}


def _run(run: Reading, task: int, label: str) -> RunFacts:
    record = run.dynamics.record
    provenance: Mapping[str, Any] = run.attempt(lambda: record.provenance) or {}
    data, model, noise = run.task
    return {
        "task": task,
        "loss": label,
        "noise": noise,
        "model": model,
        "data": data,
        "seed": run.known_seed,
        "state": run.state,
        "measures": run.measures,
        "reported": run.reported,
        "folder": str(run.folder),
        "settings": {name: readable(str(value)) for name, value in record.settings.items() if value is not None},
        "versions": {name: readable(str(value)) for name, value in _flat({**provenance, "sources": {}}) if value is not None},
        "command": run.attempt(lambda: repeat(record.settings, run.folder, provenance, corrected=run.origin is not None)),
        "notes": list(run.notes),
    }


def _flat(nested: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


def repeat(
    settings: Mapping[str, Any], folder: Path, provenance: Mapping[str, Any] = MappingProxyType({}), *, corrected: bool = False
) -> str:
    """The command that trains a run again, or the call in Python where a command cannot name its data.

    Args:
        settings: the settings of the run.
        folder: of the run.
        provenance: of the run, which says where its data were read from.
        corrected: whether it was trained on corrected labels, which no data set on disk has.

    Example:
        >>> print(repeat({"data": "digits", "model": "mlp", "loss": "imae(T=8)", "epochs": 5, "normalise": False}, Path("runs/a")))
        noisewise train --data digits --model mlp --loss 'imae(T=8)' --epochs 5 --no-normalise --output runs/a
        >>> print(repeat({"data": "arrays", "model": "mlp", "epochs": 5}, Path("runs/a")))
        noisewise.fit('mlp', data, epochs=5, folder='runs/a')
        >>> sources = {"train": {"source": "/pets.csv", "label": "kind"}, "test": {"source": "/checked.csv", "label": "kind"}}
        >>> print(repeat({"data": "pets", "model": "mlp", "epochs": 5}, Path("runs/a"), {"sources": sources}))
        noisewise train --data /pets.csv --label kind --test /checked.csv --model mlp --epochs 5 --output runs/a
        >>> print(repeat({"data": "own", "model": "own", "loss": "ce", "epochs": 5}, Path("runs/a"), {"recorded": True}))
        noisewise.Recorder('runs/a', labels, loss='ce')  # in your training loop
    """
    shown = {name: readable(value) if isinstance(value, str) else value for name, value in settings.items()}
    short = " and ".join(name for name, value in shown.items() if value != settings[name])
    note = f"  # {short} in full: settings.json of the run" if short else ""
    return _repeating(shown, folder, provenance, corrected) + note


def _repeating(settings: Mapping[str, Any], folder: Path, provenance: Mapping[str, Any], corrected: bool) -> str:
    if provenance.get("recorded"):
        return f"noisewise.Recorder({str(folder)!r}, labels, loss={settings['loss']!r})  # in your training loop"
    defaults = {field.name: field.default for field in fields(Settings)}
    asked = {name: value for name, value in settings.items() if name in defaults and value != defaults[name] and value is not None}
    del asked["data"]
    sources = provenance.get("sources", {})
    train, test = None if corrected else sources.get("train"), sources.get("test")
    test_unknown = test is None and "test" in provenance.get("data", {})
    options = None if train is None or test_unknown else _options(train, test)
    if options is None:
        spelled = {"test": "test" if test_unknown else None if test is None else _spelled(test)}
        rest = {name: repr(value) for name, value in asked.items() if name != "model"} | {"folder": repr(str(folder))}
        given = [f"{name}={value}" for name, value in (spelled | rest).items() if value is not None]
        return f"noisewise.fit({asked['model']!r}, {'data' if train is None else _spelled(train)}, {', '.join(given)})"
    words = ["noisewise", "train", *options]
    for name, value in (asked | {"output": folder}).items():
        option = name.replace("_", "-")
        words += [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)


def _options(train: Source, test: Source | None) -> list[str] | None:
    """The data as options of the command line, which reads both sets with the same options; None where that is not possible."""
    reading = {name: value for name, value in train.items() if name != "source"}
    if not reading.keys() <= _FLAGS.keys() or isinstance(reading.get("size"), list):
        return None
    words = ["--data", _shown(train["source"])]
    for name, value in reading.items():
        words += [word for one in (value if isinstance(value, list) else [value]) for word in (_FLAGS[name], str(one))]
    if test is None or (is_official(train["source"]) and test == {**train, "split": "test"}):
        return words
    # The columns and the classes of a test set are the training set's, whoever read it.
    read_alike = all(train.get(name) == test.get(name) for name in train.keys() | test.keys() if name not in _ITS_OWN)
    of_its_test_split = test.get("split") == ("test" if is_official(test["source"]) else None)
    return [*words, "--test", _shown(test["source"])] if read_alike and of_its_test_split else None


def _spelled(source: Source) -> str:
    """A data set in Python."""
    shown = repr(_shown(source["source"]))
    options = [f"{name}={value!r}" for name, value in source.items() if name != "source"]
    return f"noisewise.data.read({', '.join([shown, *options])})" if options else shown


def _shown(source: str) -> str:
    """A path relative to the working directory, if it is inside and does not look like an official data set."""
    path, here = Path(source), Path.cwd()
    near = str(path.relative_to(here)) if path.is_relative_to(here) else source
    return source if is_official(near) else near
