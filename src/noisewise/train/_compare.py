"""Many runs: every loss on every noise with every method and seed, several at a time, sharing one copy of the data in memory.

A worker process trains each run exactly as `fit` does, so the number of runs at a time does not change the results. Finished runs are not
trained again, and interrupted runs resume. Where the runs are trained is an executor: by default processes of this machine, or a cluster.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
import torch.multiprocessing as multiprocessing

from noisewise import plugins, signals
from noisewise.errors import InputError, NoisewiseError, invalid_parameter
from noisewise.extensions import extension
from noisewise.losses import Loss
from noisewise.methods import Method
from noisewise.noise import Noise
from noisewise.output import make_folder
from noisewise.runs import RunFolder, Settings, folder_name, mark_ended
from noisewise.spec import Registry, as_int, in_short
from noisewise.train._fit import Watch, check_settings, check_watch, train
from noisewise.train._mps import gpu_for_many
from noisewise.train._request import check_augment, check_model, data_name, device_of, make_settings, read_both
from noisewise.train._run import Run

RUNS_ON_A_GPU = 8
"""The default number of runs at a time on a GPU."""


@dataclass(frozen=True)
class Task:
    """One run of a comparison. It carries the names of the user's files that a process must import before it trains."""

    settings: Settings
    folder: Path
    imports: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:  # a copy that another process makes keeps the names, which only the first process knows
        object.__setattr__(self, "imports", self.imports or plugins.imports_of(self.settings.as_json()))

    alone: ClassVar[bool] = True
    """Whether it writes to no folder but its own; other tasks need storage that all workers share."""

    def check(self) -> None:
        """Refuse a folder that contains a run with other settings."""
        if RunFolder(self.folder).exists():
            check_settings(RunFolder(self.folder), self.settings)

    def is_finished(self) -> bool:
        """Whether it needs no more training."""
        folder = RunFolder(self.folder)
        return folder.exists() and folder.status()["state"] == "finished"

    def train(self, data: Any, test: Any, watch: Watch) -> object:
        """Train it in this process."""
        return train(self.settings, self.settings.model, data, test, self.folder, watch=watch)


@dataclass(frozen=True)
class Progress:
    """The progress of a run of a comparison.

    Args:
        place: the index of the run among the tasks.
        state: "waiting", "running", "finished", or the reason of a failure.
        step: the number of finished steps.
        steps: the number of all steps.
    """

    place: int
    state: str
    step: int = 0
    steps: int = 0


class Executor(Protocol):
    """Trains tasks somewhere: in processes of this machine, or on a cluster.

    A custom executor can call `train_one` wherever the data and the run folders can be reached.
    """

    def __call__(self, tasks: Sequence[Task], shared: list[Any], jobs: int | None, watch: Callable[[Progress], None]) -> dict[int, str]:
        """Train all tasks.

        Args:
            tasks: the runs.
            shared: the training set, and the test set or None.
            jobs: how many runs at a time; None for the default of the executor.
            watch: called whenever a run makes progress.

        Returns:
            The reasons of failures, by the index of the task.
        """
        ...


