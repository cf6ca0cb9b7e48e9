"""Find the numbers that the papers report for a run.

The data, the model, the noise and the loss must be the same as in the paper, including hyper-parameters. What may differ is named in
`Reported.differs`: the training settings, the scale of the loss (`normalised`, the `normalise` of IMAE and GR, a factor) and the
`saturation` of IMAE and GR. The seed is ignored, and so are evaluations, checkpoints, device and precision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from noisewise.errors import invalid_parameter
from noisewise.papers._identity import canonical, decisive, defaults
from noisewise.papers._metrics import METRICS
from noisewise.papers._recipes import Cell, Recipe, available, get
from noisewise.spec import name_of

_SATURATION = re.compile(r", saturation=([^,)]+)")
_NORMALISE = re.compile(r", normalise=([^,)]+)")
_NORMALISED = re.compile(r"normalised\((.+), by='\w+'\)")
_MULTIPLE = re.compile(r"^[\d.e-]+\*(?!.* \+ )")
"""A factor before a single loss."""

_NOT_TRAINING = ("data", "model", "loss", "noise", "keep", "evaluate_every", "clean_pass")


@dataclass(frozen=True)
class Reported:
    """A number that a paper prints.

    Args:
        recipe: the id of the table.
        words: such as "IMAE table 6".
        metric: such as "final"; `noisewise.papers.METRICS` says what each is.
        value: the number in the metric's unit; accuracies are in %.
        deviation: the number after ±, or None.
        differs: the settings that differ between the run and the recipe; "size" and "saturation" are those of the loss.
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
        settings: the settings of a run: data, model, loss, noise, …; defaults fill in the rest.

    Example:
        >>> run = {"data": "cifar10", "model": "resnet20", "loss": "imae(T=8)", "noise": "symmetric(0.4)", "steps": 100_000}
        >>> [(number.words, number.metric, number.value) for number in reported(run)][1]
        ('IMAE table 6', 'final', 84.0)
    """
    if not isinstance(settings, Mapping):
        raise invalid_parameter("settings", "reported", "the settings of a run by their names", settings)
    index = _index(_data(settings))
    return [
        Reported(recipe.id, recipe.words, cell.metric, cell.value, cell.deviation, _differences(cell.settings, settings))
        for recipe, cell in (index.get(_key(settings), ()) if index else ())
        if cell.value is not None and cell.settings is not None
    ]


def _data(settings: Mapping[str, Any]) -> str:
    return name_of(str(settings.get("data")))


@cache
def _index(data: str) -> dict[tuple[str, ...], list[tuple[Recipe, Cell]]]:
    """The printed numbers of runs on a data set, by what must match."""
    index: dict[tuple[str, ...], list[tuple[Recipe, Cell]]] = {}
    for recipe in map(get, available()):
        for cell in recipe.cells if recipe.same_as is None else ():
            if cell.settings is not None and _data(cell.settings) == data and cell.metric in METRICS and not recipe.computed:
                index.setdefault(_key(cell.settings), []).append((recipe, cell))
    return index


def _key(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What must be equal: data, model, noise and loss."""
    return (*(canonical(name, settings.get(name, defaults().get(name))) for name in ("data", "model", "noise")), core(_loss(settings)))


def core(loss: str) -> str:
    """The spec of a loss without its scale and saturation."""
    for pattern, kept in ((_SATURATION, ""), (_NORMALISE, ""), (_NORMALISED, r"\1"), (_MULTIPLE, "")):
        loss = pattern.sub(kept, loss)
    return loss


def _loss(settings: Mapping[str, Any]) -> str:
    return str(canonical("loss", settings.get("loss", defaults()["loss"])))


def _differences(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the settings that differ."""
    unused = "epochs" if recipe.get("epochs") is None else "steps"
    names = [name for name in decisive({}) if name not in (*_NOT_TRAINING, unused) and _value(name, recipe) != _value(name, run)]
    mine, theirs = _loss(run), _loss(recipe)
    if _SATURATION.findall(mine) != _SATURATION.findall(theirs):
        names.append("saturation")
    if _SATURATION.sub("", mine) != _SATURATION.sub("", theirs):
        names.append("size")
    return tuple(names)


def _value(name: str, settings: Mapping[str, Any]) -> Any:
    return canonical(name, settings.get(name, defaults()[name]))
