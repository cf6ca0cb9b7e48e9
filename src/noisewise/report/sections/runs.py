"""Tables: averages over seeds, accuracies on each class, what was done to each column of a table, and how each run was made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from noisewise.data import is_official, is_vectors
from noisewise.dynamics import MEASURES, informative_measures, over_seeds
from noisewise.report._facts import Group, RunFacts
from noisewise.report._tasks import Page, ReportRun, Task, averaged_runs, is_tie, ranked, winner
from noisewise.runs import Settings, read_encoding
from noisewise.spec import readable

LINKS = {"results": ("Results", 10), "classes": ("Classes", 20), "columns": ("Columns", 75), "runs": ("Runs", 80)}

_SHOWN_CLASSES, _SHOWN_COLUMNS = 20, 60
_CLASS_TITLES = {"test": "Test accuracy by class", "validation": "Accuracy on held-out examples by class, by their given labels"}

_FLAGS = {name: f"--{name.replace('_', '-')}" for name in ("label", "true_label", "id", "image", "size", "drop", "text")}
_FLAGS |= {"features": "--feature", "columns": "--column", "embed": "--features"}
"""The command line options for reading custom data."""

_OWN_OPTIONS = ("source", "split", "features", "columns", "drop", "text", "classes")  # may differ between training and test set

Source = Mapping[str, Any]


def is_shown(name: str, facts: Mapping[str, Any]) -> bool:
    """Leave out the accuracies on each class, and the columns, if no task has them."""
    return name not in ("classes", "columns") or any(task[name] for task in facts["tasks"])


def page_facts(page: Page) -> dict[str, Any]:
    """The keys "measures" (columns), "groups" (averages of each loss on each task), "runs", and "broken" (unreadable folders)."""
    shown = informative_measures(MEASURES, [run.measures for run in page.runs])
    labels = {run.folder: (task.number, label) for task in page.tasks for label, runs in task.runs_by_label.items() for run in runs}
    return {
        "measures": [
            {"key": key, "title": title, "help": meaning, "unit": unit} for key, (title, meaning, unit) in MEASURES.items() if key in shown
        ],
        "groups": [group for task in page.tasks for group in _groups(task)],
        "runs": [_run(run, *labels[run.folder]) for run in page.runs],
        "broken": page.broken,
    }


def task_facts(task: Task) -> dict[str, Any]:
    """The keys "classes" (accuracies) and "columns" (what was done to them); None if there are none."""
    return {"classes": _classes(task), "columns": _columns(task)}


def _classes(task: Task) -> dict[str, Any] | None:
    """The accuracies on the test set, else on the held-out share; None if no run has them."""
    for split, title in _CLASS_TITLES.items():
        columns = {label: _class_averages(runs, split) for label, runs in task.runs_by_label.items()}
        columns = {label: averages for label, averages in columns.items() if averages}
        if columns:
            return _class_table(title, columns, next(iter(task.runs_by_label.values()))[0].label_counts)
    return None


def _columns(task: Task) -> dict[str, Any] | None:
    """What was done to each column; None if the data were no table, or one of numbers that are used as they are."""
    run = task.audited_run
    if not (run.attempt(lambda: run.dynamics.record.provenance) or {}).get("features"):
        return None
    encoding = run.attempt(lambda: read_encoding(run.folder))
    if encoding is None or (encoding.plain and len(encoding.used) == len(encoding.columns)):
        return None
    rows = [asdict(column) for column in encoding.columns[:_SHOWN_COLUMNS]]
    number = len(encoding.columns)
    note = f"The first {_SHOWN_COLUMNS} of {number:,} columns." if number > _SHOWN_COLUMNS else None
    return {"rows": rows, "inputs": len(encoding.names), "note": note}


def _class_averages(runs: Sequence[ReportRun], split: str) -> dict[str, float]:
    """The accuracy on each class, averaged over the seeds of one loss."""
    rows = [row for run in averaged_runs(runs) if (row := run.class_accuracies(split))]
    spreads = {name: over_seeds(row.get(name) for row in rows) for name in (rows[0] if rows else ())}
    return {name: spread.mean for name, spread in spreads.items() if spread is not None}


def _class_table(title: str, columns: Mapping[str, Mapping[str, float]], labels: Mapping[str, int]) -> dict[str, Any]:
    """A row per class: its name, how many training examples have its label (None if not known), and the accuracy of each loss."""
    names = dict.fromkeys(name for averages in columns.values() for name in averages)
    mean = {name: float(np.mean([averages[name] for averages in columns.values() if name in averages])) for name in names}
    rows = [
        {"name": name, "labels": labels.get(name), "accuracies": [averages.get(name) for averages in columns.values()]}
        for name in sorted(names, key=lambda name: mean[name])[:_SHOWN_CLASSES]
    ]
    note = f"The {_SHOWN_CLASSES} worst of {len(names):,} classes." if len(names) > _SHOWN_CLASSES else None
    return {"title": title, "note": note, "losses": list(columns), "rows": rows}


def _groups(task: Task) -> Iterator[Group]:
    best = None if len(ranked(task.standings)) < 2 or is_tie(task.standings) else winner(task.standings)
    for standing, runs in zip(task.standings, task.runs_by_label.values(), strict=True):
        yield {
            "task": task.number,
            "loss": standing.loss,
            "seeds": [run.known_seed for run in averaged_runs(runs)],
            "measures": {name: spread and spread._asdict() for name in MEASURES for spread in [standing.measures[name]]},
            "reported": runs[0].reported,
            "winner": standing is best,
        }


def _run(run: ReportRun, task: int, label: str) -> RunFacts:
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


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", value


def repeat(
    settings: Mapping[str, Any], folder: Path, provenance: Mapping[str, Any] = MappingProxyType({}), *, corrected: bool = False
) -> str:
    """The command that repeats a run, or the Python call if a command cannot name its data.

    Args:
        settings: the settings of the run.
        folder: the folder of the run.
        provenance: the provenance of the run, which names the source of the data.
        corrected: whether the run was trained on corrected labels, which are not in the source.

    Example:
        >>> settings = {"data": "digits", "model": "mlp", "loss": "imae(T=8)", "epochs": 5, "normalise": False}
        >>> print(repeat(settings, Path("runs/a"), {"sources": {"train": {"source": "digits"}}}))
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
    note = f"  # settings.json of the run has the full {short}" if short else ""
    return _repeat(shown, folder, provenance, corrected) + note


