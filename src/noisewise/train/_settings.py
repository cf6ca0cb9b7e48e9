"""Check what a run is asked to do, before the first step. This module must not train anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import nn

from noisewise import losses, models
from noisewise.data import READ_OPTIONS, augmentations
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.noise import registry as noises
from noisewise.runs import Settings
from noisewise.spec import Interval, Named, Registry, as_int, name_of, real
from noisewise.train._optimisers import registry as optimisers
from noisewise.train._processes import own_gpu
from noisewise.train._schedules import registry as schedules

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
