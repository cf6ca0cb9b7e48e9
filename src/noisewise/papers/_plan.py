"""Which runs a recipe needs that are not there yet, as tasks for the engine.

Two recipes that need the same run find it in the same folder: its name follows from what makes it that run. This module checks
and plans; it must not train anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from noisewise import train
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.papers._again import RETRAINED, Again, is_done
from noisewise.papers._identity import DEFAULTS, canonical, decisive, key
from noisewise.papers._recipes import Recipe, check_recipe
from noisewise.papers._reported import core
from noisewise.papers._results import Portion, Results
from noisewise.papers._retrieved import METRICS as RETRIEVAL
from noisewise.spec import name_of
from noisewise.train._compare import Task
from noisewise.train._compare import plan as plan_tasks

QUICK = {"steps": 2, "epochs": None, "batch_size": 2, "device": "cpu", "precision": "float32", "evaluate_every": 1}
"""What a quick run changes: two steps on a handful of examples show that every part works, and nothing else."""

_WIDE = ("cnn8", "resnet34", "resnet50")
"""Networks whose compiled kernels are faster on a GPU by more than it takes to compile them at full size."""

_TO_CHOOSE_BY = tuple(decisive({}))

_TELLING = ("data", "model", "optimiser", "weight_decay")
"""What tells runs of a recipe apart beside loss, noise and seed."""


@dataclass(frozen=True)
class Plan:
    """What will be trained.

    Args:
        recipe: of the table or figure.
        tasks: its runs that are not there yet, by data set, a seed at a time, and after all of a data set those that are trained
            again.
        folder: where everything goes.
        quick: whether only to try that it works.
        held: the results there are, in the folder and elsewhere.
    """

    recipe: Recipe
    tasks: tuple[Task, ...]
    folder: Path
    quick: bool
    held: Results

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """Loss, noise and seed of every run, in the order they are trained.

        After the noise stands what else tells runs apart: settings that are not the same in all of them, and that one is trained again.
        """
        differing = [name for name in _TELLING if len({getattr(task.settings, name) for task in self.tasks}) > 1]
        return [(task.settings.loss, ", ".join(_told(task, differing)), task.settings.seed) for task in self.tasks]

    @property
    def retrieves(self) -> bool:
        """Whether the networks are tested by retrieval."""
        return any(metric in self.recipe.metrics for metric in RETRIEVAL)

    def finished(self) -> list[train.Run]:
        """The finished runs of the recipe that the folder holds, whatever their seeds."""
        found = []
        for run in _needed(self.recipe, self.recipe.runs):
            place = _task(as_trained(run, self.quick), 0, self.folder).folder
            folders = place.parent.glob(f"{place.name.removesuffix('0')}*[0-9]")  # those of second trainings end otherwise
            found += sorted(map(train.Run, filter(is_finished, folders)), key=lambda run: run.settings.seed)
        return found


def _told(task: Task, differing: Sequence[str]) -> list[str]:
    """The noise of a run, and what else it is told by."""
    values = {name: getattr(task.settings, name) for name in differing}
    more = [value if isinstance(value, str) else f"{name} {value:g}" for name, value in values.items()]
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
    """Plan the runs of a recipe; everything is checked before any work.

    Args:
        recipe: what to run.
        only: the runs to do, as settings and their values: ``"loss=imae,noise=symmetric(0.4)"``. A name alone stands for every
            choice of hyper-parameters.
        seeds: in place of the recipe's.
        quick: only try that it works.
        output: where everything goes.
        held: results from elsewhere, whose runs are not trained again; nor are those of results that lie in `output`.
        compile: whether to compile wide networks when they are trained on a GPU at full size.
    """
    check_recipe(recipe, "plan")
    if held is not None and not isinstance(held, Results):
        raise invalid_parameter("held", "plan", "results, as noisewise.papers.results gives them", held)
    if only is not None and not recipe.runs:
        raise invalid_parameter("only", recipe.id, "left out, because it has no runs to choose from", only)
    choices = _choices(recipe, only)
    chosen = _chosen(recipe.runs, choices)
    if recipe.runs and not chosen:
        known = {name: dict.fromkeys(str(_setting(run, name)) for run in recipe.runs) for name in choices}
        among = "; ".join(f"{name} is {', '.join(values)}" for name, values in known.items())
        raise InputError(f"No run of {recipe.id} has {only}. Among its runs, {among}.")
    in_the_folder = Portion.all_in(Path(output)) if recipe.picture != "margins" else []  # those are drawn from folders alone
    there = Results((*(() if held is None else held.portions), *in_the_folder))
    retrained = [cell.settings for cell in recipe.cells if cell.metric == RETRAINED and cell.value is not None]
    tasks: list[Task] = []
    for seed in recipe.seeds[: 1 if quick else None] if seeds is None else _checked(seeds):
        for run in _needed(recipe, chosen):
            asked = as_trained(run, quick)
            task = _task({**asked, "compile": compile and not quick and _gains(asked["model"])}, seed, Path(output))
            if not there.holds(asked, seed, retrained=run in retrained):
                tasks += _missing(task, run in retrained)
    tasks.sort(key=lambda task: (task.settings.data, isinstance(task, Again)))  # every data set is read once
    return Plan(recipe, tuple(tasks), Path(output), quick, there)


def _checked(seeds: Any) -> list[int]:
    """Seeds, each of them once."""
    listed = seeds.tolist() if hasattr(seeds, "tolist") else seeds  # an array
    if isinstance(listed, str) or not isinstance(listed, Sequence) or not listed or len(set(map(str, listed))) < len(listed):
        raise invalid_parameter("seeds", "reproduce", "one or more, each of them once", seeds)
    return list(listed)


def _missing(task: Task, retrained: bool) -> list[Task]:
    """What of a run its folder does not have yet; the record of a first training is needed for the second."""
    first = [] if is_finished(task.folder) else [task]
    return [*first, Again.of(task)] if retrained and not is_done(task.folder) else first


def as_trained(run: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """The settings of a run of a recipe as they are trained."""
    return {**run, **QUICK} if quick else dict(run)


def _needed(recipe: Recipe, runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each run once, and the clean ones that costs of noise are measured against."""
    clean = [{**run, "noise": "none"} for run in runs] if "diff" in recipe.metrics else []
    return list({key(run): run for run in (*clean, *runs)}.values())


