"""Many runs: every loss on every noise with every seed, several at a time, sharing one copy of the data in memory.

Each run is trained by a worker process exactly as `fit` would train it alone, so how many run at once changes nothing in the
results. Runs that are finished are not trained again, and one that was interrupted goes on.
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from noisewise import signals
from noisewise.errors import InputError, NoisewiseError, invalid_parameter
from noisewise.extensions import extension
from noisewise.losses import Loss
from noisewise.noise import Noise
from noisewise.output import make_folder
from noisewise.runs import RunFolder, Settings, in_a_name, mark_ended
from noisewise.spec import as_int, in_short
from noisewise.train._fit import Watch, check_settings, check_watch, train
from noisewise.train._mps import gpu_for_many
from noisewise.train._request import called, check_augment, check_model, device_of, make_settings, read_both
from noisewise.train._run import Run

RUNS_ON_A_GPU = 8


@dataclass(frozen=True)
class Task:
    """One run of a comparison."""

    settings: Settings
    folder: Path

    def check(self) -> None:
        """Refuse a folder that holds a run with other settings."""
        if RunFolder(self.folder).exists():
            check_settings(RunFolder(self.folder), self.settings)

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
        return Path(extension("report")(self, output, **options))


class RunsFailedError(NoisewiseError):
    """Some runs of a comparison failed.

    Args:
        sentence: how many, and why the first did.
        finished: the others.
    """

    def __init__(self, sentence: str, finished: Runs) -> None:
        super().__init__(sentence)
        self.finished = finished


def compare(
    model: str,
    data: Any,
    *,
    loss: Sequence[str | Loss],
    noise: Sequence[str | Noise] = ("none",),
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
        loss: loss specs, or losses.
        noise: noise specs, or noises.
        seed: seeds.
        test: what to test on; an official data set brings its own.
        folder: where the run folders go, one for every run.
        jobs: how many runs at a time; by default one per processor, or eight on a GPU.
        watch: told whenever a run gets further.
        **settings: everything else, as for `fit`.

    Returns:
        The runs, in the order of noise, loss and seed: a list that can also `report`.

    Raises:
        InputError: a setting is wrong (before any run starts).
        RunsFailedError: runs failed; it comes after the others finished, and has them.
    """
    check_jobs(jobs, "compare")
    check_watch(watch, "compare")
    if RunFolder(folder).exists():
        raise InputError(f"The folder {str(folder)!r} is a run itself, in which no others are looked for. Give one for the runs.")
    tasks = plan(model, called(data), loss=loss, noise=noise, seed=seed, folder=folder, **settings)
    return train_all(tasks, data, test=test, jobs=jobs, watch=watch)


def check_jobs(jobs: int | None, owner: str) -> None:
    """Refuse a number of runs at a time that is none."""
    if jobs is not None:
        as_int("jobs", owner, jobs, 1)


def train_all(
    tasks: Sequence[Task], data: Any, *, test: Any = None, jobs: int | None = None, watch: Callable[[Progress], None] | None = None
) -> Runs:
    """Train any tasks on the same data, each with the model its settings name; see `compare`."""
    failures = train_each(tasks, data, test=test, jobs=jobs, watch=watch)
    if failures:
        raise RunsFailedError(*told_of(tasks, failures, data, test))
    return Runs(Run(task.folder, data=data, test=test) for task in tasks)


def told_of(tasks: Sequence[Task], failures: Mapping[int, str], data: Any = None, test: Any = None) -> tuple[str, Runs]:
    """What to say of tasks some of which failed, and the runs of the others."""
    place, why = next(iter(failures.items()))
    finished = Runs(Run(task.folder, data=data, test=test) for other, task in enumerate(tasks) if other not in failures)
    return f"{len(failures)} of {len(tasks)} runs failed; the first, {in_short(tasks[place].settings.loss)}: {why}", finished


def train_each(
    tasks: Sequence[Task], data: Any, *, test: Any = None, jobs: int | None = None, watch: Callable[[Progress], None] | None = None
) -> dict[int, str]:
    """Train any tasks, as `train_all` does; return why those that failed did, by their places."""
    device = device_of(tasks[0].settings)
    for task in tasks:
        task.check()  # now: otherwise the new runs would be trained before an old one is refused
    train_set, test_set = read_both(data, test)
    for task in tasks:
        check_augment(train_set, task.settings)
    for parent in {task.folder.parent for task in tasks}:
        make_folder(parent)  # or refuse it now, and not once for every run
    jobs = min(jobs or (RUNS_ON_A_GPU if device.type == "cuda" else os.cpu_count() or 1), len(tasks))
    with signals.delayed(), gpu_for_many() if device.type == "cuda" and jobs > 1 else nullcontext():
        return _work(tasks, [train_set, test_set], jobs, watch or (lambda progress: None))


