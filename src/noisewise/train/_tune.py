"""Search the hyper-parameters of losses. A setting is judged on the share of noisy examples that its run holds out, never on test labels.

The trials of a search are tasks like the runs of a comparison, so they are trained wherever those are. What proposes settings is a library
in `noisewise.integrations`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from noisewise.data import Dataset, digest, digest_of, read
from noisewise.errors import InputError
from noisewise.extensions import extension
from noisewise.losses import Loss
from noisewise.methods import Method
from noisewise.noise import Noise
from noisewise.runs import Settings, folder_name
from noisewise.spec import Registry, as_int
from noisewise.train._compare import Executor, Progress, Runs, RunsFailedError, Task, check_jobs, plan, train_each
from noisewise.train._fit import check_watch
from noisewise.train._request import data_name

_TRIALS = 20
SEARCHES = ".search"
"""The folder of the searches among the run folders; it is hidden, so that reports leave out the trials."""


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search.

    Args:
        settings: the settings that the search started from.
        loss: the best loss.
        accuracy: its accuracy on the held-out share; None if the loss has no hyper-parameters to search.
        trials: the number of trials.
        pruned: how many of them were stopped early.
        folder: the folder of the trials.
    """

    settings: Settings
    loss: str
    accuracy: float | None
    trials: int
    pruned: int
    folder: Path


class Study(Protocol):
    """The search for the hyper-parameters of one loss."""

    @property
    def settings(self) -> Settings:
        """The settings that the search starts from."""

    def tasks(self) -> list[Task]:
        """The trials."""

    def best(self) -> Tuned | None:
        """The outcome after the trials; None if every trial failed."""


class Search(Protocol):
    """Makes the studies of a search."""

    def __call__(self, settings: Settings, folder: Path) -> Study:
        """The study of one loss, in a folder."""


def _optuna(trials: int = _TRIALS) -> Search:
    search: Search = extension("search by optuna")(as_int("trials", "optuna", trials, 1))
    return search


searches: Registry[Search] = Registry("search")
"""The searches by name."""
searches.add("optuna", _optuna)


def tune(
    model: str,
    data: Any,
    *,
    loss: Sequence[str | Loss],
    noise: Sequence[str | Noise] = ("none",),
    method: Sequence[str | Method] = ("plain",),
    seed: int = 0,
    search: str | Search = "optuna",
    folder: str | os.PathLike[str] = "runs",
    jobs: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    on: str | Executor | None = None,
    **settings: Any,
) -> list[Tuned]:
    """Search the hyper-parameters of every loss, for every noise and method.

    The same call resumes a search. Several processes, also on several machines that share the folder, can make the same call at the same
    time: they share the trials.

    Args:
        model: a model spec.
        data: what `noisewise.data.read` takes.
        loss: loss specs, or losses. Their hyper-parameters are searched, also those of the losses inside them; the first trial has the
            given values.
        noise: noise specs, or noises.
        method: method specs, or methods.
        seed: the seed of all trials.
        search: the spec of a search, such as "optuna(trials=50)".
        folder: the folder of the run folders; the trials are in its folder ``.search``.
        jobs: the number of trials at a time; see `noisewise.compare`.
        watch: called whenever a trial makes progress.
        on: where to train; see `noisewise.compare`.
        **settings: all other settings, as for `fit`; `validation` is required.

    Returns:
        The outcomes, in the order of noise, loss and method.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (tuned,) = tune("linear", "digits", loss=["ce"], epochs=1, validation=0.1, folder=folder)
        >>> tuned.loss, tuned.trials  # cross-entropy has no hyper-parameters
        ('ce', 0)
    """
    check_jobs(jobs, "tune")
    check_watch(watch, "tune")
    examples = read(data)
    axes = {"loss": loss, "noise": noise, "method": method}
    studies = plan_studies(model, examples, data_name(data), seed=seed, search=search, folder=folder, **axes, **settings)
    return run_studies(studies, examples, jobs=jobs, watch=watch, on=on)


def plan_studies(
    model: str, examples: Dataset, data: str, *, seed: int, search: str | Search, folder: str | os.PathLike[str], **grid: Any
) -> list[Study]:
    """The studies of a search; see `tune`.

    Args:
        model: a model spec.
        examples: the data.
        data: their name in the settings.
        seed: the seed of all trials.
        search: the spec of a search.
        folder: the folder of the run folders.
        **grid: loss, noise and method, which are sequences, and all other settings.
    """
    make = searches.get(search)
    studies = []
    for task in plan(model, data, seed=[seed], folder=folder, **grid):
        settings = task.settings
        if settings.validation == 0:
            raise InputError("A search compares trials on a held-out share. Got search without validation; add for example validation=0.1.")
        content = [json.dumps(settings.as_json(), sort_keys=True), json.dumps(examples.input_digests()), digest(examples.labels)]
        name = f"{folder_name(settings.noise)}-{folder_name(settings.loss)}-{digest_of(content)[:8]}"  # other data, another study
        studies.append(make(settings, Path(folder) / SEARCHES / name))
    return studies


def run_studies(
    studies: Sequence[Study],
    examples: Dataset,
    *,
    jobs: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    on: str | Executor | None = None,
) -> list[Tuned]:
    """Train the trials of studies; see `tune`. No test data are given, so that none can be looked at."""
    tasks = [task for study in studies for task in study.tasks()]
    failures = train_each(tasks, examples, jobs=jobs, watch=watch, on=on) if tasks else {}
    outcomes = []
    for study in studies:
        best = study.best()
        if best is None:
            why = next(iter(failures.values()), "no trial finished").rstrip(".")
            raise RunsFailedError(f"Every trial of {study.settings.loss} failed: {why}.", Runs())
        outcomes.append(best)
    return outcomes
