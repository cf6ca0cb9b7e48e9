"""A paper's table or figure, run again: ours beside theirs, cell by cell.

The runs are the engine's; the results are a JSON file, a picture for a figure, and the report. The same call again trains only
what is not finished, and results take in every finished run of the recipe that the folder holds. This module must not know the
command line.
"""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from noisewise import curriculum, draw, train
from noisewise.data import Dataset, read
from noisewise.dynamics import Spread, over_seeds
from noisewise.papers._metrics import METRICS
from noisewise.papers._plan import Plan
from noisewise.papers._recipes import Cell, Recipe
from noisewise.train._compare import Progress, Task, train_all
from noisewise.train._fit import train as train_one

_EXAMPLES = 4
"""How many training and test examples a quick run takes."""

_POINTS = 2.0
"""A difference in % that wants an explanation, where the paper gives no spread."""

_BETWEEN_WRITES = 5.0
"""Seconds after which the time is written down again."""

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Compared:
    """A number of ours beside the paper's.

    Args:
        words: what the paper calls what was trained.
        settings: of the runs.
        metric: which number.
        theirs: the paper's, None where it has none.
        deviation: what the paper prints after ±, or None.
        ours: over the seeds that were run; None where it was not run, or is not measured.
        spread: our standard deviation over seeds; None with one seed.
        seeds: how many were run.
    """

    words: str
    settings: Mapping[str, Any]
    metric: str
    theirs: float | None
    deviation: float | None
    ours: float | None
    spread: float | None
    seeds: int

    @property
    def difference(self) -> float | None:
        """Ours less theirs."""
        return None if self.ours is None or self.theirs is None else self.ours - self.theirs

    @property
    def beyond(self) -> bool:
        """Whether an accuracy is further from the paper's than twice the spread it prints, or two points where it prints none."""
        if self.difference is None or METRICS[self.metric].unit == "":
            return False
        return abs(self.difference) > (_POINTS if self.deviation is None else 2 * self.deviation)


@dataclass(frozen=True)
class Reproduction:
    """What came out.

    Args:
        recipe: of the table or figure.
        cells: ours beside theirs.
        runs: the finished runs.
        seconds: of wall time, over all calls that trained something for it.
        images: how many examples were trained on in that time, counted every time.
        files: what was written, by what it is: "results", "report", "picture".
    """

    recipe: Recipe
    cells: tuple[Compared, ...]
    runs: tuple[train.Run, ...]
    seconds: float
    images: int
    files: Mapping[str, Path]


