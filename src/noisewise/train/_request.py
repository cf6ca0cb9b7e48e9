"""Check the settings of a run before the first step, and read its training and test data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from noisewise import losses, methods, models
from noisewise.arrays import NO_CLASS, first_positions
from noisewise.data import (
    READ_OPTIONS,
    Dataset,
    ImageFiles,
    Official,
    VectorFile,
    augmentations,
    has_named_columns,
    is_official,
    match_dtype,
    read,
    split,
)
from noisewise.errors import InputError, invalid_parameter, listed, unknown
from noisewise.noise import Corruption
from noisewise.noise import registry as noises
from noisewise.runs import Settings, make_provenance, reading_arguments, source_kind
from noisewise.spec import Interval, Named, Registry, as_int, name_of, real
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._processes import own_gpu

_INTEGERS = dict.fromkeys(
    ("epochs", "steps", "batch_size", "classes_per_batch", "accumulate", "patience", "evaluate_every", "checkpoint_every"), 1
) | {"seed": 0}
_BOUNDS = {name: Interval.parse(bounds) for name, bounds in (("weight_decay", "[0, inf)"), ("validation", "[0, 1)"), ("clip", "(0, inf)"))}
_OPTIONAL = ("epochs", "steps", "classes_per_batch", "patience", "clip")
_FLAGS = ("normalise", "clean_pass", "compile")
_FILE = re.compile(r"\.\w+['\"]")  # the end of a file name in a spec
_CHOICES = {"precision": ("auto", "float32", "bfloat16"), "keep": ("last", "best", "label_wave")}
_REGISTRIES: dict[str, Registry[Any]] = {
    "loss": losses.Loss.registry,
    "noise": noises,
    "method": methods.registry,
    "optimiser": optimisers,
    "schedule": schedules,
    "augment": augmentations,
}


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Make settings from names and values, and check all of them.

    Losses, noises and so on are given as specs, or as objects that can be built from their repr, because run folders store text.

    Example:
        >>> make_settings({"data": "digits", "model": "mlp", "epochs": 5, "loss": losses.GCE(q=0.5)}).loss
        'gce(q=0.5)'
        >>> make_settings({"data": "digits", "model": "mlp", "epochs": 5, "loss": "imea"})
        Traceback (most recent call last):
        noisewise.errors.InputError: There is no loss named 'imea'. Did you mean 'imae' or 'mse' or 'mae'?
    """
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name in READ_OPTIONS - set(known):
            value = repr(given[name]) if isinstance(given[name], str | int) else "…"
            raise InputError(
                f"{name!r} is an option of noisewise.data.read, not a setting. Give noisewise.data.read(…, {name}={value}) as data."
            )
        if name not in known:
            raise unknown("setting", name, known)
    for name in ("data", "model"):
        if not given.get(name):
            raise invalid_parameter(name, "a run", "given", given.get(name))
    specs = {name: _spec(name, registry, given[name]) for name, registry in _REGISTRIES.items() if name in given}
    settings = Settings(**{**{name: _plain(value) for name, value in given.items()}, **specs})
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    for name, least in _INTEGERS.items():
        value = getattr(settings, name)
        if value is not None or name not in _OPTIONAL:
            as_int(name, "a run", value, least)
    for name in _FLAGS:
        if not isinstance(getattr(settings, name), bool):
            raise invalid_parameter(name, "a run", "true or false", getattr(settings, name))
    for name, choices in _CHOICES.items():
        if getattr(settings, name) not in choices:
            raise invalid_parameter(name, "a run", "one of " + ", ".join(map(repr, choices)), getattr(settings, name))
    for name, bounds in _BOUNDS.items():
        value = getattr(settings, name)
        if not (value is None and name in _OPTIONAL) and real(value) not in bounds:
            raise invalid_parameter(name, "a run", f"in {bounds}", value)
    if (settings.epochs is None) == (settings.steps is None):
        raise InputError(f"A run needs either epochs or steps. Got epochs={settings.epochs}, steps={settings.steps}.")
    if settings.patience is not None and settings.validation == 0:
        raise InputError("Early stopping needs a validation share. Got patience without validation; give for example validation=0.1.")
    if settings.keep == "best" and settings.validation == 0:
        raise InputError("The best model is chosen on a validation share. Got keep='best' without validation; give, say, validation=0.1.")
    if settings.keep == "label_wave" and settings.evaluate_every > 1:
        raise InputError(
            "Label Wave may keep the model of any epoch, so every epoch is evaluated. "
            f"Got keep='label_wave' with evaluate_every={settings.evaluate_every}; leave out evaluate_every."
        )
    if settings.accumulate > settings.batch_size:
        raise invalid_parameter("accumulate", "a run", f"at most the batch_size, {settings.batch_size}", settings.accumulate)
    if settings.classes_per_batch is not None and settings.batch_size % settings.classes_per_batch:
        raise invalid_parameter(
            "classes_per_batch", "a run", f"a divisor of the batch_size, {settings.batch_size}", settings.classes_per_batch
        )
    method = methods.get(settings.method)
    if settings.accumulate > 1 and (method.networks > 1 or method.needs_whole_batch):
        raise InputError(f"The method {method!r} needs every batch as a whole. Got accumulate={settings.accumulate}; leave it out.")
    loss = losses.get(settings.loss)
    if not loss.of_classes:
        raise InputError(f"In a run every example has one class. Got {loss!r}; train multi-label data in a custom loop.")
    if loss.reduction != "mean":
        raise InputError(f"A run minimises the mean loss of a batch. Got {loss!r}; leave out the reduction.")
    if loss.depends_on_batch and any(getattr(part, "label_smoothing", 0) > 0 for part in loss.modules()):
        with torch.random.fork_rng([]):
            loss(torch.zeros(2, 2 if loss.weight is None else len(loss.weight)), torch.tensor([0, 1]))  # refuses label smoothing
    if settings.accumulate > 1 and loss.depends_on_batch:
        losses.Accumulation(loss)  # refuses a loss that cannot be accumulated
    for name, registry in _REGISTRIES.items():
        registry.get(getattr(settings, name))
    device_of(settings)


