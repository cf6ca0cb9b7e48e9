"""Train the runs that have no result yet, and write every result as soon as its run is finished.

Runs are ordered by condition, then by seed, so that a portion of them compares all rows. The folder of a run is deleted when its result is
written; that of a run that was stopped is kept, and the next call resumes it.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from noisewise import methods
from noisewise.data import Dataset, read
from noisewise.errors import DivergedError, invalid_parameter
from noisewise.leaderboard._board import Board, Condition, Protocol, Spec
from noisewise.leaderboard._results import ENDING, Result, Results, made_with, now, read_file, write_file
from noisewise.output import check_output
from noisewise.papers import decisive, key
from noisewise.runs import folder_name
from noisewise.spec import real
from noisewise.train import OUT_OF_TIME, RUNS_ON_A_GPU, Deadline, Progress, Run, Runs, RunsFailedError, Task, check_jobs, plan, train_each

FOLDER = Path("runs", "leaderboard")
"""Where runs are trained."""

_RESULT = "result.json"


@dataclass(frozen=True)
class Missing:
    """A run without a result.

    Args:
        protocol: how to train it.
        condition: what to train it on.
        spec: what to train.
        seed: its seed.
    """

    protocol: Protocol
    condition: Condition
    spec: Spec
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run, without the seed."""
        return self.protocol.settings_of(self.condition, self.spec)

    @property
    def images(self) -> int:
        """The number of training images over all epochs, networks and views."""
        trained: float = self.condition.examples * (1 - self.settings.get("validation", 0.0)) * self.settings["epochs"]
        method = methods.get(self.spec.method)
        return round(trained * method.networks * method.views)


def missing(board: Board, results: Results, seeds: Sequence[int] = (0, 1, 2)) -> list[Missing]:
    """The runs that have no result: the conditions one after the other, the seeds of each, and of these the longest runs first.

    Args:
        board: what is compared.
        results: the existing results.
        seeds: the wanted seeds.
    """
    wanted = [
        Missing(protocol, condition, spec, seed)
        for protocol in board.protocols
        for condition in protocol.conditions
        for seed in seeds
        for spec in sorted(protocol.specs(condition), key=lambda spec: -Missing(protocol, condition, spec, seed).images)
    ]
    return [run for run in wanted if run.seed not in results.of(run.settings)]


@dataclass(frozen=True)
class _Training(Task):
    """A run that writes its result into its folder.

    Args:
        asked: the settings that the result is found by, without the seed.
        jobs: the number of runs at a time.
    """

    asked: Mapping[str, Any]
    jobs: int

    def train(self, data: Any, test: Any, watch: Callable[[int, int], None]) -> None:
        try:
            super().train(data, test, watch)
            result = Result.of(Run(self.folder), self.asked, self.jobs)
        except DivergedError as error:
            result = Result(self.asked, self.settings.seed, now(), diverged=str(error), made_with=made_with(Run(self.folder), self.jobs))
        write_file(self.folder / _RESULT, [result])


def train(
    runs: Sequence[Missing],
    output: str | PathLike[str],
    *,
    jobs: int | None = None,
    minutes: float | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Train runs and add their results to a file.

    Args:
        runs: the runs, in this order.
        output: the file; the results that it has are kept.
        jobs: the number of runs at a time; by default as in `compare`.
        minutes: how long training may take. Runs that would not finish do not begin, or are stopped early, so that the others finish.
        watch: called whenever a run makes progress.

    Returns:
        The number of runs that did not finish in this time.

    Raises:
        InputError: something is wrong or missing (before any run starts).
        RunsFailedError: runs failed (after the others finished). A run that diverges does not fail: it has a result without accuracy.
    """
    check_jobs(jobs, "leaderboard")
    if minutes is not None and not 0 <= real(minutes) < math.inf:
        raise invalid_parameter("minutes", "leaderboard", "a number of at least 0", minutes)
    file = check_output(output, "leaderboard", [ENDING])
    found = read_file(file) if file.exists() else []
    jobs = jobs or (RUNS_ON_A_GPU if torch.cuda.is_available() else os.cpu_count() or 1)
    tasks = [_task(run, jobs) for run in runs]
    sets = _read(runs)
    failures: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        deadline = None if minutes is None else Deadline(60 * minutes, Path(folder))
        timed: list[Task] = [
            task if deadline is None else deadline.timed(task, place, runs[place].images) for place, task in enumerate(tasks)
        ]
        for data, group in groupby(range(len(runs)), key=lambda place: runs[place].condition.data):
            places = list(group)

            def step(progress: Progress, places: list[int] = places) -> None:
                progress = replace(progress, place=places[progress.place])
                task = tasks[progress.place]
                if progress.state == "finished":
                    found.extend(read_file(task.folder / _RESULT))
                    write_file(file, found)
                    shutil.rmtree(task.folder, ignore_errors=True)
                if deadline is not None:
                    deadline.watch(progress)
                watch(progress)

            failed = train_each([timed[place] for place in places], sets[data][0], test=sets[data][1], jobs=jobs, watch=step)
            failures |= {places[place]: why for place, why in failed.items()}
    late = [place for place, why in failures.items() if why == OUT_OF_TIME]
    if len(late) < len(failures):
        raise RunsFailedError(_summary(runs, {place: why for place, why in failures.items() if place not in late}), Runs())
    return len(late)


def _read(runs: Sequence[Missing]) -> dict[str, tuple[Dataset, Dataset]]:
    """The training and the test set of every data set, each read once, after a check that the training set has what its noises need."""
    sets = {name: (read(name), read(name, split="test")) for name in dict.fromkeys(run.condition.data for run in runs)}
    for data, noise in dict.fromkeys((run.condition.data, run.condition.noise) for run in runs):
        sets[data][0].corruption(noise)
    return sets


def _task(run: Missing, jobs: int) -> _Training:
    """The task of a run, with checked settings."""
    others = {name: value for name, value in run.settings.items() if name not in ("data", "noise", "loss", "method", "model")}
    others["compile"] = others.get("compile", False) and torch.cuda.is_available()
    axes: dict[str, Any] = {"loss": [run.spec.loss], "noise": [run.condition.noise], "method": [run.spec.method], "seed": [run.seed]}
    (task,) = plan(run.settings["model"], run.condition.data, **axes, folder=FOLDER, **others)
    name = f"{folder_name(str(run.spec))}-{hashlib.sha256(key(run.settings).encode()).hexdigest()[:8]}-seed{run.seed}"
    asked = {name: value for name, value in run.settings.items() if name in decisive({})}
    return _Training(task.settings, FOLDER / name, asked, jobs)


def _summary(runs: Sequence[Missing], failures: Mapping[int, str]) -> str:
    first, why = next(iter(failures.items()))
    return f"{len(failures)} of {len(runs)} runs failed. The first was {runs[first].spec}, {runs[first].condition.name}: {why.rstrip('.')}."