def reproduce(plan: Plan, *, jobs: int | None = None, watch: Watch = lambda progress: None) -> Reproduction:
    """Train what is planned and not finished, and compare it with the paper.

    Args:
        plan: what to do.
        jobs: how many runs at a time; by default as many as `compare` takes, and one for a quick plan. One at a time is trained
            in this process.
        watch: told whenever a run gets further.

    Returns:
        Ours beside theirs; the same is in the plan's folder.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    if plan.recipe.picture is not None:
        draw.check_figure(_picture_file(plan), (_picture_file(plan).suffix,))
    clock = _Clock(_results_file(plan).with_suffix(".clock"))
    _train(plan, jobs or (1 if plan.quick else None), watch, clock)
    found = _Found(plan)
    cells = _computed(plan.recipe) if plan.recipe.computed else _compared(plan.recipe, found)
    done = Reproduction(plan.recipe, tuple(cells), tuple(found.all()), clock.seconds, clock.images, {})
    return replace(done, files=_write(plan, done))


class _Clock:
    """Wall time of training and the examples gone through, kept in a file as it goes: of all calls, also of those cut short."""

    def __init__(self, file: Path) -> None:
        self._file = file
        held = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"seconds": 0.0, "images": 0}
        self.seconds, self.images = float(held["seconds"]), int(held["images"])
        self._before = self.seconds
        self._started = self._written = time.perf_counter()
        self._steps: dict[int, int] = {}

    def see(self, run: int, step: int, batch_size: int) -> None:
        """A run got to a step. Not every step is told, so the first ones seen of a run may count for one."""
        self.images += batch_size * (step - self._steps.get(run, step - 1))
        self._steps[run] = step
        now = time.perf_counter()
        self.seconds = self._before + now - self._started
        if now - self._written > _BETWEEN_WRITES:
            self._written = now
            self.write()

    def write(self) -> None:
        if self._steps:
            self._file.write_text(json.dumps({"seconds": round(self.seconds, 1), "images": self.images}) + "\n", encoding="utf-8")


def _train(plan: Plan, jobs: int | None, watch: Watch, clock: _Clock) -> None:
    """Train all tasks of a data set together, so that a large table keeps a GPU full to its end."""
    first = 0
    for wanted, group in itertools.groupby(plan.comparisons, key=lambda comparison: comparison.settings["data"]):
        tasks = [task for comparison in group for task in comparison.tasks]
        data, test = _data(wanted, plan)

        def tell(progress: Progress, first: int = first, tasks: list[Task] = tasks) -> None:
            moved = replace(progress, place=progress.place + first)
            if moved.step:
                clock.see(moved.place, moved.step, tasks[progress.place].settings.batch_size)
            watch(moved)

        if jobs == 1:
            _one_at_a_time(tasks, data, test, tell)
        else:
            train_all(tasks, data, test=test, jobs=jobs, watch=tell)
        first += len(tasks)
    clock.write()


def _one_at_a_time(tasks: Sequence[Task], data: Dataset, test: Dataset | None, watch: Watch) -> None:
    for place, task in enumerate(tasks):

        def step(done: int, steps: int, place: int = place) -> None:
            watch(Progress(place, "running", done, steps))

        train_one(task.settings, task.settings.model, data, test, task.folder, watch=step)
        watch(Progress(place, "finished"))


def _data(spec: str, plan: Plan) -> tuple[Dataset, Dataset | None]:
    """The training and the test set, a few examples of each for a quick plan."""
    options = dict(plan.recipe.reading or {})
    data, test = read(spec, **options), read(spec, split="test", **options) if plan.recipe.tested else None
    return (_few(data), None if test is None else _few(test)) if plan.quick else (data, test)


def _few(data: Dataset) -> Dataset:
    return data.take(torch.arange(min(_EXAMPLES, len(data))))


class _Found:
    """The finished runs of a recipe that the folder holds, whatever their seeds, each read once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._held: dict[str, list[dict[str, Any]]] = {}
        self._runs: dict[Path, train.Run] = {}

    def summaries(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What came out of a run of the recipe, for every seed."""
        key = json.dumps(run, sort_keys=True)
        if key not in self._held:
            place = self._plan.place(run)
            folders = (folder for folder in place.parent.glob(f"{place.name}*") if (folder / "model.safetensors").exists())
            runs = sorted(map(train.Run, folders), key=lambda run: run.settings.seed)
            self._runs |= {run.path: run for run in runs}
            self._held[key] = [run.dynamics.summary() for run in runs]
        return self._held[key]

    def all(self) -> Iterator[train.Run]:
        for run in self._plan.recipe.runs:
            self.summaries(run)
        yield from self._runs.values()


def _compared(recipe: Recipe, found: _Found) -> Iterator[Compared]:
    for cell in recipe.cells:
        if cell.settings is not None:
            known, number = _measured(recipe, cell, found)
            ours, spread = (None, None) if known is None else known
            yield Compared(cell.words, cell.settings, cell.metric, cell.value, cell.deviation, ours, spread, number)


def _measured(recipe: Recipe, cell: Cell, found: _Found) -> tuple[Spread | None, int]:
    """Our number over the seeds, and how many there are."""
    assert cell.settings is not None
    summaries = _counted(recipe, found.summaries(cell.settings))
    if cell.metric == "diff":
        reference = over_seeds(METRICS["final"].of(one) for one in _counted(recipe, found.summaries({**cell.settings, "noise": "none"})))
        values = [None if reference is None else _less(METRICS["final"].of(one), reference.mean) for one in summaries]
    else:
        values = [METRICS[cell.metric].of(one) for one in summaries]
    return over_seeds(values), len(found.summaries(cell.settings))


def _less(value: float | None, reference: float) -> float | None:
    return None if value is None else value - reference


def _counted(recipe: Recipe, summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that make the number: all seeds, or the one that tested best."""
    if recipe.over == "best" and summaries:
        return [max(summaries, key=lambda summary: summary["final"])]
    return summaries


def _computed(recipe: Recipe) -> Iterator[Compared]:
    for cell in recipe.cells:
        assert cell.settings is not None
        ours = curriculum.spread(cell.settings["loss"], norm="l1")
        yield Compared(cell.words, cell.settings, cell.metric, cell.value, cell.deviation, ours, None, 0)


def _results_file(plan: Plan) -> Path:
    return plan.folder / f"{plan.recipe.id.replace('/', '-')}.json"


def _picture_file(plan: Plan) -> Path:
    return _results_file(plan).with_suffix(".svg" if plan.recipe.runs else ".html")


def _write(plan: Plan, done: Reproduction) -> dict[str, Path]:
    """Write results, picture and report; return where they are."""
    file = _results_file(plan)
    written: dict[str, Path] = {}
    if done.cells or done.runs:
        written["results"] = file
        file.write_text(json.dumps(_as_json(plan, done), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    if done.recipe.picture is not None:
        written["picture"] = _draw(done, _picture_file(plan))
    if done.runs:
        from noisewise.report import report

        title = f"{done.recipe.words}: {done.recipe.caption}" + (" (a quick try, not the paper's size)" if plan.quick else "")
        written["report"] = report([run.path for run in done.runs], file.with_suffix(".html"), title=title)
    return written


def _as_json(plan: Plan, done: Reproduction) -> dict[str, Any]:
    return {
        "recipe": done.recipe.id,
        "quick": plan.quick,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seeds": sorted({run.settings.seed for run in done.runs}),
        "seconds": round(done.seconds, 1),
        "images_per_second": round(done.images / done.seconds) if done.seconds else None,
        "versions": _versions(done.runs),
        "cells": [_cell_as_json(cell) for cell in done.cells],
        "runs": [{"folder": str(run.path.relative_to(plan.folder)), "seconds": round(_seconds(run), 1)} for run in done.runs],
    }


def _draw(done: Reproduction, file: Path) -> Path:
    if done.recipe.losses is not None:
        return draw.curves(list(done.recipe.losses.values()), file, classes=done.recipe.classes)
    return {"dynamics": draw.dynamics, "margins": draw.margins}[done.recipe.picture or ""](done.runs, file)


def _versions(runs: Sequence[train.Run]) -> dict[str, list[str]]:
    """What the runs were made with; several of each where they were made in several places."""
    names = ("noisewise", "python", "torch", "numpy", "platform", "device")
    return {name: sorted({str(run.provenance[name]) for run in runs}) for name in names}


def _seconds(run: train.Run) -> float:
    return float(sum(line["seconds"] for line in run.metrics))


def _cell_as_json(cell: Compared) -> dict[str, Any]:
    settings = {
        name: cell.settings[name] for name in cell.settings if name in ("data", "model", "noise", "loss", "optimiser", "weight_decay")
    }
    numbers = {name: _rounded(getattr(cell, name)) for name in ("theirs", "deviation", "ours", "spread", "difference")}
    return {"words": cell.words, **settings, "metric": cell.metric, **numbers, "seeds": cell.seeds, "beyond": cell.beyond}


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def results() -> dict[str, Any]:
    """The committed results, by recipe: what `reproduce` wrote at full size.

    Example:
        >>> from noisewise.papers import available
        >>> set(results()) <= set(available())
        True
    """
    folder = files("noisewise.papers") / "results"
    found = (
        (json.loads(file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".json"))
        if folder.is_dir()
        else ()
    )
    return {content["recipe"]: content for content in found}
