"""When two settings describe the same run: every setting that decides the outcome is the same, however it is written.

The seed is ignored, and so is how a run is stored and computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from noisewise import losses, methods
from noisewise.data import augmentations
from noisewise.data import registry as data_sets
from noisewise.errors import InputError
from noisewise.extensions import extension
from noisewise.models import without_weights
from noisewise.noise import registry as noises
from noisewise.runs import Settings

_REGISTRIES: dict[str, Callable[[str], Any]] = {
    "data": data_sets.get,
    "model": lambda spec: without_weights(spec, num_classes=2),
    "loss": losses.get,
    "noise": noises.get,
    "method": methods.get,
    "augment": augmentations.get,
    "optimiser": lambda spec: extension("optimisers").get(spec),
    "schedule": lambda spec: extension("schedules").get(spec),
}
_IGNORED = ("seed", "checkpoint_every", "precision", "compile", "device")


@cache
def defaults() -> dict[str, Any]:
    """The default of every setting of a run, by name."""
    return {field.name: field.default for field in fields(Settings)}


@cache
def _fractions() -> tuple[str, ...]:
    """The settings that are floating-point numbers."""
    return tuple(field.name for field in fields(Settings) if "float" in str(field.type))


def canonical(name: str, value: Any) -> Any:
    """Write a setting as its registry does, so that two ways to write the same value become equal.

    Args:
        name: the setting.
        value: its value, such as "gce(0.7)".

    Example:
        >>> canonical("loss", "gce(0.7)"), canonical("noise", "symmetric( .4 )"), canonical("clip", 5)
        ('gce(q=0.7)', 'symmetric(0.4)', 5.0)
    """
    if name in _REGISTRIES and isinstance(value, str):
        return _as_registered(name, value)
    if name in _fractions() and type(value) is int:
        return float(value)
    return value


@cache  # strings only: a cache treats 0, 0.0 and False as equal
def _as_registered(name: str, text: str) -> str:
    try:
        return repr(_REGISTRIES[name](text))
    except InputError:
        return text  # a path or a custom model


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide the outcome of a run, apart from its seed, with defaults filled in."""
    return {name: settings.get(name, default) for name, default in defaults().items() if name not in _IGNORED}


def key(settings: Mapping[str, Any]) -> str:
    """A string that is equal for settings of the same run and different for others.

    Example:
        >>> run = {"data": "cifar10", "model": "resnet20", "loss": "gce(0.7)", "epochs": 30}
        >>> key(run) == key({**run, "loss": "gce(q=.7)", "noise": "none", "compile": True, "seed": 4})
        True
        >>> key(run) == key({**run, "epochs": 31})
        False
    """
    return json.dumps({name: canonical(name, value) for name, value in decisive(settings).items()}, sort_keys=True)
