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
from noisewise.papers._plan import Plan, is_finished
from noisewise.papers._recipes import Recipe, check_recipe
from noisewise.papers._results import Outcome, Portion, Results, images_until
from noisewise.papers._retrieved import check_queries, measure
from noisewise.report import check_page, report
from noisewise.train._compare import Progress, Runs, RunsFailedError, Task, check_jobs, told_of, train_each, why_failed

_EXAMPLES = 4
"""How many training and test examples a quick run takes."""

_BETWEEN_WRITES = 20.0
"""Seconds after which the time is written down again."""

Watch = Callable[[Progress], None]

Sets = tuple[Dataset, Dataset | None]
"""What to train on, and what to test on."""


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


class RecipeFailedError(RunsFailedError):
    """Some runs of a recipe failed.

    Args:
        sentence: how many, and why the first did.
        finished: the others that were planned.
        done: what came out all the same.
    """

    def __init__(self, sentence: str, finished: Runs, done: Reproduction) -> None:
        super().__init__(sentence, finished)
        self.done = done


def reproduce(plan: Plan, *, jobs: int | None = None, watch: Watch = lambda progress: None) -> Reproduction:
    """Train what is planned, and compare it with the paper.

    Args:
        plan: what to do.
        jobs: how many runs at a time; by default as many as `compare` takes, and one for a quick plan. One at a time is trained
            in this process.
        watch: told whenever a run gets further.

    Returns:
        Ours beside theirs; our own part of it is in the plan's folder.

    Raises:
        InputError: something is wrong or missing (before any run starts).
        RecipeFailedError: runs failed; it comes after the others finished, and has what came out.
    """
    check_jobs(jobs, "reproduce")
    _check_files(plan)
    sets = {name: _data(name, plan) for name in dict.fromkeys(task.settings.data for task in plan.tasks)}
    _check_tasks(plan, sets)
    book = _Book(plan)
    book.enter_what_nobody_did()
    try:
        failures = _train(plan, sets, jobs or (1 if plan.quick else None), watch, book)
    finally:
        book.write()
    # Another call may have trained it. What comes out is read after this: nothing that is taken to be there is missing in it.
    failures = {place: why for place, why in failures.items() if not _is_there(plan.tasks[place])}
    done = _came_out(plan, book)
    if failures:
        raise RecipeFailedError(*told_of(plan.tasks, failures), done)
    return done


def show(recipe: Recipe, found: Results, output: str | Path = "shown") -> Reproduction:
    """What results hold of a recipe, without any training: ours beside theirs, and of a figure its picture.

    Args:
        recipe: of the table or figure.
        found: the results.
        output: where a picture goes.
    """
    check_recipe(recipe, "show")
    files = {}
    if recipe.picture is not None and can_draw(recipe, found):
        make_folder(Path(output))
        files["picture"] = picture(recipe, found, _picture_file(recipe, Path(output)))
    return Reproduction(recipe, tuple(compared(recipe, found)), (), found, files)


def _check_files(plan: Plan) -> None:
    """Refuse what cannot be written, before any work."""
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
    """Refuse folders of other runs, and noises that a data set has not what it takes for, such as labels that people gave."""
    for task in plan.tasks:
        task.check()
    for name, noise in dict.fromkeys((task.settings.data, task.settings.noise) for task in plan.tasks):
        if noise != "none":
            sets[name][0].corruption(noise)


def _is_there(task: Task) -> bool:
    return is_done(task.first) if isinstance(task, Again) else is_finished(task.folder)


def _came_out(plan: Plan, book: _Book) -> Reproduction:
    """Ours beside theirs, from all results there are now: other calls may have written some, and not yet all of their runs."""
    runs = book.enter_what_nobody_did()
    found = Results((*plan.held.portions, *Portion.all_in(plan.folder)))
    cells = tuple(compared(plan.recipe, found, quick=plan.quick))
    return Reproduction(plan.recipe, cells, tuple(runs), found, _write(plan, runs, book, found))


