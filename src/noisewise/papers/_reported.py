"""What the papers report for a run like this one.

The data, the model, the noise and the loss must be the paper's: the same names with the same hyper-parameters, however they are
spelt. What may differ is named in `Reported.differs`: how the run was trained, what brings a loss to size (`normalised`, the
`normalise` of IMAE and GR, a factor before a loss that stands alone) and the `saturation` of IMAE and GR. The seed does not
count, nor how a run is watched, stored and computed (evaluations, checkpoints, device, precision). This module must not know
how runs are trained or shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch

from noisewise import losses, models
from noisewise.data import augmentations
from noisewise.data._official import registry as data_sets
from noisewise.errors import InputError
from noisewise.noise import registry as noises
from noisewise.papers._metrics import METRICS
from noisewise.papers._recipes import Cell, Recipe, available, get
from noisewise.train import Settings
from noisewise.train._optimisers import registry as optimisers
from noisewise.train._schedules import registry as schedules

_SATURATION = re.compile(r", saturation=([^,)]+)")
_NORMALISE = re.compile(r", normalise=([^,)]+)")
_NORMALISED = re.compile(r"normalised\((.+), by='\w+'\)")
_MULTIPLE = re.compile(r"^[\d.e-]+\*(?!.* \+ )")
"""A factor before a loss that stands alone."""


def _unfilled(spec: str) -> models.Classifier:
    """A model without its weights: built to be named."""
    with torch.device("meta"):
        return models.get(spec, num_classes=2)


_REGISTRIES: dict[str, Callable[[str], Any]] = {
    "data": data_sets.get,
    "model": _unfilled,
    "loss": losses.get,
    "noise": noises.get,
    "augment": augmentations.get,
    "optimiser": optimisers.get,
    "schedule": schedules.get,
}
_DEFAULTS = {field.name: field.default for field in fields(Settings)}

_TRAINING = ("epochs", "steps", "batch_size", "optimiser", "schedule", "weight_decay", "clip", "augment", "normalise", "validation")


@dataclass(frozen=True)
class Reported:
    """A number a paper printed.

    Args:
        recipe: the id of the table.
        words: such as "IMAE table 6".
        metric: such as "final"; `noisewise.papers.METRICS` says what each is.
        value: in the metric's unit: accuracies in %.
        deviation: what stands after ±, or None.
        differs: the settings in which the run differs from the recipe; of its loss, "size" or "saturation".
    """

    recipe: str
    words: str
    metric: str
    value: float
    deviation: float | None
    differs: tuple[str, ...]


def reported(settings: Mapping[str, Any]) -> list[Reported]:
    """The numbers the papers print for a run with these settings.

    Args:
        settings: of a run: data, model, loss, noise, …; what is missing has its default.

    Example:
        >>> run = {"data": "cifar10", "model": "resnet20", "loss": "imae(T=8)", "noise": "symmetric(0.4)", "steps": 100_000}
        >>> [(one.words, one.metric, one.value) for one in reported(run)][1]
        ('IMAE table 6', 'final', 84.0)
    """
    return [
        Reported(recipe.id, recipe.words, cell.metric, cell.value, cell.deviation, _differences(cell.settings, settings))
        for recipe, cell in _index().get(_key(settings), ())
        if cell.value is not None and cell.settings is not None
    ]


@cache
def _index() -> dict[tuple[str, ...], list[tuple[Recipe, Cell]]]:
    """The printed numbers of runs, by what must match."""
    found: dict[tuple[str, ...], list[tuple[Recipe, Cell]]] = {}
    for recipe in map(get, available()):
        for cell in recipe.cells if recipe.same_as is None else ():
            if cell.settings is not None and cell.metric in METRICS and not recipe.computed:
                found.setdefault(_key(cell.settings), []).append((recipe, cell))
    return found


def _key(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What must match."""
    return (*(canonical(name, settings.get(name, _DEFAULTS.get(name))) for name in ("data", "model", "noise")), core(_loss(settings)))


def core(loss: str) -> str:
    """A loss's spec without what it says of size and saturation."""
    for pattern, kept in ((_SATURATION, ""), (_NORMALISE, ""), (_NORMALISED, r"\1"), (_MULTIPLE, "")):
        loss = pattern.sub(kept, loss)
    return loss


def _loss(settings: Mapping[str, Any]) -> str:
    return str(canonical("loss", settings.get("loss", _DEFAULTS["loss"])))


def _differences(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of what may differ and does."""
    unused = "epochs" if recipe.get("epochs") is None else "steps"
    names = [name for name in _TRAINING if name != unused and _value(name, recipe) != _value(name, run)]
    mine, theirs = _loss(run), _loss(recipe)
    if _SATURATION.findall(mine) != _SATURATION.findall(theirs):
        names.append("saturation")
    if _SATURATION.sub("", mine) != _SATURATION.sub("", theirs):
        names.append("size")
    return tuple(names)


def _value(name: str, settings: Mapping[str, Any]) -> Any:
    return canonical(name, settings.get(name, _DEFAULTS[name]))


@cache
def canonical(name: str, value: Any) -> Any:
    """A setting as its registry spells it, so that two spellings of the same thing are equal; any other value as it is.

    Args:
        name: of the setting.
        value: such as "gce(0.7)".

    Example:
        >>> canonical("loss", "gce(0.7)"), canonical("noise", "symmetric( .4 )")
        ('gce(q=0.7)', 'symmetric(0.4)')
    """
    if name not in _REGISTRIES or not isinstance(value, str):
        return value
    try:
        return repr(_REGISTRIES[name](value))
    except InputError:
        return value  # a path, a module of the user's own: nothing of the papers'
