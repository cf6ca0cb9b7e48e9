"""What a run is asked to do, checked before the first step, and the data that it is trained and tested on.

This module must not train anything.
"""

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

from noisewise import losses, models
from noisewise.arrays import NO_CLASS, first_positions
from noisewise.data import READ_OPTIONS, Dataset, ImageFiles, Official, augmentations, is_official, match_dtype, read, split
from noisewise.errors import InputError, invalid_parameter, listed, unknown
from noisewise.noise import Corruption
from noisewise.noise import registry as noises
from noisewise.runs import Settings, as_before, make_provenance, source_kind
from noisewise.spec import Interval, Named, Registry, as_int, name_of, real
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._processes import own_gpu

_WHOLE = dict.fromkeys(
    ("epochs", "steps", "batch_size", "classes_per_batch", "accumulate", "patience", "evaluate_every", "checkpoint_every"), 1
) | {"seed": 0}
_BOUNDS = {name: Interval.parse(bounds) for name, bounds in (("weight_decay", "[0, inf)"), ("validation", "[0, 1)"), ("clip", "(0, inf)"))}
_OPTIONAL = ("epochs", "steps", "classes_per_batch", "patience", "clip")
_YES_OR_NO = ("normalise", "clean_pass", "compile")
_FILE = re.compile(r"\.\w+['\"]")  # the end of a file's name in a spec
_CHOICES = {"precision": ("auto", "float32", "bfloat16"), "keep": ("last", "best")}
_REGISTRIES: dict[str, Registry[Any]] = {
    "loss": losses.Loss.registry,
    "noise": noises,
    "optimiser": optimisers,
    "schedule": schedules,
    "augment": augmentations,
}


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Settings from names and values, every one checked.

    Where a spec is asked for, an object that a spec can say will do: a run folder holds text. So will a number of numpy and a
    device of torch.

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
            said = repr(given[name]) if isinstance(given[name], str | int) else "…"
            raise InputError(
                f"There is no setting named {name!r}: it says how data are read. Give noisewise.data.read(…, {name}={said}) as data."
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
    for name, least in _WHOLE.items():
        value = getattr(settings, name)
        if value is not None or name not in _OPTIONAL:
            as_int(name, "a run", value, least)
    for name in _YES_OR_NO:
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
        raise InputError("Early stopping watches a validation share. Got patience without validation; say for example validation=0.1.")
    if settings.keep == "best" and settings.validation == 0:
        raise InputError("The best model is found on a validation share. Got keep='best' without validation; say validation=0.1 too.")
    if settings.accumulate > settings.batch_size:
        raise invalid_parameter("accumulate", "a run", f"at most the batch_size, {settings.batch_size}", settings.accumulate)
    if settings.classes_per_batch is not None and settings.batch_size % settings.classes_per_batch:
        raise invalid_parameter(
            "classes_per_batch", "a run", f"a divisor of the batch_size, {settings.batch_size}", settings.classes_per_batch
        )
    loss = losses.get(settings.loss)
    if not loss.of_classes:
        raise InputError(f"In a run every example has one label, a class. Got {loss!r}; train several yes/no labels in your own loop.")
    if loss.reduction != "mean":
        raise InputError(f"A run trains on the mean of a batch's losses. Got {loss!r}; leave its reduction out.")
    if loss.depends_on_batch and any(getattr(part, "label_smoothing", 0) > 0 for part in loss.modules()):
        with torch.random.fork_rng([]):  # one draws
            classes = 2 if loss.weight is None else len(loss.weight)
            loss(torch.zeros(2, classes), torch.tensor([0, 1]))  # refuses what it cannot smooth
    if settings.accumulate > 1 and loss.depends_on_batch:
        losses.Accumulation(loss)  # refuses a loss that cannot be put together from parts
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
        found = f"its CUDA devices are numbered below {number}" if number else "there is no CUDA device here"
        raise invalid_parameter("device", "a run", f"one this machine has ({found})", settings.device)
    return own_gpu() if device == torch.device("cuda") else device


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _spec(setting: str, registry: Registry[Any], value: Any) -> str:
    """The spec of what was given: as it was written, or the repr of an object, if that says all there is to the object.

    One that names a file is kept as what was read: a run must not change with the file.
    """
    if isinstance(value, str):
        return repr(registry.get(value)) if _FILE.search(value) else value
    if not isinstance(value, Named) or value.registry is not registry:
        raise invalid_parameter(setting, "a run", f"the spec of a known {registry.kind} or such an object", value)
    try:
        again = registry.get(repr(value))
    except InputError:
        again = None
    if repr(again) != repr(value) or _kinds(again) != _kinds(value):
        raise InputError(
            f"A run folder holds specs, and none says all of the {registry.kind} {value!r}: its class has no name in the registry, or a "
            "number in it is rounded when it is read. Give the class a name (name=…), or give the spec string."
        )
    return repr(value)


def _kinds(thing: Any) -> list[type]:
    """The class of a named thing and of those it is made of."""
    if isinstance(thing, nn.Module):
        return [type(part) for part in thing.modules()]
    held = [part for value in vars(thing).values() if isinstance(value, tuple) for part in value]
    return [type(part) for part in (thing, *held)]


def check_model(spec: str) -> None:
    """Refuse a model spec that names no model, before any data are read."""
    models.registry[name_of(spec)]


@dataclass(frozen=True)
class Sources:
    """The data of a run.

    Args:
        train: with the labels it is trained on.
        validation: a share of the training examples that is kept out, wrong labels and all; or None.
        test: with right labels; or None.
        corruption: what the noise did; or None.
        read_from: what the training and the test set can be read from again, by "train" and "test"; None where nobody knows.
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
        """What the run is made with; see `noisewise.runs.make_provenance`."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return make_provenance(parts, self.read_from, self.corruption, device)


def gather(data: Any, test: Any, settings: Settings) -> Sources:
    """Read the data, corrupt the training labels, set the validation share apart."""
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
            wanted = f"one that leaves neither part of {len(train)} examples empty"
            raise invalid_parameter("validation", "a run", wanted, settings.validation) from None
    return Sources(train, validation, test, corruption, read_from)


def check_augment(data: Dataset, settings: Settings) -> None:
    """Refuse an augmentation of what is no images: it would do nothing."""
    if data.inputs.dim() != 4 and augmentations.get(settings.augment).name != "none":
        raise invalid_parameter("augment", "a run", '"none" where the inputs are no images', settings.augment)


def check_apart(folder: Path, sources: Sources) -> None:
    """Refuse a run inside a folder of images: it would be taken for a class when they are read again."""
    for source in (Path(found["source"]) for found in sources.read_from.values() if found and source_kind(found["source"]) == "folder"):
        if source.resolve() in folder.resolve().parents:
            raise InputError(
                f"The run folder {str(folder)!r} lies in the folder of images {str(source)!r}, where it would be taken for a class. "
                "Give one outside."
            )


def read_both(data: Any, test: Any) -> tuple[Dataset, Dataset | None]:
    """Training and test set, with the same columns and classes, the test set with its true labels where it has some.

    An official data set brings its own test set.
    """
    train = read(data)
    if test is None and isinstance(data, str) and is_official(data):
        test = data
    if test is None:
        return train, None
    found = _read_test(test, train) if isinstance(test, str | os.PathLike) else read(test)
    alike = _with_classes(_with_features(found, train), train.classes)
    if alike.inputs.shape[1:] != train.inputs.shape[1:]:
        raise InputError(
            f"The test set must have inputs shaped {tuple(train.inputs.shape[1:])}, like the training set's. "
            f"Got {tuple(alike.inputs.shape[1:])}; give another test set."
        )
    alike = replace(alike, inputs=match_dtype(alike.inputs, str(train.inputs.dtype), "The inputs of the test set"))
    return train, _with_truth(alike).read_from(found.source)


def _read_test(test: str | os.PathLike[str], train: Dataset) -> Dataset:
    """Read a test set from its path or name, as the training set was read: with its options, columns and classes."""
    given, kind = as_before(test, train.source), source_kind(test)
    given |= {"split": "test"} if kind == "official" else {"classes": train.classes}
    if kind == "table" and train.features is not None:
        given["features"] = train.features
    try:
        return read(**given)
    except InputError as error:
        raise InputError(f"The test set cannot be read as the training set {train.name!r} was: {error}") from None


def _with_features(test: Dataset, train: Dataset) -> Dataset:
    """The test set with its columns as the training set has them; it may have more."""
    if train.features is None or test.features is None or test.features == train.features:
        return test
    places = first_positions(test.features)
    missing = [name for name in train.features if name not in places]
    if missing:
        raise InputError(
            f"The test set {test.name!r} has no column {listed(map(repr, missing))}, which the training set {train.name!r} has. "
            f"Its columns are {listed(test.features)}; give one with all of them."
        )
    columns = torch.tensor([places[name] for name in train.features], device=test.inputs.device)
    return replace(test, inputs=test.inputs[:, columns], features=train.features)


def _with_classes(test: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The test set with its labels numbered as the training set's classes are; it may lack some of them."""
    if test.classes == classes:
        return test
    places = first_positions(classes)
    for name in test.classes:
        if name not in places:
            raise InputError(f"The test set has a class {name!r} that the training set has not. Its classes are {listed(classes)}.")
    numbers = torch.tensor([places[name] for name in test.classes], device=test.labels.device)
    numbers_of_truth = torch.cat([numbers, numbers.new_tensor([NO_CLASS])])  # −1 is its last place
    true_labels = None if test.true_labels is None else numbers_of_truth[test.true_labels]
    return replace(test, labels=numbers[test.labels], true_labels=true_labels, classes=classes, human={})


def _with_truth(test: Dataset) -> Dataset:
    """The test set with the labels that are known to be right, which a model is tested by."""
    truth = test.true_labels
    return test if truth is None else replace(test, labels=torch.where(truth == NO_CLASS, test.labels, truth))


def called(data: Any) -> str:
    """What the settings say of data that were given as an object."""
    if isinstance(data, str | os.PathLike | Official):
        return str(data)
    if isinstance(data, Dataset | ImageFiles):
        return data.name
    if isinstance(data, DataLoader):
        return "loader"
    return "arrays" if isinstance(data, tuple | list) else type(data).__name__