def device_of(settings: Settings) -> torch.device:
    """The device that a run is trained on."""
    if settings.device == "auto":
        return own_gpu() if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(settings.device)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise invalid_parameter("device", "a run", "auto, cpu, cuda or cuda:0", settings.device)
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= number:
        available = f"cuda:0 to cuda:{number - 1}" if number else "no CUDA device"
        raise invalid_parameter("device", "a run", f"a device of this machine, which has {available}", settings.device)
    return own_gpu() if device == torch.device("cuda") else device


def _plain(value: Any) -> Any:
    """A value that JSON can store."""
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _spec(setting: str, registry: Registry[Any], value: Any) -> str:
    """The spec of a setting: the given text, or the repr of an object, if the object can be built from it.

    A spec that names a file is replaced by the content of the file, so that a run does not depend on the file.
    """
    if isinstance(value, str):
        return repr(registry.get(value)) if _FILE.search(value) else value
    if not isinstance(value, Named) or value.registry is not registry:
        raise invalid_parameter(setting, "a run", f"the spec of a known {registry.kind}, or a {registry.kind}", value)
    try:
        again = registry.get(repr(value))
    except InputError:
        again = None
    if repr(again) != repr(value) or _kinds(again) != _kinds(value):
        raise InputError(
            f"A run folder stores every {registry.kind} as a spec, and {value!r} cannot be built from its spec: its class is not "
            "registered, or a number would be rounded. Register the class with a name (name=…), or give a spec."
        )
    return repr(value)


def _kinds(thing: Any) -> list[type]:
    """The classes of an object and of its parts."""
    if isinstance(thing, nn.Module):
        return [type(part) for part in thing.modules()]
    return [type(thing), *(type(part) for value in vars(thing).values() if isinstance(value, tuple) for part in value)]


def check_model(spec: str) -> None:
    """Refuse the spec of an unknown model, before any data are read."""
    models.registry[name_of(spec)]


