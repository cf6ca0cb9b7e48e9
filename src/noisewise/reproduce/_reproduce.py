"""Train a recipe and compare the results with the paper, cell by cell.

The outputs are a file of results, a picture for a figure, and the report. The file of results is rewritten whenever a run finishes, so
nothing is lost when training is interrupted, and the same call again trains only what is missing.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from noisewise import draw, train
from noisewise.data import Dataset, read
from noisewise.errors import invalid_parameter
from noisewise.output import make_folder
from noisewise.papers import Compared, Outcome, Portion, Recipe, Results, can_draw, check_recipe, compared, key, shows_margins
from noisewise.report import check_page, report
from noisewise.reproduce._again import Again, is_done, second
from noisewise.reproduce._outcome import outcome
from noisewise.reproduce._pictures import picture
from noisewise.reproduce._plan import Plan, is_finished
from noisewise.reproduce._retrieved import check_queries, measure
from noisewise.spec import real
from noisewise.train import (
    OUT_OF_TIME,
    Deadline,
    Progress,
    Runs,
    RunsFailedError,
    Task,
    check_jobs,
    failure_reason,
    summarise_failures,
    train_each,
)

_EXAMPLES = 4
"""The number of training and test examples of a quick run."""

Watch = Callable[[Progress], None]

Sets = tuple[Dataset, Dataset | None]
"""The training and the test set."""


@dataclass(frozen=True)
class Reproduction:
    """The outcome of a recipe.

    Args:
        recipe: the table or figure.
        cells: our numbers next to the paper's.
        runs: the finished runs in the folder.
        results: the results behind our numbers, in the folder and elsewhere.
        files: the files that were written, by kind: "results", "report", "picture".
        left: how many planned runs did not finish in the time that was given.
    """

    recipe: Recipe
    cells: tuple[Compared, ...]
    runs: tuple[train.Run, ...]
    results: Results
    files: Mapping[str, Path]
    left: int = 0


class RecipeFailedError(RunsFailedError):
    """Some runs of a recipe failed.

    Args:
        sentence: how many, and why the first failed.
        finished: the other planned runs.
        done: the outcome without the failed runs.
    """

    def __init__(self, sentence: str, finished: Runs, done: Reproduction) -> None:
        super().__init__(sentence, finished)
        self.done = done


def reproduce(plan: Plan, *, jobs: int | None = None, watch: Watch = lambda progress: None, minutes: float | None = None) -> Reproduction:
    """Train the planned runs and compare them with the paper.

    Args:
        plan: the runs.
        jobs: the number of runs at a time; by default as in `compare`, and one for a quick plan. With one, runs are trained in this
            process.
        watch: called whenever a run makes progress.
        minutes: how long training may take. Runs that would not finish are stopped early, so that the others do; the same call again
            continues them.

    Returns:
        Our numbers next to the paper's; the files are in the plan's folder.

    Raises:
        InputError: something is wrong or missing (before any run starts).
        RecipeFailedError: some runs failed; raised after the others finished.
    """
    check_jobs(jobs, "reproduce")
    if minutes is not None and not 0 < real(minutes) < math.inf:
        raise invalid_parameter("minutes", "reproduce", "a positive number", minutes)
    _check_files(plan)
    sets = {name: _data(name, plan) for name in dict.fromkeys(task.settings.data for task in plan.tasks)}
    _check_tasks(plan, sets)
    log = _Log(plan)
    log.add_missing()
    with tempfile.TemporaryDirectory() as folder:
        deadline = None if minutes is None else Deadline(60 * minutes, Path(folder))
        failures = _train(plan, sets, jobs or (1 if plan.quick else None), watch, log, deadline)
    # Another call may have trained a run that failed here. Check that before the results are read, so that they contain it.
    failures = {index: why for index, why in failures.items() if not _is_finished(plan.tasks[index])}
    left = [index for index, why in failures.items() if why == OUT_OF_TIME]
    failures = {index: why for index, why in failures.items() if index not in left}
    runs = log.add_missing()
    results = Results((*plan.held.portions, *Portion.all_in(plan.folder)))
    files = _write(plan, runs, log, results)
    done = Reproduction(plan.recipe, tuple(compared(plan.recipe, results)), tuple(runs), results, files, len(left))
    if failures:
        raise RecipeFailedError(*summarise_failures(plan.tasks, failures), done)
    return done


def show(recipe: Recipe, results: Results, output: str | Path = "shown") -> Reproduction:
    """Compare existing results with the paper, without training, and draw the picture of a figure.

    Args:
        recipe: the table or figure.
        results: the results.
        output: the folder for the picture.
    """
    check_recipe(recipe, "show")
    files = {}
    if recipe.picture is not None and can_draw(recipe, results):
        make_folder(Path(output))
        files["picture"] = picture(recipe, results, _picture_file(recipe, Path(output)))
    return Reproduction(recipe, tuple(compared(recipe, results)), (), results, files)


def _check_files(plan: Plan) -> None:
    """Check that the outputs can be written, and that test tracklets have queries."""
    if not plan.recipe.computed:
        make_folder(plan.folder)
    if plan.recipe.picture is not None:
        file = _picture_file(plan.recipe, plan.folder)
        draw.check_figure(file, (file.suffix,))
    if plan.recipe.runs:
        check_page(_report_file(plan))
    if plan.retrieves:
        for data in {task.settings.data for task in plan.tasks}:
            check_queries(data)


def _check_tasks(plan: Plan, sets: Mapping[str, Sets]) -> None:
    """Check that no folder contains another run, and that every data set has what its noises need, such as human labels."""
    for task in plan.tasks:
        task.check()
    for name, noise in dict.fromkeys((task.settings.data, task.settings.noise) for task in plan.tasks):
        if noise != "none":
            sets[name][0].corruption(noise)


def _is_finished(task: Task) -> bool:
    return is_done(task.first) if isinstance(task, Again) else is_finished(task.folder)


class _Log:
    """The portion of this call, written to its file whenever a run is added."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._portion = plan, Portion.begin(plan.recipe.id)
        self._runs: dict[tuple[str, int], Outcome] = {}

    @property
    def file(self) -> Path | None:
        """The file of the portion; None while it has no runs."""
        return self._plan.folder / self._portion.name if self._runs else None

    def add(self, *runs: train.Run) -> None:
        """Add finished runs."""
        for run in runs:
            if self._plan.retrieves:
                measure(run, (self._plan.recipe.reading or {}).get("size"), self._plan.quick)
            margins = self._plan.recipe.picture == "margins" or shows_margins(run.settings.as_json())
            self._runs[key(run.settings.as_json()), run.settings.seed] = outcome(run, margins=margins)
        if runs:
            replace(self._portion, runs=tuple(self._runs.values())).write(self._plan.folder)

    def add_missing(self) -> list[train.Run]:
        """Add the finished runs of the folder that are in none of its portions; return all finished runs of the recipe."""
        runs, known = self._plan.finished(), Results(Portion.all_in(self._plan.folder))
        wanted = {"margins": self._plan.recipe.picture == "margins"}
        self.add(
            *(run for run in runs if not known.holds(run.settings.as_json(), run.settings.seed, retrained=is_done(run.path), **wanted))
        )
        return runs


