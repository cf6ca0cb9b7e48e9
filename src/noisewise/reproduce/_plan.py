"""Plan the missing runs of a recipe, as tasks for the engine.

The name of a run folder follows from its settings, so that two recipes that need the same run find it in the same folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from noisewise import train
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.papers import RETRAINED, RETRIEVAL, Portion, Recipe, Results, canonical, check_recipe, core, decisive, defaults, key
from noisewise.reproduce._again import Again, is_done
from noisewise.spec import name_of
from noisewise.train import Task
from noisewise.train import plan as plan_tasks

QUICK = {"steps": 2, "epochs": None, "batch_size": 2, "device": "cpu", "precision": "float32", "evaluate_every": 1}
"""The settings of a quick run, which only tests that everything works."""

_WIDE = ("cnn8", "resnet34", "resnet50")
"""Networks that compiling makes faster on a GPU."""

_SHOWN = ("data", "model", "method", "optimiser", "weight_decay", "classes_per_batch")
"""The settings that are shown, besides loss, noise and seed, if they differ between runs."""


@dataclass(frozen=True)
class Plan:
    """What will be trained.

    Args:
        recipe: the table or figure; in a quick plan its runs have the settings of quick runs.
        tasks: the missing runs, by data set and then by seed; the second trainings of a data set come last.
        folder: the output folder.
        quick: whether to only test that everything works.
        held: the existing results, in the folder and elsewhere.
    """

    recipe: Recipe
    tasks: tuple[Task, ...]
    folder: Path
    quick: bool
    held: Results

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """Loss, noise and seed of every run, in training order.

        The noise is followed by the other settings that differ between the runs, and by "corrected" for a second training.
        """
        differing = [name for name in _SHOWN if len({getattr(task.settings, name) for task in self.tasks}) > 1]
        return [(task.settings.loss, ", ".join(_words(task, differing)), task.settings.seed) for task in self.tasks]

    @property
    def retrieves(self) -> bool:
        """Whether the networks are tested by retrieval."""
        return any(metric in self.recipe.metrics for metric in RETRIEVAL)

    def finished(self) -> list[train.Run]:
        """The finished runs of the recipe in the folder, of all seeds."""
        runs: list[train.Run] = []
        for settings in _needed(self.recipe, self.recipe.runs):
            folder = _task(settings, 0, self.folder).folder
            folders = folder.parent.glob(f"{folder.name.removesuffix('0')}*[0-9]")  # folders of second trainings end differently
            runs += sorted(map(train.Run, filter(is_finished, folders)), key=lambda run: run.settings.seed)
        return runs


def _words(task: Task, differing: Sequence[str]) -> list[str]:
    """The noise of a run and the other settings to show."""
    values = {name: getattr(task.settings, name) for name in differing}
    more = [value if isinstance(value, str) else f"{name} {value:g}" for name, value in values.items() if value is not None]
    return [task.settings.noise, *more, *(["corrected"] if isinstance(task, Again) else [])]


def plan(
    recipe: Recipe,
    *,
    only: str | None = None,
    seeds: Sequence[int] | None = None,
    quick: bool = False,
    output: str | Path = "reproduced",
    held: Results | None = None,
    compile: bool = True,
) -> Plan:
    """Plan the runs of a recipe and check them.

    Args:
        recipe: the table or figure.
        only: the runs to train, by settings and values: ``"loss=imae,noise=symmetric(0.4)"``. A name without hyper-parameters selects
            all runs with that name.
        seeds: replace the recipe's seeds.
        quick: only test that everything works, with a few examples and steps.
        output: the output folder.
        held: existing results. Their runs, and those of results in `output`, are not trained again.
        compile: whether to compile wide networks on a GPU, except in quick runs.
    """
    check_recipe(recipe, "plan")
    if only is not None and not recipe.runs:
        raise invalid_parameter("only", recipe.id, "left out, because it has no runs to choose from", only)
    choices = _choices(recipe, only)
    chosen = _chosen(recipe.runs, choices)
    if recipe.runs and not chosen:
        known = {name: dict.fromkeys(str(_setting(run, name)) for run in recipe.runs) for name in choices}
        values = "; ".join(f"{name} is {', '.join(values)}" for name, values in known.items())
        raise InputError(f"No run of {recipe.id} has {only}. In its runs, {values}.")
    if quick:
        recipe, chosen = quick_size(recipe), [_quick(run) for run in chosen]
    existing = Results((*(() if held is None else held.portions), *Portion.all_in(Path(output))))
    retrained = [cell.settings for cell in recipe.cells if cell.metric == RETRAINED and cell.value is not None]
    tasks: list[Task] = []
    for seed in recipe.seeds[: 1 if quick else None] if seeds is None else _checked(seeds):
        for run in _needed(recipe, chosen):
            task = _task({**run, "compile": compile and not quick and _gains(run["model"])}, seed, Path(output))
            if not existing.holds(run, seed, retrained=run in retrained, margins=recipe.picture == "margins"):
                tasks += _missing(task, run in retrained)
    tasks.sort(key=lambda task: (task.settings.data, isinstance(task, Again)))  # the tasks of a data set are trained together
    return Plan(recipe, tuple(tasks), Path(output), quick, existing)


def quick_size(recipe: Recipe) -> Recipe:
    """A recipe whose runs have the settings of quick runs."""
    cells = [cell if cell.settings is None else replace(cell, settings=_quick(cell.settings)) for cell in recipe.cells]
    return replace(recipe, cells=tuple(cells), runs=tuple(map(_quick, recipe.runs)))


def _quick(run: Mapping[str, Any]) -> dict[str, Any]:
    return {**run, **QUICK, **({"classes_per_batch": QUICK["batch_size"]} if "classes_per_batch" in run else {})}


def _checked(seeds: Any) -> list[int]:
    """The seeds as a list, after a check."""
    seeds = seeds.tolist() if hasattr(seeds, "tolist") else seeds  # an array
    if not isinstance(seeds, list | tuple | range) or not seeds or len(set(map(str, seeds))) < len(seeds):
        raise invalid_parameter("seeds", "reproduce", "a list of one or more different integers", seeds)
    return list(seeds)


def _missing(task: Task, retrained: bool) -> list[Task]:
    """The trainings of a run that are not finished; the second training needs the record of the first."""
    first = [] if is_finished(task.folder) else [task]
    return [*first, Again.of(task)] if retrained and not is_done(task.folder) else first


def _needed(recipe: Recipe, runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each run once, and the clean runs that the cost of noise is measured against."""
    clean = [{**run, "noise": "none"} for run in runs] if "diff" in recipe.metrics else []
    return list({key(run): run for run in (*clean, *runs)}.values())