def plan(
    model: str,
    data: str,
    *,
    loss: Sequence[str | Loss],
    noise: Sequence[str | Noise],
    seed: Sequence[int],
    folder: str | os.PathLike[str],
    **settings: Any,
) -> list[Task]:
    """Every run of a comparison, all settings checked."""
    seed = seed.tolist() if hasattr(seed, "tolist") else seed  # an array
    for name, given in (("loss", loss), ("noise", noise), ("seed", seed)):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InputError(f"A comparison needs a list for {name}. Got {given!r}; write [{given!r}].")
        if not given:
            raise invalid_parameter(name, "compare", "a list of one or more", given)
    if not isinstance(model, str):
        raise invalid_parameter("model", "compare", "a model spec, from which every run builds its own", type(model).__name__)
    check_model(model)
    tasks = []
    for one_noise, one_loss, one_seed in itertools.product(noise, loss, seed):
        asked = make_settings({"data": data, "model": model, "loss": one_loss, "noise": one_noise, "seed": one_seed, **settings})
        tasks.append(Task(asked, Path(folder) / f"{in_a_name(asked.noise)}-{in_a_name(asked.loss)}-seed{one_seed}"))
    if len({task.folder for task in tasks}) < len(tasks):
        raise InputError("Two runs of the comparison are the same. List every loss, noise and seed once.")
    return tasks


def _work(tasks: Sequence[Task], shared: list[Any], jobs: int, watch: Callable[[Progress], None]) -> dict[int, str]:
    """Train the tasks in worker processes; return why the failed ones failed. No process outlives this."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Any, Any] = {}
    try:
        for place in range(len(tasks)):
            watch(Progress(place, "waiting"))
        for _ in range(jobs):
            line, end = context.Pipe()
            worker = context.Process(target=_worker, args=(tasks, shared, end), daemon=True)
            with _deaf_to_interrupts():
                worker.start()
            end.close()  # the worker has the only one now: when it dies, the line is cut
            workers[line] = worker
        failures = _follow(tasks, workers, watch)
    except BaseException as error:  # an interrupt, or an error of watch: what is under way goes on when the same is asked for again
        for worker in workers.values():
            worker.terminate()
        _wait_for(workers.values())
        why = f"stopped by {error}" if isinstance(error, signals.Stopped) else "stopped by the user"
        for task in tasks:
            mark_ended(RunFolder(task.folder), "interrupted", why)
        raise
    _wait_for(workers.values())
    return failures


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes in the block that Ctrl-C does not reach, from their first moment; here it comes when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(tasks: Sequence[Task], workers: Mapping[Any, Any], watch: Callable[[Progress], None]) -> dict[int, str]:
    """Hand the tasks out, one after the other, and tell what is heard of them, until all ended or no worker is left.

    Every worker has a line of its own, so that one that dies in the middle of a word holds up nobody.
    """
    todo = list(range(len(tasks)))
    failures: dict[int, str] = {}
    busy: dict[Any, int] = {}

    def hand_out(line: Any) -> None:
        place = todo.pop(0) if todo else None
        if place is not None:
            busy[line] = place
        with suppress(OSError):  # it died: that is heard next
            line.send(place)

    for line in workers:
        hand_out(line)
    while busy:
        heard: list[Any] = wait(list(busy))
        for line in heard:
            try:
                progress = line.recv()
            except (EOFError, OSError):
                progress = _mark_dead(busy[line], tasks, workers[line])
            if progress.state != "running":
                del busy[line]
                if progress.state != "finished":
                    failures[progress.place] = progress.state
                if workers[line].is_alive():
                    hand_out(line)
            watch(progress)
    return failures | dict.fromkeys(todo, "no worker was left to train it")


def _mark_dead(place: int, tasks: Sequence[Task], worker: Any) -> Progress:
    """A run has failed whose worker died without a word (killed for memory, say); its folder must not say that it is under way."""
    worker.join()
    why = f"its process ended with status {worker.exitcode}"
    mark_ended(RunFolder(tasks[place].folder), "failed", why)
    return Progress(place, why)


def _wait_for(workers: Iterable[Any]) -> None:
    for worker in workers:
        worker.join(timeout=10)
        worker.kill()
        worker.join()


def _worker(tasks: Sequence[Task], shared: list[Any], line: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the keyboard is for the process that compares
    torch.set_num_threads(1)
    train_set, test_set = shared
    said = -math.inf

    def say(progress: Progress) -> None:
        nonlocal said
        said = time.monotonic()
        try:
            line.send(progress)
        except OSError:  # the process that compares was killed: what is under way is interrupted, without a word
            sys.exit(1)

    with suppress(EOFError):  # the same, between two runs
        while (place := line.recv()) is not None:

            def tell(step: int, steps: int, place: int = place) -> None:
                if step % max(1, steps // 200) == 0 or time.monotonic() - said > 1:  # soon enough to hear that nobody listens any more
                    say(Progress(place, "running", step, steps))

            try:
                say(Progress(place, "running"))
                tasks[place].train(train_set, test_set, tell)
                say(Progress(place, "finished"))
            except Exception as error:  # one run that fails must not end the others
                say(Progress(place, why_failed(error)))


def why_failed(error: Exception) -> str:
    """What is told of a run that ended in an error."""
    return f"{error}" if isinstance(error, NoisewiseError) else repr(error)