class Runs(list[Run]):
    """The runs of a comparison."""

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write a report page about all of them; `options` are those of `noisewise.report.report`."""
        return Path(extension("report")(self, output, **options))


class RunsFailedError(NoisewiseError):
    """Some runs of a comparison failed.

    Args:
        sentence: how many failed, and why the first did.
        finished: the other runs.
    """

    def __init__(self, sentence: str, finished: Runs) -> None:
        super().__init__(sentence)
        self.finished = finished


def compare(
    model: str,
    data: Any,
    *,
    loss: Sequence[str | Loss] = ("ce",),
    noise: Sequence[str | Noise] = ("none",),
    method: Sequence[str | Method] = ("plain",),
    seed: Sequence[int] = (0,),
    test: Any = None,
    folder: str | os.PathLike[str] = "runs",
    jobs: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    on: str | Executor | None = None,
    **settings: Any,
) -> Runs:
    """Train every loss on every noise with every method and every seed.

    Args:
        model: a model spec.
        data: what `noisewise.data.read` takes.
        loss: loss specs, or losses.
        noise: noise specs, or noises.
        method: method specs, or methods.
        seed: seeds.
        test: test data; an official data set has its own.
        folder: the folder of the run folders.
        jobs: the number of runs at a time; by default one per processor, or eight on a GPU.
        watch: called whenever a run makes progress.
        on: where to train: on a cluster, such as "ray", "ray://head:10001" or "slurm(gpus_per_node=1)"; by default on this machine.
        **settings: all other settings, as for `fit`.

    Returns:
        The runs, in the order of noise, loss, method and seed: a list that can also `report`.

    Raises:
        InputError: a setting is wrong (before any run starts).
        RunsFailedError: runs failed (after the others finished; it contains them).
    """
    check_jobs(jobs, "compare")
    check_watch(watch, "compare")
    if RunFolder(folder).exists():
        raise InputError(f"The folder {str(folder)!r} is a run itself and cannot contain other runs. Give another folder.")
    tasks = plan(model, data_name(data), loss=loss, noise=noise, method=method, seed=seed, folder=folder, **settings)
    failures = train_each(tasks, data, test=test, jobs=jobs, watch=watch, on=on)
    if failures:
        raise RunsFailedError(*summarise_failures(tasks, failures, data, test))
    return Runs(Run(task.folder, data=data, test=test) for task in tasks)


def check_jobs(jobs: int | None, owner: str) -> None:
    """Refuse a number of runs at a time that is not a positive integer."""
    if jobs is not None:
        as_int("jobs", owner, jobs, 1)


def summarise_failures(tasks: Sequence[Task], failures: Mapping[int, str], data: Any = None, test: Any = None) -> tuple[str, Runs]:
    """The message of `RunsFailedError`, and the runs that finished."""
    first, why = next(iter(failures.items()))
    finished = Runs(Run(task.folder, data=data, test=test) for index, task in enumerate(tasks) if index not in failures)
    settings = tasks[first].settings
    run = ", ".join(map(in_short, [settings.loss, *([] if settings.method == "plain" else [settings.method])]))
    return f"{len(failures)} of {len(tasks)} runs failed. The first was {run}: {why.rstrip('.')}.", finished


def train_each(
    tasks: Sequence[Task],
    data: Any,
    *,
    test: Any = None,
    jobs: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    on: str | Executor | None = None,
) -> dict[int, str]:
    """Train tasks on the same data; return the reasons of failures by the index of the task."""
    execute = _here if on is None else executor(on)
    for task in tasks:
        task.check()  # before any run is trained
    train_set, test_set = read_both(data, test)
    for task in tasks:
        check_augment(train_set, task.settings)
    for parent in {task.folder.parent for task in tasks}:
        make_folder(parent)  # fail now, and not once for every run
    with signals.delayed():
        return execute(tasks, [train_set, test_set], jobs, watch or (lambda progress: None))


def executor(on: str | Executor) -> Executor:
    """The executor of a spec, such as "ray", "ray://head:10001" or "slurm(gpus_per_node=1)"; an executor is returned unchanged."""
    if isinstance(on, str) and on.startswith("ray://"):
        on = f"ray(address={on!r})"
    if not isinstance(on, str) and not callable(on):
        raise invalid_parameter("on", "compare", "the spec of a cluster, such as ray or slurm", on)
    return executors.get(on)


def _ray(address: str | None = None, per_gpu: int = RUNS_ON_A_GPU) -> Executor:
    ray: Executor = extension("executor of ray")(address, as_int("per_gpu", "ray", per_gpu, 1))
    return ray


def _slurm(cluster: str = "slurm", **parameters: Any) -> Executor:
    slurm: Executor = extension("executor of slurm")(cluster, parameters)
    return slurm


executors: Registry[Executor] = Registry("cluster")
"""The executors that specs name: the values of `on`."""
executors.add("ray", _ray)
executors.add("slurm", _slurm)


def _here(tasks: Sequence[Task], shared: list[Any], jobs: int | None, watch: Callable[[Progress], None]) -> dict[int, str]:
    """The executor of this machine."""
    device = device_of(tasks[0].settings)
    jobs = min(jobs or (RUNS_ON_A_GPU if device.type == "cuda" else os.cpu_count() or 1), len(tasks))
    with gpu_for_many() if device.type == "cuda" and jobs > 1 else nullcontext():
        return _work(tasks, shared, jobs, watch)


def plan(
    model: str,
    data: str,
    *,
    loss: Sequence[str | Loss],
    noise: Sequence[str | Noise],
    seed: Sequence[int],
    folder: str | os.PathLike[str],
    method: Sequence[str | Method] = ("plain",),
    **settings: Any,
) -> list[Task]:
    """The tasks of a comparison, with checked settings."""
    seed = seed.tolist() if hasattr(seed, "tolist") else seed  # an array
    for name, values in (("loss", loss), ("noise", noise), ("method", method), ("seed", seed)):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise invalid_parameter(name, "compare", "a list with at least one entry", values)
    if not isinstance(model, str):
        raise invalid_parameter("model", "compare", "a model spec, because every run builds its own model", type(model).__name__)
    check_model(model)
    tasks = []
    for each_noise, each_loss, each_method, each_seed in itertools.product(noise, loss, method, seed):
        axes = {"loss": each_loss, "noise": each_noise, "method": each_method, "seed": each_seed}
        checked = make_settings({"data": data, "model": model, **axes, **settings})
        specs = [checked.noise, checked.loss, *([] if checked.method == "plain" else [checked.method])]
        tasks.append(Task(checked, Path(folder) / "-".join([*map(folder_name, specs), f"seed{each_seed}"])))
    if len({task.folder for task in tasks}) < len(tasks):
        raise InputError("Two runs of the comparison are the same. List every loss, noise, method and seed once.")
    return tasks


def check_finished(tasks: Sequence[Task], shared: Sequence[Any], watch: Callable[[Progress], None]) -> tuple[list[int], dict[int, str]]:
    """Check finished runs in this process, so that a cluster gets only those that need training.

    Returns:
        The indices of the tasks to be trained, and why finished runs were refused, by index.
    """
    todo: list[int] = []
    failures: dict[int, str] = {}
    for index, task in enumerate(tasks):
        watch(Progress(index, "waiting"))
        if not task.is_finished():
            todo.append(index)
            continue
        ended = train_one(task, index, shared, lambda progress: None)
        failures |= {} if ended == "finished" else {index: ended}
        watch(Progress(index, ended))
    return todo, failures


def _work(tasks: Sequence[Task], shared: list[Any], jobs: int, watch: Callable[[Progress], None]) -> dict[int, str]:
    """Train the tasks in worker processes, which end before this returns; return why runs failed."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Any, Any] = {}
    try:
        for index in range(len(tasks)):
            watch(Progress(index, "waiting"))
        for _ in range(jobs):
            pipe, end = context.Pipe()
            worker = context.Process(target=_worker, args=(tasks, shared, end), daemon=True)
            with _block_interrupts():
                worker.start()
            end.close()  # only the worker has it now, so the pipe closes when the worker dies
            workers[pipe] = worker
        failures = _follow(tasks, workers, watch)
    except BaseException as error:  # an interrupt, or an error in `watch`: the same call resumes the runs
        for worker in workers.values():
            worker.terminate()
        _wait_for(workers.values())
        mark_interrupted(tasks, error)
        raise
    _wait_for(workers.values())
    return failures


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C from the beginning; this process gets it when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(tasks: Sequence[Task], workers: Mapping[Any, Any], watch: Callable[[Progress], None]) -> dict[int, str]:
    """Assign tasks to workers and report their progress until all tasks ended or no worker is left; return why runs failed.

    Every worker has its own pipe, so that a worker that dies while sending does not block the others.
    """
    todo = list(range(len(tasks)))
    failures: dict[int, str] = {}
    busy: dict[Any, int] = {}

    def assign(pipe: Any) -> None:
        index = todo.pop(0) if todo else None
        if index is not None:
            busy[pipe] = index
        with suppress(OSError):  # the worker died, which is noticed next
            pipe.send(index)

    for pipe in workers:
        assign(pipe)
    while busy:
        ready: list[Any] = wait(list(busy))
        for pipe in ready:
            try:
                progress = pipe.recv()
            except (EOFError, OSError):
                progress = _mark_dead(busy[pipe], tasks, workers[pipe])
            if progress.state != "running":
                del busy[pipe]
                if progress.state != "finished":
                    failures[progress.place] = progress.state
                if workers[pipe].is_alive():
                    assign(pipe)
            watch(progress)
    return failures | dict.fromkeys(todo, "no worker was left to train it")