def _train(plan: Plan, sets: Mapping[str, Sets], jobs: int | None, watch: Watch, log: _Log, deadline: Deadline | None) -> dict[int, str]:
    """Train all tasks of a data set together, first trainings before second ones; return why tasks failed, by index."""
    failures: dict[int, str] = {}
    start = 0
    for (data_set, _), stage in itertools.groupby(plan.tasks, key=lambda task: (task.settings.data, type(task))):
        tasks, (data, test) = list(stage), sets[data_set]
        train_some = _one_at_a_time if jobs == 1 else train_each
        timed = tasks if deadline is None else [deadline.timed(task, start + index) for index, task in enumerate(tasks)]
        failed = train_some(timed, data, test=test, jobs=jobs, watch=_logged(tasks, start, watch, log, deadline))
        failures |= {start + index: why for index, why in failed.items()}
        start += len(tasks)
    return failures


def _logged(tasks: Sequence[Task], start: int, watch: Watch, log: _Log, deadline: Deadline | None) -> Watch:
    """A watch that logs finished runs and passes progress on; `start` is the index of the first task among all tasks."""

    def step(progress: Progress) -> None:
        task = tasks[progress.place]
        if progress.state == "finished":
            log.add(train.Run(task.first if isinstance(task, Again) else task.folder))
        progress = replace(progress, place=start + progress.place)
        if deadline is not None:
            deadline.watch(progress)
        watch(progress)

    return step


def _one_at_a_time(tasks: Sequence[Task], data: Dataset, *, test: Dataset | None, jobs: int | None, watch: Watch) -> dict[int, str]:
    """Like `train_each`, but in this process."""
    failures: dict[int, str] = {}
    for index, task in enumerate(tasks):
        try:
            task.train(data, test, lambda step, steps, index=index: watch(Progress(index, "running", step, steps)))  # type: ignore[misc]
        except Exception as error:  # the other runs are trained nevertheless
            failures[index] = failure_reason(error)
        watch(Progress(index, failures.get(index, "finished")))
    return failures


def _data(spec: str, plan: Plan) -> Sets:
    """The training and the test set; a few examples of each in a quick plan."""
    options = dict(plan.recipe.reading or {})
    data, test = read(spec, **options), read(spec, split="test", **options) if plan.recipe.tested else None
    return (_few(data), None if test is None else _few(test)) if plan.quick else (data, test)


def _few(data: Dataset) -> Dataset:
    return data.take(torch.arange(min(_EXAMPLES, len(data))))


def _picture_file(recipe: Recipe, folder: Path) -> Path:
    return folder / f"{recipe.id.replace('/', '-')}{'.html' if recipe.losses is not None else '.svg'}"


def _report_file(plan: Plan) -> Path:
    return plan.folder / f"{plan.recipe.id.replace('/', '-')}.html"


def _write(plan: Plan, runs: Sequence[train.Run], log: _Log, results: Results) -> dict[str, Path]:
    """Write the picture and the report; return all files by kind."""
    written: dict[str, Path] = {}
    if log.file is not None:
        written["results"] = log.file
    if can_draw(plan.recipe, results) or plan.recipe.networks is not None or (plan.recipe.picture is not None and runs):
        written["picture"] = picture(plan.recipe, results, _picture_file(plan.recipe, plan.folder), runs)
    if runs:
        title = f"{plan.recipe.words}: {plan.recipe.caption}" + (" (a quick test, not the paper's size)" if plan.quick else "")
        again = [second(run.path) for run in runs if is_done(run.path)]
        written["report"] = report([*(run.path for run in runs), *again], _report_file(plan), title=title)
    return written