def _gains(model: str) -> bool:
    """Whether compiling makes a network faster on this machine."""
    return torch.cuda.is_available() and name_of(model) in _WIDE


def _task(settings: Mapping[str, Any], seed: int, folder: Path) -> Task:
    """The task of a run with a seed, after a check of every setting."""
    others = {"noise": "none", "method": "plain", **settings, "data": canonical("data", settings["data"])}
    lists = {"seed": [seed], **{name: [others.pop(name)] for name in ("loss", "noise", "method")}}
    (task,) = plan_tasks(others.pop("model"), others.pop("data"), **lists, folder=folder / "runs" / _name(settings), **others)
    return task


def _name(settings: Mapping[str, Any]) -> str:
    """The folder name of all runs that differ only in loss, noise and seed."""
    words = "-".join(re.sub(r"\W+", "_", str(settings[name])).strip("_") for name in ("data", "model"))
    shared = key({**settings, "loss": "ce", "noise": "none"})
    return f"{words}-{hashlib.sha256(shared.encode()).hexdigest()[:8]}"


def is_finished(folder: Path) -> bool:
    """Whether a folder contains a finished run."""
    return (folder / "settings.json").exists() and train.Run(folder).state == "finished"


def _choices(recipe: Recipe, only: str | None) -> dict[str, str]:
    """Parse ``"loss=imae,noise=symmetric(0.4)"``; commas inside parentheses belong to a value."""
    choices: dict[str, str] = {}
    for part in re.split(r",(?![^()]*\))", only) if only is not None else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or name in choices:
            raise invalid_parameter("only", recipe.id, "settings with one value each, such as loss=imae,noise=symmetric(0.4)", only)
        if name not in decisive({}):
            raise unknown("setting to choose runs by", name, decisive({}))
        choices[name] = value
    return choices


def _chosen(runs: Sequence[Mapping[str, Any]], choices: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The runs with the chosen settings. A full loss spec selects that loss if a run has it, otherwise the loss at any scale."""
    for same_size in (True, False):
        chosen = [run for run in runs if all(_is(name, value, _setting(run, name), same_size) for name, value in choices.items())]
        if chosen:
            return chosen
    return []


def _setting(run: Mapping[str, Any], name: str) -> Any:
    return run.get(name, defaults()[name])


def _is(name: str, wanted: str, value: Any, same_size: bool) -> bool:
    actual, choice = canonical(name, value), canonical(name, wanted)
    if not isinstance(actual, str):
        with suppress(ValueError):
            return bool(float(wanted) == actual)
        return wanted.lower() == str(actual).lower()
    if name == "loss" and not (same_size and {"(", "*"} & {*wanted}):
        actual, choice = core(actual), core(choice)
    return bool(actual == choice or name_of(actual) == wanted)