def _gains(model: str) -> bool:
    """Whether compiling makes a network faster here."""
    return torch.cuda.is_available() and name_of(model) in _WIDE


def _task(settings: Mapping[str, Any], seed: int, folder: Path) -> Task:
    """The run of a seed, every setting checked."""
    asked = {"noise": "none", **settings, "data": canonical("data", settings["data"])}
    several = {"loss": [asked.pop("loss")], "noise": [asked.pop("noise")], "seed": [seed]}
    (task,) = plan_tasks(asked.pop("model"), asked.pop("data"), **several, folder=folder / "runs" / _name(settings), **asked)
    return task


def _name(settings: Mapping[str, Any]) -> str:
    """A folder name that runs have together whose loss, noise and seed alone differ."""
    words = "-".join(re.sub(r"\W+", "_", str(settings[name])).strip("_") for name in ("data", "model"))
    shared = key({**settings, "loss": "ce", "noise": "none"})
    return f"{words}-{hashlib.sha256(shared.encode()).hexdigest()[:8]}"


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a run that was trained to its end."""
    return (folder / "settings.json").exists() and train.Run(folder).state == "finished"


def _choices(recipe: Recipe, only: str | None) -> dict[str, str]:
    """The settings and values of ``"loss=imae,noise=symmetric(0.4)"``; commas inside parentheses belong to a value."""
    choices: dict[str, str] = {}
    if only is not None and not isinstance(only, str):
        raise invalid_parameter("only", recipe.id, "a text, such as loss=imae,noise=symmetric(0.4)", only)
    for part in re.split(r",(?![^()]*\))", only) if only is not None else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise invalid_parameter("only", recipe.id, "settings and values, such as loss=imae,noise=symmetric(0.4)", only)
        if name not in DEFAULTS:
            raise unknown("setting", name, _TO_CHOOSE_BY)
        if name not in _TO_CHOOSE_BY:
            told = "without seeds, which have an option of their own" if name == "seed" else "settings that make a run another one"
            raise invalid_parameter("only", recipe.id, told, only)
        if name in choices:
            raise invalid_parameter("only", recipe.id, f"one value for {name}", only)
        choices[name] = value
    return choices


def _chosen(runs: Sequence[Mapping[str, Any]], choices: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The runs that have all of some settings. A loss in full is that very one if there is such a run, and else one of any size."""
    for same_size in (True, False):
        found = [run for run in runs if all(_is(name, value, _setting(run, name), same_size) for name, value in choices.items())]
        if found:
            return found
    return []


def _setting(run: Mapping[str, Any], name: str) -> Any:
    return run.get(name, DEFAULTS[name])


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is(name: str, wanted: str, value: Any, same_size: bool) -> bool:
    held, asked = canonical(name, value), canonical(name, wanted)
    if not isinstance(held, str):
        return wanted.lower() == str(held).lower() or (held is not None and _as_number(wanted) == held)
    if name == "loss" and not (same_size and {"(", "*"} & {*wanted}):
        held, asked = core(held), core(asked)
    return bool(held == asked or name_of(held) == wanted)