def _repeat(settings: Mapping[str, Any], folder: Path, provenance: Mapping[str, Any], corrected: bool) -> str:
    if provenance.get("recorded"):
        return f"noisewise.Recorder({str(folder)!r}, labels, loss={settings['loss']!r})  # in your training loop"
    defaults = {field.name: field.default for field in fields(Settings)}
    changed = {name: value for name, value in settings.items() if name in defaults and value != defaults[name] and value is not None}
    del changed["data"]
    sources = provenance.get("sources", {})
    train, test = None if corrected else sources.get("train"), sources.get("test")
    test_unknown = test is None and "test" in provenance.get("data", {})
    options = None if train is None or test_unknown else _options(train, test)
    if options is None:
        test_argument = {"test": "test" if test_unknown else None if test is None else _call(test)}
        rest = {name: repr(value) for name, value in changed.items() if name != "model"} | {"folder": repr(str(folder))}
        arguments = [f"{name}={value}" for name, value in (test_argument | rest).items() if value is not None]
        return f"noisewise.fit({changed['model']!r}, {'data' if train is None else _call(train)}, {', '.join(arguments)})"
    words = ["noisewise", "train", *options]
    for name, value in (changed | {"output": folder}).items():
        option = name.replace("_", "-")
        words += [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)


def _options(train: Source, test: Source | None) -> list[str] | None:
    """The data as command line options; None if the two sets need different options, which the command line does not have."""
    reading = {name: value for name, value in train.items() if name not in ("source", "embed_cache")}
    if not reading.keys() <= _FLAGS.keys() or isinstance(reading.get("size"), list) or isinstance(reading.get("embed"), Mapping):
        return None
    words = ["--data", _relative(train["source"])]
    for name, value in reading.items():
        if isinstance(value, Mapping):
            value = [f"{column}:{kind}" for column, kind in value.items()]
        words += [word for item in (value if isinstance(value, list) else [value]) for word in (_FLAGS[name], str(item))]
    if test is None or (is_official(train["source"]) and test == {**train, "split": "test"}):
        return words
    own = (*_OWN_OPTIONS, "embed") if is_vectors(train.get("embed")) and is_vectors(test.get("embed")) else _OWN_OPTIONS
    same_options = all(train.get(name) == test.get(name) for name in train.keys() | test.keys() if name not in own)
    is_test_split = test.get("split") == ("test" if is_official(test["source"]) else None)
    embeddings = ["--test-features", test["embed"]] if "embed" in own else []
    return [*words, "--test", _relative(test["source"]), *embeddings] if same_options and is_test_split else None


def _call(source: Source) -> str:
    """The Python expression that reads a data set."""
    shown = repr(_relative(source["source"]))
    shown_options = {name: repr(value) for name, value in source.items() if name not in ("source", "embed_cache")}
    if isinstance(source.get("embed"), Mapping):
        shown_options["embed"] = "module"  # a run does not store it
    options = [f"{name}={value}" for name, value in shown_options.items()]
    return f"noisewise.data.read({', '.join([shown, *options])})" if options else shown


def _relative(source: str) -> str:
    """A path relative to the working directory, if it is inside and does not look like the name of an official data set."""
    path, here = Path(source), Path.cwd()
    near = str(path.relative_to(here)) if path.is_relative_to(here) else source
    return source if is_official(near) else near
