"""A paper's table or figure, run again: ours beside theirs, cell by cell.

The runs are the engine's; what comes out is a file of results, a picture for a figure, and the report. The file is written anew
whenever a run finishes, so that what is cut short is not lost, and the same call again trains only what is not finished. This
module must not know the command line.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from noisewise import draw, train
from noisewise.data import Dataset, read
from noisewise.output import make_folder
from noisewise.papers._again import Again, is_done, second
from noisewise.papers._compared import Compared, compared
from noisewise.papers._identity import key
from noisewise.papers._pictures import can_draw, picture
from noisewise.papers._plan import Plan
from noisewise.papers._recipes import Recipe, available
from noisewise.papers._results import Outcome, Portion, Results
from noisewise.papers._retrieved import check_queries, measure
from noisewise.train._compare import Progress, Task, check_jobs, train_all

_EXAMPLES = 4
"""How many training and test examples a quick run takes."""

_BETWEEN_WRITES = 20.0
"""Seconds after which the time is written down again."""

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Reproduction:
    """What came out.

    Args:
        recipe: of the table or figure.
        cells: ours beside theirs.
        runs: the finished runs of the folder.
        found: the results that ours are read off: those of the folder, and those held elsewhere.
        files: what was written, by what it is: "results", "report", "picture".
    """

    recipe: Recipe
    cells: tuple[Compared, ...]
    runs: tuple[train.Run, ...]
    found: Results
    files: Mapping[str, Path]


def reproduce(plan: Plan, *, jobs: int | None = None, watch: Watch = lambda progress: None) -> Reproduction:
    """Train what is planned, and compare it with the paper.

    Args:
        plan: what to do.
        jobs: how many runs at a time; by default as many as `compare` takes, and one for a quick plan. One at a time is trained
            in this process.
        watch: told whenever a run gets further.

    Returns:
        Ours beside theirs; our own part of it is in the plan's folder.
    """
    check_jobs(jobs, "reproduce")
    if not plan.recipe.computed:
        make_folder(plan.folder)
    if plan.recipe.picture is not None:
        draw.check_figure(_picture_file(plan), (_picture_file(plan).suffix,))
    if plan.retrieves:
        for data in {task.settings.data for task in plan.tasks}:
            check_queries(data)
    known = Results(portion for name in available() if (portion := Portion.within(plan.folder, name)) is not None)
    book = _Book(plan)
    try:
        _train(plan, jobs or (1 if plan.quick else None), watch, book)
    finally:
        book.write()
    runs = plan.finished()
    book.enter(*(run for run in runs if not known.holds(run.settings.as_json(), run.settings.seed, retrained=is_done(run.path))))
    found = Results((*plan.held.portions, *known.portions, book.portion))
    cells = tuple(compared(plan.recipe, found, quick=plan.quick))
    return Reproduction(plan.recipe, cells, tuple(runs), found, _write(plan, runs, book, found))


class _Book:
    """The portion as it grows: what finished, the wall time and the examples gone through, of all calls in this folder."""

    def __init__(self, plan: Plan) -> None:
        self.portion = Portion.within(plan.folder, plan.recipe.id) or Portion.begin(plan.recipe.id)
        self._plan, self._folder, self._before = plan, plan.folder, self.portion.seconds
        self._started = self._written = time.perf_counter()
        self._steps: dict[int, int] = {}
        self._runs = {(key(run.settings), run.seed): run for run in self.portion.runs}

    def see(self, run: int, step: int, batch_size: int) -> None:
        """A run got to a step. Not every step is told, so the first ones seen of a run may count for one."""
        images = batch_size * (step - self._steps.get(run, step - 1))
        self._steps[run] = step
        self.portion = replace(self.portion, images=self.portion.images + images, seconds=self._seconds())
        if time.perf_counter() - self._written > _BETWEEN_WRITES:
            self.write()

    def enter(self, *runs: train.Run) -> None:
        """Write down finished runs."""
        for run in runs:
            if self._plan.retrieves:
                measure(run, (self._plan.recipe.reading or {}).get("size"), self._plan.quick)
            self._runs[key(run.settings.as_json()), run.settings.seed] = Outcome.of(run)
        self.portion = replace(self.portion, runs=tuple(self._runs.values()), seconds=self._seconds())
        self.write()

    def _seconds(self) -> float:
        """The time so far; a call that trains nothing takes none."""
        return round(self._before + time.perf_counter() - self._started, 1) if self._steps else self._before

    def write(self) -> Path | None:
        """Write the portion and say where it is; one without runs and time leaves no file."""
        self._written = time.perf_counter()
        return self.portion.write(self._folder) if self.portion.runs or self._steps else None


def _train(plan: Plan, jobs: int | None, watch: Watch, book: _Book) -> None:
    """Train all tasks of a data set together, so that a large table keeps a GPU full to its end; second trainings after the first."""
    place = 0
    for data_set, group in itertools.groupby(plan.tasks, key=lambda task: task.settings.data):
        data, test = _data(data_set, plan)
        for _, stage in itertools.groupby(group, key=type):
            tasks = list(stage)
            tell = _teller(tasks, place, watch, book)
            if jobs == 1:
                _one_at_a_time(tasks, data, test, tell)
            else:
                train_all(tasks, data, test=test, jobs=jobs, watch=tell)
            place += len(tasks)


def _teller(tasks: Sequence[Task], place: int, watch: Watch, book: _Book) -> Watch:
    """Write down what is told of some tasks, and pass it on with their places among all of them, the first of which is given."""

    def tell(progress: Progress) -> None:
        task, here = tasks[progress.place], place + progress.place
        if progress.step:
            book.see(here, progress.step, task.settings.batch_size)
        if progress.state == "finished":
            book.enter(train.Run(task.first if isinstance(task, Again) else task.folder))
        watch(replace(progress, place=here))

    return tell


def _one_at_a_time(tasks: Sequence[Task], data: Dataset, test: Dataset | None, watch: Watch) -> None:
    for place, task in enumerate(tasks):

        def step(done: int, steps: int, place: int = place) -> None:
            watch(Progress(place, "running", done, steps))

        task.train(data, test, step)
        watch(Progress(place, "finished"))


def _data(spec: str, plan: Plan) -> tuple[Dataset, Dataset | None]:
    """The training and the test set, a few examples of each for a quick plan."""
    options = dict(plan.recipe.reading or {})
    data, test = read(spec, **options), read(spec, split="test", **options) if plan.recipe.tested else None
    return (_few(data), None if test is None else _few(test)) if plan.quick else (data, test)


def _few(data: Dataset) -> Dataset:
    return data.take(torch.arange(min(_EXAMPLES, len(data))))


def _picture_file(plan: Plan) -> Path:
    return plan.folder / f"{plan.recipe.id.replace('/', '-')}{'.svg' if plan.recipe.runs else '.html'}"


def _write(plan: Plan, runs: Sequence[train.Run], book: _Book, found: Results) -> dict[str, Path]:
    """Write results, picture and report; return where they are. Reports need the runs' own folders."""
    written: dict[str, Path] = {}
    results = book.write()
    if results is not None:
        written["results"] = results
    if can_draw(plan.recipe, found) or (plan.recipe.picture is not None and runs):
        written["picture"] = picture(plan.recipe, found, _picture_file(plan), runs)
    if runs:
        from noisewise.report import report

        title = f"{plan.recipe.words}: {plan.recipe.caption}" + (" (a quick try, not the paper's size)" if plan.quick else "")
        file = plan.folder / f"{plan.recipe.id.replace('/', '-')}.html"
        again = [second(run.path) for run in runs if is_done(run.path)]
        written["report"] = report([*(run.path for run in runs), *again], file, title=title)
    return written
