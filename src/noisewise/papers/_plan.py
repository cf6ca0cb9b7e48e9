"""Which runs a recipe needs now, put together into comparisons that the engine can train at once.

Two recipes that need the same run find it in the same folder: its name follows from the settings alone. This module checks and
plans; it must not train anything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, must, unknown
from noisewise.papers._recipes import SETTINGS, Recipe
from noisewise.papers._reported import canonical, core
from noisewise.train._compare import Task
from noisewise.train._compare import plan as plan_tasks

QUICK = {"steps": 2, "epochs": None, "batch_size": 2, "device": "cpu", "precision": "float32", "evaluate_every": 1}
"""What a quick run changes: two steps on a handful of examples show that every part works, and nothing else."""

_RUNS = "runs"


@dataclass(frozen=True)
class Comparison:
    """Runs that differ in loss, noise and seed alone: every loss on every noise with every seed.

    Args:
        settings: what they have in common.
        loss: loss specs.
        noise: noise specs.
        seed: seeds.
        folder: where their run folders go.
    """

    settings: Mapping[str, Any]
    loss: tuple[str, ...]
    noise: tuple[str, ...]
    seed: tuple[int, ...]
    folder: Path

    @property
    def others(self) -> dict[str, Any]:
        """The settings but for data and model."""
        return {name: value for name, value in self.settings.items() if name not in ("data", "model")}

    @cached_property
    def tasks(self) -> list[Task]:
        """The runs, every setting checked."""
        data, model = canonical("data", self.settings["data"]), self.settings["model"]
        return plan_tasks(model, data, loss=self.loss, noise=self.noise, seed=self.seed, folder=self.folder, **self.others)


@dataclass(frozen=True)
class Plan:
    """What will be trained.

    Args:
        recipe: of the table or figure.
        comparisons: its runs.
        folder: where everything goes.
        quick: whether only to try that it works.
    """

    recipe: Recipe
    comparisons: tuple[Comparison, ...]
    folder: Path
    quick: bool

    def place(self, run: Mapping[str, Any]) -> Path:
        """What the folders of a run of the recipe are called, up to the seed."""
        (comparison,) = _comparisons([_changed(run, self.quick)], (0,), self.folder / _RUNS)
        (task,) = comparison.tasks
        return task.folder.with_name(task.folder.name.removesuffix("0"))

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """Loss, noise and seed of every run, in the order they are trained."""
        return [(task.settings.loss, task.settings.noise, task.settings.seed) for one in self.comparisons for task in one.tasks]


def plan(
    recipe: Recipe, *, only: str | None = None, seeds: Sequence[int] | None = None, quick: bool = False, output: str | Path = "reproduced"
) -> Plan:
    """Plan the runs of a recipe; everything is checked before any work.

    Args:
        recipe: what to run.
        only: the runs to do, as settings and their values: ``"loss=imae,noise=symmetric(0.4)"``. A name alone stands for every
            choice of hyper-parameters.
        seeds: in place of the recipe's.
        quick: only try that it works.
        output: where everything goes.
    """
    if only is not None and not recipe.runs:
        raise must("only", recipe.id, "left out, because it has no runs to choose from", only)
    chosen = [run for run in recipe.runs if _fits(run, _choices(recipe, only))]
    if recipe.runs and not chosen:
        held = {name: dict.fromkeys(str(run.get(name)) for run in recipe.runs) for name in _choices(recipe, only)}
        known = "; ".join(f"{name} is {', '.join(values)}" for name, values in held.items())
        raise InputError(f"No run of {recipe.id} has {only}. Among its runs, {known}.")
    if "diff" in recipe.metrics:
        chosen = [*({**run, "noise": "none"} for run in chosen), *chosen]
    asked = tuple(seeds or recipe.seeds[: 1 if quick else None])
    planned = Plan(recipe, _comparisons([_changed(run, quick) for run in chosen], asked, Path(output) / _RUNS), Path(output), quick)
    _ = planned.rows  # a setting that is wrong is refused here
    return planned


def _changed(run: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    return {**run, **QUICK} if quick else dict(run)


def _choices(recipe: Recipe, only: str | None) -> dict[str, str]:
    """The settings and values of ``"loss=imae,noise=symmetric(0.4)"``; commas inside parentheses belong to a value."""
    choices = {}
    for part in re.split(r",(?![^()]*\))", only) if only is not None else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise must("only", recipe.id, "settings and values, such as loss=imae,noise=symmetric(0.4)", only)
        if name not in SETTINGS:
            raise unknown("setting", name, SETTINGS)
        choices[name] = value
    return choices


def _fits(run: Mapping[str, Any], choices: Mapping[str, str]) -> bool:
    return all(_is(name, value, run.get(name, "none")) for name, value in choices.items())


def _is(name: str, wanted: str, value: Any) -> bool:
    held, asked = canonical(name, value), canonical(name, wanted)
    if not isinstance(held, str):
        return wanted in (str(held), f"{held:g}")
    if name == "loss":
        held, asked = core(held), core(asked)
    return bool(held == asked or held.partition("(")[0] == wanted)


def _comparisons(runs: Sequence[Mapping[str, Any]], seeds: tuple[int, ...], folder: Path) -> tuple[Comparison, ...]:
    """The runs as few comparisons: noises that need the same losses, all else being equal, are one."""
    losses: dict[str, dict[str, dict[str, None]]] = {}
    for run in runs:
        shared = json.dumps({name: value for name, value in run.items() if name not in ("loss", "noise")}, sort_keys=True)
        losses.setdefault(shared, {}).setdefault(run.get("noise", "none"), {})[run["loss"]] = None
    found = []
    for shared, by_noise in losses.items():
        noises: dict[tuple[str, ...], list[str]] = {}
        for noise, of_noise in by_noise.items():
            noises.setdefault(tuple(of_noise), []).append(noise)
        settings = json.loads(shared)
        found += [Comparison(settings, loss, tuple(noise), seeds, folder / _name(settings)) for loss, noise in noises.items()]
    return tuple(found)


def _name(settings: Mapping[str, Any]) -> str:
    """A folder name that the same settings have again."""
    words = "-".join(re.sub(r"\W+", "_", str(settings[name])).strip("_") for name in ("data", "model"))
    return f"{words}-{hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]}"
