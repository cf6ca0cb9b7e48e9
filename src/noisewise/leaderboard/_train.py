"""Train the runs that have no result yet, and write every result as soon as its run is finished.

Runs are ordered by condition, then by seed, so that a portion of them compares all rows. The folder of a run is deleted when its result is
written; that of a run that was stopped is kept, and the next call resumes it.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from noisewise import methods
from noisewise.data import Dataset, read
from noisewise.errors import DivergedError, NoisewiseError
from noisewise.leaderboard._board import Board, Condition, Protocol, Spec
from noisewise.leaderboard._results import ENDING, Result, Results, made_with, now, read_file, write_file
from noisewise.output import check_output
from noisewise.papers import decisive, key
from noisewise.runs import folder_name
from noisewise.train import RUNS_ON_A_GPU, Progress, Run, Runs, RunsFailedError, Task, check_jobs, plan, train_each

FOLDER = Path("runs", "leaderboard")
"""Where runs are trained."""

_RESULT = "result.json"
_TOO_LATE = "not started, because the time is over"


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
        """The number of training images over all epochs and networks."""
        trained: float = self.condition.examples * (1 - self.settings.get("validation", 0.0)) * self.settings["epochs"]
        return round(trained * methods.get(self.spec.method).networks)


def missing(board: Board, results: Results, seeds: Sequence[int] = (0, 1, 2)) -> list[Missing]:
    """The runs that have no result: the conditions one after the other, and the seeds of each one after the other.

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
        for spec in protocol.specs(condition)
    ]
    return [run for run in wanted if run.seed not in results.of(run.settings)]


class _TooLateError(NoisewiseError):
    """A run was not started, because the time is over."""


@dataclass(frozen=True)
class _Training(Task):
    """A run that writes its result into its folder.

    Args:
        asked: the settings that the result is found by, without the seed.
        jobs: the number of runs at a time.
        until: the time after which it is not started.
    """

    asked: Mapping[str, Any]
    jobs: int
    until: float

    def train(self, data: Any, test: Any, watch: Callable[[int, int], None]) -> None:
        if time.time() > self.until:
            raise _TooLateError(_TOO_LATE)
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
    minutes: float = math.inf,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Train runs and add their results to a file.

    Args:
        runs: the runs, in this order.
        output: the file; the results that it has are kept.
        jobs: the number of runs at a time; by default as in `compare`.
        minutes: the time after which no run is started. Those that were started are finished.
        watch: called whenever a run makes progress.

    Returns:
        The number of runs that were not started.

    Raises:
        InputError: something is wrong or missing (before any run starts).
        RunsFailedError: runs failed (after the others finished). A run that diverges does not fail: it has a result without accuracy.
    """
    check_jobs(jobs, "leaderboard")
    until = time.time() + 60 * minutes
    file = check_output(output, "leaderboard", [ENDING])
    found = read_file(file) if file.exists() else []
    jobs = jobs or (RUNS_ON_A_GPU if torch.cuda.is_available() else os.cpu_count() or 1)
    tasks = [_task(run, jobs, until) for run in runs]
    sets = _read(runs)
    failures: dict[int, str] = {}
    for data, group in groupby(range(len(runs)), key=lambda place: runs[place].condition.data):
        places = list(group)
        if time.time() > until:  # starting workers takes a while
            failures |= dict.fromkeys(places, _TOO_LATE)
            continue

        def step(progress: Progress, places: list[int] = places) -> None:
            task = tasks[places[progress.place]]
            if progress.state == "finished":
                found.extend(read_file(task.folder / _RESULT))
                write_file(file, found)
                shutil.rmtree(task.folder, ignore_errors=True)
            watch(replace(progress, place=places[progress.place]))

        failed = train_each([tasks[place] for place in places], sets[data][0], test=sets[data][1], jobs=jobs, watch=step)
        failures |= {places[place]: why for place, why in failed.items()}
    late = [place for place, why in failures.items() if why == _TOO_LATE]
    if len(late) < len(failures):
        raise RunsFailedError(_summary(runs, {place: why for place, why in failures.items() if place not in late}), Runs())
    return len(late)


def _read(runs: Sequence[Missing]) -> dict[str, tuple[Dataset, Dataset]]:
    """The training and the test set of every data set, each read once, after a check that the training set has what its noises need."""
    sets = {name: (read(name), read(name, split="test")) for name in dict.fromkeys(run.condition.data for run in runs)}
    for data, noise in dict.fromkeys((run.condition.data, run.condition.noise) for run in runs):
        sets[data][0].corruption(noise)
    return sets


def _task(run: Missing, jobs: int, until: float) -> _Training:
    """The task of a run, with checked settings."""
    others = {name: value for name, value in run.settings.items() if name not in ("data", "noise", "loss", "method", "model")}
    others["compile"] = others.get("compile", False) and torch.cuda.is_available()
    axes: dict[str, Any] = {"loss": [run.spec.loss], "noise": [run.condition.noise], "method": [run.spec.method], "seed": [run.seed]}
    (task,) = plan(run.settings["model"], run.condition.data, **axes, folder=FOLDER, **others)
    name = f"{folder_name(str(run.spec))}-{hashlib.sha256(key(run.settings).encode()).hexdigest()[:8]}-seed{run.seed}"
    asked = {name: value for name, value in run.settings.items() if name in decisive({})}
    return _Training(task.settings, FOLDER / name, asked, jobs, until)


def _summary(runs: Sequence[Missing], failures: Mapping[int, str]) -> str:
    first, why = next(iter(failures.items()))
    return f"{len(failures)} of {len(runs)} runs failed. The first was {runs[first].spec}, {runs[first].condition.name}: {why.rstrip('.')}."
