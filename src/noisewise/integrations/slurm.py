"""Train the runs of a comparison as Slurm jobs, through submitit: `noisewise compare … --on "slurm(gpus_per_node=1)"`.

A job trains several runs at the same time on its GPU. A job that reaches its time limit or is preempted is queued again, and its runs
resume. Slurm clusters have shared storage, so jobs read the data from the folder of the runs and write the run folders there.
"""

from __future__ import annotations

import importlib
import pickle
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, NoisewiseError, reason
from noisewise.output import written_output
from noisewise.runs import RunFolder, mark_ended
from noisewise.train import RUNS_ON_A_GPU, Progress, Task, check_finished, mark_interrupted, train_each, train_one

_POLL = 1.0  # seconds between looks at the runs
_MINUTES = 240  # the default time limit of a job
_LOCKED = 90.0  # seconds until the lock of a lost machine on a network disk is released


class OnSlurm:
    """Trains tasks as jobs.

    Args:
        cluster: "slurm", or "local" for jobs in processes of this machine.
        parameters: of the jobs, under submitit's names: timeout_min, gpus_per_node, cpus_per_task, mem_gb, slurm_partition and so on.
    """

    def __init__(self, cluster: str, parameters: dict[str, Any]) -> None:
        try:
            self._submitit: Any = importlib.import_module("submitit")
        except ImportError:
            raise InputError("Training on Slurm needs submitit, which is not installed; run: pip install 'noisewise[slurm]'.") from None
        self._cluster, self._parameters = cluster, {"timeout_min": _MINUTES, "name": "noisewise", **parameters}

    def __call__(self, tasks: Sequence[Task], shared: list[Any], jobs: int | None, watch: Callable[[Progress], None]) -> dict[int, str]:
        """See `noisewise.train.Executor`. `jobs` is the number of runs in a job: by default one, or eight on a GPU."""
        todo, failures = check_finished(tasks, shared, watch)
        if not todo:
            return failures
        logs = tasks[0].folder.parent.resolve() / f".slurm-{secrets.token_hex(4)}"
        logs.mkdir()
        executor = self._executor(logs)
        at_once = jobs or (RUNS_ON_A_GPU if self._parameters.get("gpus_per_node") else 1)
        with written_output(logs / "data.pickle") as file:
            file.write_bytes(pickle.dumps(shared))
        parts = [todo[start : start + at_once] for start in range(0, len(todo), at_once)]
        submitted: list[Any] = []
        try:
            with executor.batch():
                for part in parts:
                    there = [replace(tasks[index], folder=tasks[index].folder.resolve()) for index in part]
                    submitted.append(executor.submit(_Job(), there, logs / "data.pickle"))
            failures |= self._follow(tasks, dict(zip(map(tuple, parts), submitted, strict=True)), watch)
        except BaseException as error:
            for job in submitted:
                job.cancel(check=False)
            mark_interrupted(tasks, error)
            raise
        finally:
            (logs / "data.pickle").unlink()
        if not failures:
            shutil.rmtree(logs)
        return failures

    def _executor(self, logs: Path) -> Any:
        try:
            executor = self._submitit.AutoExecutor(folder=logs, cluster=self._cluster)
            executor.update_parameters(**self._parameters)
        except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
            sentence = f"The jobs cannot be submitted to {self._cluster!r} ({reason(error)})."
            raise InputError(f"{sentence} Use a machine that can submit Slurm jobs, and the parameter names of submitit.") from None
        return executor

    def _follow(self, tasks: Sequence[Task], jobs: dict[tuple[int, ...], Any], watch: Callable[[Progress], None]) -> dict[int, str]:
        """Report the progress of the runs, read from their folders, until all jobs ended; return why runs failed."""
        shown = {index: Progress(index, "waiting") for index in range(len(tasks))}
        failures: dict[int, str] = {}

        def show(progress: Progress) -> None:
            if shown[progress.place] != progress:
                shown[progress.place] = progress
                watch(progress)

        while jobs:
            for indices, job in list(jobs.items()):
                ended = job.done()
                for index in indices:
                    show(_progress(tasks[index], index))
                if ended:
                    del jobs[indices]
                    failed = self._failures(job, [tasks[index] for index in indices])
                    failures |= {indices[number]: why for number, why in failed.items()}
                    for number, index in enumerate(indices):
                        show(Progress(index, failed.get(number, "finished")))
            if jobs:
                time.sleep(_POLL)
        return failures

    def _failures(self, job: Any, tasks: Sequence[Task]) -> dict[int, str]:
        """Why runs of a job failed. Of a job that was killed these are the runs that are not finished."""
        try:
            return dict(job.result())
        except self._submitit.core.utils.UncompletedJobError as error:
            why = f"its job {job.job_id} ended without a result ({reason(error)[:200]})"
        except self._submitit.core.utils.FailedJobError as error:
            why = f"its job {job.job_id} failed ({reason(error)[-200:]})"
        unfinished = [number for number, task in enumerate(tasks) if not task.is_finished()]
        for number in unfinished:
            mark_ended(RunFolder(tasks[number].folder), "failed", why)
        return dict.fromkeys(unfinished, why)


def _progress(task: Task, index: int) -> Progress:
    """The progress of a run that its folder tells; its last state comes from its job."""
    with suppress(NoisewiseError):
        if RunFolder(task.folder).exists():
            return Progress(index, "running", int(RunFolder(task.folder).status()["step"]))
    return Progress(index, "waiting")


class _Job:
    """What a job runs."""

    def __call__(self, tasks: Sequence[Task], data: Path) -> dict[int, str]:
        """Train the tasks at the same time; return why runs failed, by the index of the task."""
        shared = pickle.loads(data.read_bytes())  # written by the process that submitted this job
        for task in tasks:
            RunFolder(task.folder).wait_until_free(_LOCKED)
        if len(tasks) > 1:
            return train_each(tasks, shared[0], test=shared[1], jobs=len(tasks))
        ended = train_one(tasks[0], 0, shared, lambda progress: None)
        return {} if ended == "finished" else {0: ended}

    def checkpoint(self, *arguments: Any) -> Any:
        """What submitit queues when the job reaches its time limit: the same, because runs resume."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, *arguments)