def _mark_dead(index: int, tasks: Sequence[Task], worker: Any) -> Progress:
    """Mark a run as failed because its worker died (for example, killed for using too much memory)."""
    worker.join()
    why = f"its process ended with status {worker.exitcode}"
    mark_ended(RunFolder(tasks[index].folder), "failed", why)
    return Progress(index, why)


def _wait_for(workers: Iterable[Any]) -> None:
    for worker in workers:
        worker.join(timeout=10)
        worker.kill()
        worker.join()


def mark_interrupted(tasks: Sequence[Task], error: BaseException) -> None:
    """Mark runs as interrupted whose processes were ended because of an error, which may be an interrupt by the user."""
    why = f"stopped by {error}" if isinstance(error, signals.Stopped) else "stopped by the user"
    for task in tasks:
        mark_ended(RunFolder(task.folder), "interrupted", why)


def _worker(tasks: Sequence[Task], shared: list[Any], pipe: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C

    def send(progress: Progress) -> None:
        try:
            pipe.send(progress)
        except OSError:  # the main process was killed: interrupt the run
            sys.exit(1)

    with suppress(EOFError):  # the main process was killed between two runs
        while (index := pipe.recv()) is not None:
            train_one(tasks[index], index, shared, send)


def train_one(task: Task, index: int, shared: Sequence[Any], send: Callable[[Progress], None]) -> str:
    """Train a task in this process, and report its progress: about 200 steps of it, and one in every second.

    Args:
        task: the run.
        index: its index among the tasks.
        shared: the training set, and the test set or None.
        send: called with the progress. What it raises, other than an `Exception`, interrupts the run.

    Returns:
        "finished", or the reason of the failure, because a failed run must not end the others.
    """
    last_sent = -math.inf

    def watch(step: int, steps: int) -> None:
        nonlocal last_sent
        if step % max(1, steps // 200) == 0 or time.monotonic() - last_sent > 1:
            last_sent = time.monotonic()
            send(Progress(index, "running", step, steps))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        send(Progress(index, "running"))
        train_set, test_set = shared
        plugins.load(*task.imports)
        task.train(train_set, test_set, watch)
        ended = "finished"
    except Exception as error:
        ended = failure_reason(error)
    finally:
        torch.set_num_threads(threads)
    send(Progress(index, ended))
    return ended


def failure_reason(error: Exception) -> str:
    """Why a run failed, for the user."""
    return f"{error}" if isinstance(error, NoisewiseError) else repr(error)
