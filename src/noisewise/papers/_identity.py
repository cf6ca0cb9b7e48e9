"""When two settings ask for the same run: what decides it, as the registries spell it.

The seed is told apart by whoever compares; how a run is stored and computed is no part of it. This module must not know recipes
or results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from noisewise import losses
from noisewise.data import augmentations
from noisewise.data._official import registry as data_sets
from noisewise.errors import InputError
from noisewise.models import without_weights
from noisewise.noise import registry as noises
from noisewise.train import Settings, optimisers, schedules

_REGISTRIES: dict[str, Callable[[str], Any]] = {
    "data": data_sets.get,
    "model": lambda spec: without_weights(spec, num_classes=2),
    "loss": losses.get,
    "noise": noises.get,
    "augment": augmentations.get,
    "optimiser": optimisers.get,
    "schedule": schedules.get,
}
_NO_PART = ("seed", "checkpoint_every", "precision", "compile", "device")

_FRACTIONS = tuple(field.name for field in fields(Settings) if "float" in str(field.type))

DEFAULTS = {field.name: field.default for field in fields(Settings)}


def canonical(name: str, value: Any) -> Any:
    """A setting as its registry spells it, so that two spellings of the same thing are equal; any other value as it is.

    Args:
        name: of the setting.
        value: such as "gce(0.7)".

    Example:
        >>> canonical("loss", "gce(0.7)"), canonical("noise", "symmetric( .4 )"), canonical("clip", 5)
        ('gce(q=0.7)', 'symmetric(0.4)', 5.0)
    """
    if name in _REGISTRIES and isinstance(value, str):
        return _spelled(name, value)
    if name in _FRACTIONS and type(value) is int:
        return float(value)
    return value


@cache  # of texts alone: to a cache, 0, 0.0 and False are the same
def _spelled(name: str, text: str) -> str:
    try:
        return repr(_REGISTRIES[name](text))
    except InputError:
        return text  # a path, a module of the user's own: nothing of the papers'


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that make a run the run it is, whatever its seed; those that are not given have their defaults."""
    return {name: settings.get(name, default) for name, default in DEFAULTS.items() if name not in _NO_PART}


def key(settings: Mapping[str, Any]) -> str:
    """What settings that ask for the same run have in common, and others have not.

    Example:
        >>> run = {"data": "cifar10", "model": "resnet20", "loss": "gce(0.7)", "epochs": 30}
        >>> key(run) == key({**run, "loss": "gce(q=.7)", "noise": "none", "compile": True, "seed": 4})
        True
        >>> key(run) == key({**run, "epochs": 31})
        False
    """
    return json.dumps({name: canonical(name, value) for name, value in decisive(settings).items()}, sort_keys=True)
