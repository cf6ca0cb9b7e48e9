"""The settings of a run and the other JSON files of a run folder, read and checked value by value.

Values that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noisewise import plugins
from noisewise.errors import InputError, shown
from noisewise.runs._files import LARGE, Folder, exists, parse_json, read_json, read_text

if TYPE_CHECKING:
    import torch

FORMAT = 1
RECORDS = ("training", "clean")
"""The records of a run: from the training steps, and from passes in eval mode without augmentation."""

KINDS = ("margins", "predictions")
"""The arrays of a record, one of each per epoch."""

EVALUATED = ("test", "validation")
"""The sets whose accuracy on every class is recorded at evaluations."""

CALIBRATION = "calibration.json"

_LARGEST = 1e100  # the largest number in a file: its square is still finite


@dataclass(frozen=True, repr=False)
class Settings:
    """The settings of a run. The names are the same in Python, in a TOML file, on the command line and in a run folder.

    Args:
        data: the spec or path of a data set, or the name of a data set given as an object.
        model: the spec of a model, or the class name of a model given as an object.
        loss: a loss spec.
        noise: a noise spec; it is applied to the training labels.
        method: a method spec: a training rule that needs more than a loss, such as co_teaching or elr.
        epochs: the number of passes over the data; give this or `steps`.
        steps: the number of updates.
        seed: the seed of weights, order, augmentation, dropout and noise.
        batch_size: examples per update, over all processes.
        classes_per_batch: build every batch from this many groups of equal size, each with one given label; two groups may have the same
            label. By default a batch is drawn from all examples. The examples left over form the last batches of an epoch, which may
            have more labels.
        optimiser: an optimiser spec: sgd, adam or adamw.
        schedule: a learning-rate schedule spec: constant, cosine, step or multistep. Lengths in it are steps (updates), not epochs;
            numbers below 1 are shares of the run: multistep((0.5, 0.75)).
        weight_decay: L2 penalty.
        clip: the largest norm of the whole gradient; by default gradients are not clipped.
        accumulate: process each batch in this many parts, to save memory.
        augment: an augmentation spec, such as crop(4) + flip; evaluations do not augment.
        normalise: scale inputs to mean 0 and variance 1, with the statistics of the training set.
        validation: the share of the training examples (with their noisy labels) that is held out.
        patience: stop after this many evaluations in a row without improvement on the validation share; by default never.
        keep: which model the run keeps: "last" for the last epoch, "best" for the first evaluation with the best accuracy on the
            validation share, "label_wave" for the epoch before training predictions begin to change more from epoch to epoch (no
            validation share is needed). Training runs to its end in all cases.
        evaluate_every: epochs between evaluations.
        clean_pass: at evaluations, also record the training set in eval mode without augmentation.
        checkpoint_every: epochs between checkpoints.
        precision: "float32", "bfloat16" (the last layer of built-in models stays in float32), or "auto": bfloat16 on a GPU.
        compile: compile the model.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1"; Apple's GPUs are not used.
    """

    data: str
    model: str
    loss: str = "ce"
    noise: str = "none"
    method: str = "plain"
    epochs: int | None = None
    steps: int | None = None
    seed: int = 0
    batch_size: int = 128
    classes_per_batch: int | None = None
    optimiser: str = "sgd(lr=0.1, momentum=0.9)"
    schedule: str = "cosine"
    weight_decay: float = 1e-4
    clip: float | None = None
    accumulate: int = 1
    augment: str = "none"
    normalise: bool = True
    validation: float = 0.0
    patience: int | None = None
    keep: str = "last"
    evaluate_every: int = 1
    clean_pass: bool = True
    checkpoint_every: int = 1
    precision: str = "auto"
    compile: bool = False
    device: str = "auto"

    def __repr__(self) -> str:
        """Show only what differs from the defaults, like scikit-learn."""
        changed = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if getattr(self, field.name) != field.default)
        return f"Settings({', '.join(changed)})"

    @property
    def group(self) -> int:
        """The number of consecutive examples with the same label."""
        return 1 if self.classes_per_batch is None else self.batch_size // self.classes_per_batch

    def half(self, device: torch.device) -> bool:
        """Whether the body of the model computes in bfloat16."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Kind(NamedTuple):
    """A kind of value: its name in an error, and whether a value is one."""

    words: str
    fits: Callable[[Any], bool]

    def or_none(self) -> _Kind:
        return _Kind(f"{self.words} or null", lambda value: value is None or self.fits(value))

    def list_of(self) -> _Kind:
        return _Kind(f"a list, each entry {self.words}", lambda value: isinstance(value, list) and all(map(self.fits, value)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _at_least(least: int) -> _Kind:
    return _Kind(f"an integer of at least {least}", lambda value: type(value) is int and least <= value < 2**62)


def _is_source(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and isinstance(value.get("source"), str))


def _is_sums(value: Any) -> bool:
    return isinstance(value, dict) and _is_number(value.get("pull")) and _is_number(value.get("eta")) and value["eta"] >= 0


TEXT = _Kind("text", lambda value: isinstance(value, str))
COUNT, POSITIVE = _at_least(0), _at_least(1)
NUMBER = _Kind("a number", _is_number)
SHARE = _Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
TEMPERATURE = _Kind("a number above 0", lambda value: _is_number(value) and value > 0)
FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = _Kind("an object", lambda value: isinstance(value, dict))

_SETTINGS = {
    **dict.fromkeys(("data", "model", "loss", "noise", "method", "optimiser", "schedule", "augment", "keep", "precision", "device"), TEXT),
    **dict.fromkeys(("epochs", "steps", "classes_per_batch", "patience"), POSITIVE.or_none()),
    **dict.fromkeys(("batch_size", "accumulate", "evaluate_every", "checkpoint_every"), POSITIVE),
    **dict.fromkeys(("normalise", "clean_pass", "compile"), FLAG),
    "seed": _Kind("an integer of at least 0", lambda value: type(value) is int and value >= 0),
    "weight_decay": NUMBER,
    "validation": SHARE,
    "clip": NUMBER.or_none(),
}
_STATUS = {"state": TEXT, "reason": TEXT.or_none(), "epoch": COUNT, "step": COUNT, "kept": COUNT}
_CHECKPOINT = {"epoch": COUNT, "step": COUNT, "best": SHARE.or_none(), "best_epoch": COUNT, "waited": COUNT}
_CORRECTION = {
    **dict.fromkeys(("folder", "policy", "labels"), TEXT),
    **dict.fromkeys(("settings", "otherwise", "source", "changes", "before"), OBJECT),
    "steps": TEXT.list_of(),
}
_BEFORE = {"labels": TEXT, "examples": POSITIVE, "wrong": COUNT.or_none(), "final": SHARE.or_none(), "best": SHARE.or_none()}
_PROVENANCE = {
    "data": _Kind("an object of objects", lambda value: OBJECT.fits(value) and all(map(OBJECT.fits, value.values()))),
    "sources": _Kind(
        "an object with the arguments that read each data set, or null",
        lambda value: isinstance(value, dict) and {"train", "test"} <= value.keys() and all(map(_is_source, value.values())),
    ),
    "recorded": FLAG,
    "normalise": TEXT.or_none(),
    "shape": COUNT.list_of().or_none(),
    "type": TEXT,
    "features": TEXT.list_of().or_none(),
    "imports": OBJECT.list_of(),
}
_DATA = {"examples": COUNT, "inputs": TEXT, "sizes": TEXT, "cells": TEXT, "labels": TEXT}
_METRICS = {
    "epoch": POSITIVE,
    "step": COUNT,
    **dict.fromkeys(("lr", "train_loss", "mean_emphasis", "seconds"), NUMBER.or_none()),
    **dict.fromkeys((f"{of}_{kind}" for of in EVALUATED for kind in ("accuracy", "balanced_accuracy")), SHARE.or_none()),
    "adapted": _Kind("an object with numbers", lambda value: isinstance(value, dict) and all(map(_is_number, value.values()))),
    "emphasis": _Kind("an object with sums", lambda value: isinstance(value, dict) and all(map(_is_sums, value.values()))),
}


def check_values(where: str, content: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> None:
    """Refuse a value of the wrong kind; names without a kind are not checked, and `where` names the file in the error."""
    for name, kind in kinds.items():
        if name in content and not kind.fits(content[name]):
            raise InputError(
                f"The value of {name!r} in {where} must be {kind.words}. Got {shown(content[name])} instead; copy the run folder again."
            )


def read_settings(folder: Folder) -> dict[str, Any]:
    """The settings of a run, as a mapping; a folder without settings is not a run."""
    if not exists(folder, "settings.json"):
        raise InputError(f"There is no run in {str(folder)!r}: it has no settings.json. Give the folder of a run.")
    settings: dict[str, Any] = read_json(folder, "settings.json")
    if settings.get("format", FORMAT) == FORMAT:  # another format may have other values
        check_values(repr(str(Path(folder) / "settings.json")), settings, _SETTINGS)
    with suppress(InputError):  # a run without provenance, or with a damaged one, has settings all the same
        if imports := read_provenance(folder).get("imports"):
            plugins.remember(folder, imports)
    return settings


def load_settings(folder: Folder) -> Settings:
    """The settings of a run; a run with another format is refused."""
    written = read_settings(folder)
    version = written.pop("format", FORMAT)
    known = {field.name: field.default is MISSING for field in fields(Settings)}
    problems = [f"has format {version!r}, not {FORMAT}"] if version != FORMAT else []
    problems += [f"has an unknown setting {name!r}" for name in written if name not in known]
    problems += [f"has no setting {name!r}" for name, needed in known.items() if needed and name not in written]
    if problems:
        raise InputError(f"The run in {str(folder)!r} {problems[0]}. Read it with the version of noisewise that wrote it.")
    return Settings(**written)


def read_status(folder: Folder, needs: Sequence[str] = ()) -> dict[str, Any]:
    """The state, epoch and step of a run; names in `needs` are required."""
    return _read_object(folder, "status.json", _STATUS, needs)


def read_provenance(folder: Folder, needs: Sequence[str] = ()) -> dict[str, Any]:
    """The versions, data and noise of a run; names in `needs` are required."""
    provenance = _read_object(folder, "provenance.json", _PROVENANCE, needs)
    for part in provenance.get("data", {}).values():
        check_values(repr(str(Path(folder) / "provenance.json")), part, _DATA)
    return provenance


def read_classes(folder: Folder) -> tuple[str, ...]:
    """The name of every class of a run."""
    return read_names(folder, "classes.json")


def read_names(folder: Folder, name: str) -> tuple[str, ...]:
    """A list of names in a JSON file of a run."""
    names = read_json(folder, name, list, limit=LARGE)
    if not all(map(TEXT.fits, names)):
        raise InputError(f"The file {str(Path(folder) / name)!r} must be a list of strings. Copy the run folder again.")
    return tuple(names)


def read_metrics(folder: Folder) -> tuple[dict[str, Any], ...]:
    """One entry per finished epoch of a run, in order. If an epoch has several lines, the last one is used."""
    if not exists(folder, "metrics.jsonl"):
        return ()
    path, entries = Path(folder) / "metrics.jsonl", dict[int, dict[str, Any]]()
    for number, line in enumerate(read_text(folder, "metrics.jsonl").splitlines(), 1):
        try:
            entry = parse_json(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "epoch" not in entry:
            raise InputError(f"Line {number} of {str(path)!r} is not the metrics of an epoch: {line[:60]!r}. Fix or delete that line.")
        check_values(f"line {number} of {str(path)!r}", entry, _METRICS)
        entries[entry["epoch"]] = entry
    return tuple(entries[epoch] for epoch in sorted(entries))


def read_shares(folder: Folder, name: str) -> dict[str, float | None]:
    """Numbers from 0 to 1 in a JSON file of a run, by name."""
    content: dict[str, float | None] = read_json(folder, name)
    check_values(repr(str(Path(folder) / name)), content, dict.fromkeys(content, SHARE.or_none()))
    return content


def read_temperature(folder: Folder) -> float:
    """The temperature that scores are divided by before softmax; 1 for a run without calibration."""
    if not exists(folder, CALIBRATION):
        return 1.0
    return float(_read_object(folder, CALIBRATION, {"temperature": TEMPERATURE}, ("temperature",))["temperature"])


def read_correction(folder: Folder, name: str) -> dict[str, Any]:
    """The origin of a run on corrected labels."""
    content, where = _read_object(folder, name, _CORRECTION, list(_CORRECTION)), repr(str(Path(folder) / name))
    for part, key in [*(("before", key) for key in _BEFORE), ("settings", "data")]:
        if key not in content[part]:
            raise InputError(f"The file {where} has no {key!r} in {part!r}. Copy the run folder again.")
    check_values(where, content["before"], _BEFORE)
    check_values(where, content["changes"], dict.fromkeys(content["changes"], COUNT))
    for part in ("settings", "otherwise", "source"):
        check_values(where, content[part], _SETTINGS)
    return content


def check_checkpoint(where: str, notes: Mapping[str, Any], epoch: int) -> None:
    """Refuse the notes of a checkpoint if they are incomplete or of another epoch than the file name says."""
    for name in _CHECKPOINT:
        if name not in notes:
            raise InputError(f"The checkpoint {where} has no {name!r}. Copy the run folder again.")
    check_values(where, notes, _CHECKPOINT)
    if notes["epoch"] != epoch:
        raise InputError(f"The checkpoint {where} is of epoch {notes['epoch']}, unlike its name. Copy the run folder again.")


def _read_object(folder: Folder, name: str, kinds: Mapping[str, _Kind], needs: Sequence[str] = ()) -> dict[str, Any]:
    content: dict[str, Any] = read_json(folder, name, needs=needs)
    check_values(repr(str(Path(folder) / name)), content, kinds)
    return content