@dataclass(frozen=True)
class Sources:
    """The data of a run.

    Args:
        train: the training set, with noisy labels.
        validation: the held-out share of the training examples, with noisy labels; or None.
        test: the test set, with true labels; or None.
        corruption: what the noise did to the labels; or None.
        read_from: by "train" and "test", the arguments of `noisewise.data.read` that give the set again; None if not known.
    """

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    corruption: Corruption | None
    read_from: Mapping[str, Mapping[str, Any] | None]

    def to(self, device: torch.device) -> Sources:
        moved = [None if part is None else part.to(device) for part in (self.train, self.validation, self.test)]
        assert moved[0] is not None
        return replace(self, train=moved[0], validation=moved[1], test=moved[2])

    def provenance(self, device: torch.device) -> dict[str, Any]:
        """See `noisewise.runs.make_provenance`."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return make_provenance(parts, self.read_from, self.corruption, device)


def gather(data: Any, test: Any, settings: Settings) -> Sources:
    """Read the data, corrupt the training labels, and split off the validation share."""
    train, test = read_both(data, test)
    check_augment(train, settings)
    read_from = {"train": train.source, "test": None if test is None else test.source}
    corruption = None
    if settings.noise != "none":
        corruption = train.corruption(settings.noise, seed=settings.seed)
        train = train.corrupted(corruption)
    validation = None
    if settings.validation > 0:
        try:
            validation, train = split(train, settings.validation, seed=settings.seed)
        except InputError:  # the share itself was checked with the other settings
            requirement = f"a share that leaves neither part of {len(train)} examples empty"
            raise invalid_parameter("validation", "a run", requirement, settings.validation) from None
    return Sources(train, validation, test, corruption, read_from)


def check_augment(data: Dataset, settings: Settings) -> None:
    """Refuse to augment inputs that are not images."""
    if data.inputs.dim() != 4 and augmentations.get(settings.augment).name != "none":
        raise invalid_parameter("augment", "a run", '"none" if the inputs are not images', settings.augment)


def check_outside_images(folder: Path, sources: Sources) -> None:
    """Refuse a run folder inside a folder of images, where it would be read as a class."""
    for source in (arguments["source"] for arguments in sources.read_from.values() if arguments):
        if source_kind(source) == "folder" and Path(source).resolve() in folder.resolve().parents:
            raise InputError(
                f"The run folder {str(folder)!r} is inside the folder of images {str(source)!r}, where it would be read as a class. "
                "Give a folder outside."
            )


def read_both(data: Any, test: Any) -> tuple[Dataset, Dataset | None]:
    """Read the training and the test set, with the same columns and classes; the test set has its true labels, if known.

    An official data set has its own test set.
    """
    train = read(data)
    if test is None and isinstance(data, str) and is_official(data):
        test = data
    if test is None:
        return train, None
    from_path = isinstance(test, str | os.PathLike)
    raw = _read_test(test, train) if from_path or (has_named_columns(test) and train.source is not None) else read(test)
    test_set = _with_classes(_with_features(raw, train), train.classes)
    if test_set.inputs.shape[1:] != train.inputs.shape[1:]:
        raise InputError(
            f"The test set must have inputs shaped {tuple(train.inputs.shape[1:])}, like the training set. "
            f"Got {tuple(test_set.inputs.shape[1:])}; give another test set."
        )
    inputs = match_dtype(test_set.inputs, str(train.inputs.dtype), "The inputs of the test set")
    truth = test_set.true_labels
    labels = test_set.labels if truth is None else torch.where(truth == NO_CLASS, test_set.labels, truth)
    return train, replace(test_set, inputs=inputs, labels=labels).read_from(raw.source)


def _read_test(test: Any, train: Dataset) -> Dataset:
    """Read a test set from its path or name, or from a frame, with the options, columns and classes of the training set."""
    if isinstance(test, str | os.PathLike):
        arguments, kind = reading_arguments(test, train.source), source_kind(test)
    else:
        arguments, kind = {**(train.source or {}), "source": test}, "table"
    if isinstance(train.embedder, VectorFile):
        raise InputError(
            f"The training set {train.name!r} has embeddings from the file {train.embedder.name!r}, so the test set needs its own: "
            "give test=read(…, embed=FILE), or --test-features FILE."
        )
    if train.embedder is not None:
        arguments["embed"] = train.embedder
    arguments |= {"split": "test"} if kind == "official" else {"classes": train.classes}
    if kind == "table" and train.encoding is not None:
        arguments["encoding"] = train.encoding
    try:
        return read(**arguments)
    except InputError as error:
        raise InputError(f"The test set cannot be read like the training set {train.name!r}: {error}") from None


def _with_features(test: Dataset, train: Dataset) -> Dataset:
    """The test set with the columns of the training set; it may have more."""
    if train.encoding is not None and test.encoding is not None:
        return test.encoded_by(train.encoding, f"the training set {train.name!r}")
    if train.features is None or test.features is None or test.features == train.features:
        return test
    positions = first_positions(test.features)
    missing = [name for name in train.features if name not in positions]
    if missing:
        raise InputError(
            f"The test set {test.name!r} has no column {listed(map(repr, missing))}, which the training set {train.name!r} has. "
            f"Its columns are {listed(test.features)}; give a test set with all columns."
        )
    columns = torch.tensor([positions[name] for name in train.features], device=test.inputs.device)
    return replace(test, inputs=test.inputs[:, columns], features=train.features)


def _with_classes(test: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The test set with labels numbered like the classes of the training set; some classes may be missing."""
    if test.classes == classes:
        return test
    positions = first_positions(classes)
    for name in test.classes:
        if name not in positions:
            raise InputError(f"The test set has a class {name!r} that is not in the training set, which has {listed(classes)}.")
    numbers = torch.tensor([positions[name] for name in test.classes], device=test.labels.device)
    with_no_class = torch.cat([numbers, numbers.new_tensor([NO_CLASS])])  # index −1 is its last entry
    true_labels = None if test.true_labels is None else with_no_class[test.true_labels]
    return replace(test, labels=numbers[test.labels], true_labels=true_labels, classes=classes, human={})


def data_name(data: Any) -> str:
    """The name of data in the settings."""
    if isinstance(data, str | os.PathLike | Official):
        return str(data)
    if isinstance(data, Dataset | ImageFiles):
        return data.name
    if isinstance(data, DataLoader):
        return "loader"
    return "arrays" if isinstance(data, tuple | list) else type(data).__name__
