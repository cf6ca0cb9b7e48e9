"""Many runs: every loss on every noise with every seed, several at a time, sharing one copy of the data in memory.

Each run is trained by a worker process exactly as `fit` would train it alone, so how many run at once changes nothing in the
results. Runs that are finished are not trained again, and one that was interrupted goes on.
"""

from __future__ import annotations

import itertools
import os
import queue
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from noisewise import losses
from noisewise.errors import InputError
from noisewise.train._fit import Watch, train
from noisewise.train._folder import RunFolder, mark_interrupted
from noisewise.train._mps import gpu_for_many
from noisewise.train._run import Run
from noisewise.train._settings import Settings, check_model
from noisewise.train._sources import called, read_both

RUNS_ON_A_GPU = 8


@dataclass(frozen=True)
class Task:
    """One run of a comparison."""

    settings: Settings
    folder: Path

    def train(self, data: Any, test: Any, watch: Watch) -> Run:
        """Train it, in whatever process this is."""
        return train(self.settings, self.settings.model, data, test, self.folder, watch=watch)


@dataclass(frozen=True)
class Progress:
    """How far a run is: its place among the tasks, "waiting", "running", "finished" or why it failed, and its steps."""

    place: int
    state: str
    step: int = 0
    steps: int = 0


class Runs(list[Run]):
    """The runs of a comparison."""

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write one page about all of them; `options` are those of `noisewise.report.report`."""
        from noisewise.report import report

        return report([run.path for run in self], output, **{"data": self[0].data, **options})


def compare(
    model: str,
    data: Any,
    *,
    loss: Sequence[str],
    noise: Sequence[str] = ("none",),
    seed: Sequence[int] = (0,),
    test: Any = None,
    folder: str | os.PathLike[str] = "runs",
    jobs: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Runs:
    """Train every loss on every noise with every seed.

    Args:
        model: a model spec.
        data: what `noisewise.data.read` takes.
        loss: loss specs.
        noise: noise specs.
        seed: seeds.
        test: what to test on; an official data set brings its own.
        folder: where the run folders go, one for every run.
        jobs: how many runs at a time; by default one per processor, or eight on a GPU.
        watch: told whenever a run gets further.
        **settings: everything else, as for `fit`.

    Returns:
        The runs, in the order of noise, loss and seed: a list that can also `report`.

    Raises:
        InputError: a setting is wrong (before any run starts), or runs failed (after the others finished).
    """
    tasks = plan(model, called(data), loss=loss, noise=noise, seed=seed, folder=folder, **settings)
    return train_all(tasks, data, test=test, jobs=jobs, watch=watch)


def train_all(
    tasks: Sequence[Task], data: Any, *, test: Any = None, jobs: int | None = None, watch: Callable[[Progress], None] | None = None
) -> Runs:
    """Train any tasks on the same data, each with the model its settings name; see `compare`."""
    device = tasks[0].settings.place()
    shared = list(read_both(data, test))
    jobs = min(jobs or (RUNS_ON_A_GPU if device.type == "cuda" else os.cpu_count() or 1), len(tasks))
    with gpu_for_many() if device.type == "cuda" and jobs > 1 else nullcontext():
        failures = _work(tasks, shared, jobs, watch or (lambda progress: None))
    if failures:
        place, why = next(iter(failures.items()))
        raise InputError(f"{len(failures)} of {len(tasks)} runs failed; the first, {tasks[place].settings.loss}: {why}")
    return Runs(Run(task.folder, data=data) for task in tasks)


def plan(
    model: str,
    data: str,
    *,
    loss: Sequence[str],
    noise: Sequence[str],
    seed: Sequence[int],
    folder: str | os.PathLike[str],
    **settings: Any,
) -> list[Task]:
    """Every run of a comparison, all settings checked."""
    for name, given in (("loss", loss), ("noise", noise), ("seed", seed)):
        if isinstance(given, str) or not given:
            raise InputError(f"A comparison needs a list for {name}. Got {given!r}; write [{given!r}].")
    check_model(model)
    tasks = []
    for one_noise, one_loss, one_seed in itertools.product(noise, loss, seed):
        losses.get(one_loss)
        asked = Settings.of({"data": data, "model": model, "loss": one_loss, "noise": one_noise, "seed": one_seed, **settings})
        words = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word).strip("_") for word in (one_noise, one_loss))
        tasks.append(Task(asked, Path(folder) / f"{words}-seed{one_seed}"))
    if len({task.folder for task in tasks}) < len(tasks):
        raise InputError("Two runs of the comparison are the same. List every loss, noise and seed once.")
    return tasks


def _work(tasks: Sequence[Task], shared: list[Any], jobs: int, watch: Callable[[Progress], None]) -> dict[int, str]:
    """Train the tasks in worker processes; return why the failed ones failed."""
    context = multiprocessing.get_context("spawn")
    todo, news = context.Queue(), context.Queue()
    for place in range(len(tasks)):
        todo.put(place)
        watch(Progress(place, "waiting"))
    for _ in range(jobs):
        todo.put(None)
    workers = [context.Process(target=_worker, args=(tasks, shared, todo, news), daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    failures: dict[int, str] = {}
    running: dict[int, int] = {}
    ended: set[int] = set()
    try:
        while len(ended) < len(tasks):
            try:
                process, progress = news.get(timeout=0.5)
            except queue.Empty:
                _bury([worker for worker in workers if not worker.is_alive()], running, ended, failures, watch)
                if not any(worker.is_alive() for worker in workers) and news.empty():
                    break
                continue
            running[process] = progress.place
            if progress.state != "running":
                ended.add(progress.place)
                if progress.state != "finished":
                    failures[progress.place] = progress.state
            watch(progress)
    except KeyboardInterrupt:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.terminate()
        for worker in workers:
            worker.join(timeout=10)
        for task in tasks:
            mark_interrupted(RunFolder(task.folder))
        raise
    finally:
        for worker in workers:
            worker.join(timeout=10)
    failures |= {place: "no worker was left to train it" for place in range(len(tasks)) if place not in ended}
    return failures


def _bury(dead: list[Any], running: dict[int, int], ended: set[int], failures: dict[int, str], watch: Callable[[Progress], None]) -> None:
    """Count a run as failed whose worker died without a word (killed for memory, say)."""
    for worker in dead:
        place = running.pop(worker.pid, None)
        if worker.exitcode and place is not None and place not in ended:
            failures[place] = f"its process ended with status {worker.exitcode}"
            ended.add(place)
            watch(Progress(place, failures[place]))


def _worker(tasks: Sequence[Task], shared: list[Any], todo: Any, news: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the keyboard is for the process that compares
    torch.set_num_threads(1)
    train_set, test_set = shared
    while (place := todo.get()) is not None:
        task = tasks[place]

        def tell(step: int, steps: int, place: int = place) -> None:
            if step % max(1, steps // 200) == 0:
                news.put((os.getpid(), Progress(place, "running", step, steps)))

        try:
            news.put((os.getpid(), Progress(place, "running")))
            task.train(train_set, test_set, tell)
            news.put((os.getpid(), Progress(place, "finished")))
        except Exception as error:  # one run that fails must not end the others
            news.put((os.getpid(), Progress(place, f"{error}" if isinstance(error, InputError) else repr(error))))