class _Book:
    """The portion as it grows: what finished, the wall time and the examples gone through."""

    def __init__(self, plan: Plan) -> None:
        self.portion = Portion.begin(plan.recipe.id)
        self._plan, self._started, self._written = plan, time.perf_counter(), time.perf_counter()
        self._images: dict[int, int] = {}
        self._runs: dict[tuple[str, int], Outcome] = {}

    def see(self, run: int, step: int, batch_size: int, examples: int) -> None:
        """A run got to a step. Not every step is told, and those before the first that is may be another call's: that one counts alone."""
        before, now = (images_until(done, batch_size, examples) for done in (step - 1, step))
        more = now - self._images.get(run, before)
        self._images[run] = now
        self.portion = replace(self.portion, images=self.portion.images + more, seconds=self._seconds())
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

    def enter_what_nobody_did(self) -> list[train.Run]:
        """Write down the finished runs of the folder that no portion in it has; return all of them."""
        runs, known = self._plan.finished(), Results(Portion.all_in(self._plan.folder))
        held = (known.holds(run.settings.as_json(), run.settings.seed, retrained=is_done(run.path)) for run in runs)
        self.enter(*(run for run, is_held in zip(runs, held, strict=True) if not is_held))
        return runs

    def _seconds(self) -> float:
        """The time so far; a call that trains nothing takes none."""
        return round(time.perf_counter() - self._started, 1) if self._images else 0.0

    def write(self) -> Path | None:
        """Write the portion and say where it is; one without runs and time leaves no file."""
        self._written = time.perf_counter()
        return self.portion.write(self._plan.folder) if self.portion.runs or self._images else None


def _train(plan: Plan, sets: Mapping[str, Sets], jobs: int | None, watch: Watch, book: _Book) -> dict[int, str]:
    """Train all tasks of a data set together, so that a large table keeps a GPU full to its end; second trainings after the first.

    Returns:
        Why tasks failed, by their places.
    """
    failures: dict[int, str] = {}
    place = 0
    for (data_set, _), stage in itertools.groupby(plan.tasks, key=lambda task: (task.settings.data, type(task))):
        tasks, (data, test) = list(stage), sets[data_set]
        tell = _teller(tasks, place, len(data), watch, book)
        train_some = _one_at_a_time if jobs == 1 else train_each
        failures |= {place + other: why for other, why in train_some(tasks, data, test=test, jobs=jobs, watch=tell).items()}
        place += len(tasks)
    return failures


def _teller(tasks: Sequence[Task], place: int, examples: int, watch: Watch, book: _Book) -> Watch:
    """Write down what is told of some tasks, and pass it on with their places among all of them, the first of which is given."""

    def tell(progress: Progress) -> None:
        task, here = tasks[progress.place], place + progress.place
        if progress.step:
            book.see(here, progress.step, task.settings.batch_size, examples)
        if progress.state == "finished":
            book.enter(train.Run(task.first if isinstance(task, Again) else task.folder))
        watch(replace(progress, place=here))

    return tell


def _one_at_a_time(tasks: Sequence[Task], data: Dataset, *, test: Dataset | None, jobs: int | None, watch: Watch) -> dict[int, str]:
    """As `train_each`, in this process."""
    failures: dict[int, str] = {}
    of_the_watch: list[Exception] = []
    for place, task in enumerate(tasks):

        def step(done: int, steps: int, place: int = place) -> None:
            try:
                watch(Progress(place, "running", done, steps))
            except Exception as error:
                of_the_watch.append(error)
                raise

        try:
            task.train(data, test, step)
        except Exception as error:  # one run that fails must not end the others
            if error in of_the_watch:
                raise
            failures[place] = why_failed(error)
        watch(Progress(place, failures.get(place, "finished")))
    return failures


def _data(spec: str, plan: Plan) -> Sets:
    """The training and the test set, a few examples of each for a quick plan."""
    options = dict(plan.recipe.reading or {})
    data, test = read(spec, **options), read(spec, split="test", **options) if plan.recipe.tested else None
    return (_few(data), None if test is None else _few(test)) if plan.quick else (data, test)


def _few(data: Dataset) -> Dataset:
    return data.take(torch.arange(min(_EXAMPLES, len(data))))


def _picture_file(recipe: Recipe, folder: Path) -> Path:
    return folder / f"{recipe.id.replace('/', '-')}{'.svg' if recipe.runs else '.html'}"


def _report_file(plan: Plan) -> Path:
    return plan.folder / f"{plan.recipe.id.replace('/', '-')}.html"


def _write(plan: Plan, runs: Sequence[train.Run], book: _Book, found: Results) -> dict[str, Path]:
    """Write results, picture and report; return where they are. Reports need the runs' own folders."""
    written: dict[str, Path] = {}
    results = book.write()
    if results is not None:
        written["results"] = results
    if can_draw(plan.recipe, found, quick=plan.quick) or (plan.recipe.picture is not None and runs):
        written["picture"] = picture(plan.recipe, found, _picture_file(plan.recipe, plan.folder), runs, quick=plan.quick)
    if runs:
        title = f"{plan.recipe.words}: {plan.recipe.caption}" + (" (a quick try, not the paper's size)" if plan.quick else "")
        again = [second(run.path) for run in runs if is_done(run.path)]
        written["report"] = report([*(run.path for run in runs), *again], _report_file(plan), title=title)
    return written
