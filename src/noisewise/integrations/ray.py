"""Train the runs of a comparison on a Ray cluster: `noisewise compare … --on ray`.

Every run is a task of Ray, on one core of a processor or on a share of a GPU. Ray trains a run again whose worker was lost: the run resumes
at its last checkpoint. Run folders lie on storage that the workers share with this machine, or are fetched when their runs end.
"""

from __future__ import annotations

import importlib
import io
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, reason
from noisewise.runs import RunFolder, mark_ended
from noisewise.train import Progress, Task, check_finished, mark_interrupted, train_one

_RETRIES = 5  # of a run whose worker was lost
_POLL = 0.5  # seconds between looks at the progress
_LOCKED = 90.0  # seconds until the lock of a lost machine on a network disk is released
_TO_STOP = 10.0  # seconds for a run to stop after an interrupt


class OnRay:
    """Trains tasks on a Ray cluster.

    Args:
        address: where the cluster is, such as "ray://head:10001"; None for the cluster that this machine is part of, or else for a new
            one on this machine.
        per_gpu: how many runs share a GPU.
    """

    def __init__(self, address: str | None, per_gpu: int) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError:
            raise InputError("Training on Ray needs ray, which is not installed; run: pip install 'noisewise[ray]'.") from None
        self._address, self._per_gpu = address, per_gpu

    def __call__(self, tasks: Sequence[Task], shared: list[Any], jobs: int | None, watch: Callable[[Progress], None]) -> dict[int, str]:
        """See `noisewise.train.Executor`. By default as many runs are trained at a time as the cluster has room for."""
        todo, failures = check_finished(tasks, shared, watch)
        if not todo:
            return failures
        probe = tasks[0].folder.parent.resolve() / f".noisewise-{secrets.token_hex(8)}"
        probe.touch()
        try:
            with self._connected():
                return failures | self._train(tasks, todo, shared, jobs or len(tasks), watch, probe)
        except BaseException as error:
            mark_interrupted(tasks, error)
            raise
        finally:
            probe.unlink(missing_ok=True)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Connect to the cluster during the block, unless the caller is connected already."""
        if self._ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._init()
        except (ConnectionError, ValueError, RuntimeError) as error:
            place = "here" if self._address is None else f"to {self._address!r}"
            advice = "Start a cluster with ray start, or give its address."
            raise InputError(f"Ray cannot connect {place} ({reason(error)}). {advice}") from None
        try:
            yield
        finally:
            self._ray.shutdown()

    def _init(self) -> None:
        options = {"log_to_driver": False, "logging_level": "warning"}
        if self._address is not None:
            self._ray.init(address=self._address, **options)
            return
        try:
            self._ray.init(address="auto", **options)
        except ConnectionError:  # there is no cluster: start one that only this machine can reach
            self._ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **options)

    def _train(
        self, tasks: Sequence[Task], todo: list[int], shared: list[Any], jobs: int, watch: Callable[[Progress], None], probe: Path
    ) -> dict[int, str]:
        """Submit the tasks, follow their progress, and return why runs failed."""
        ray = self._ray
        data = ray.put(shared)
        board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board).remote()  # its machine may be lost, too
        failures: dict[int, str] = {}
        running: dict[Any, int] = {}
        try:
            while todo or running:
                while todo and len(running) < jobs:
                    index = todo.pop(0)
                    train = ray.remote(max_retries=_RETRIES, **self._resources(tasks[index]))(_train)
                    running[train.remote(tasks[index], index, data, board, probe)] = index
                done, _ = ray.wait(list(running), timeout=_POLL)
                for progress in ray.get(board.take.remote()):
                    if progress.state == "running" and progress.place in running.values():
                        watch(progress)
                for finished in done:
                    index = running.pop(finished)
                    ended = self._result(finished, tasks[index])
                    failures |= {} if ended == "finished" else {index: ended}
                    watch(Progress(index, ended))
        finally:
            self._stop(list(running))
        return failures

    def _resources(self, task: Task) -> dict[str, float]:
        """What a run needs: a share of a GPU, if the cluster has GPUs and the run may use one, or a core of a processor."""
        if task.settings.device == "cpu" or not self._ray.cluster_resources().get("GPU"):
            return {"num_cpus": 1}
        return {"num_cpus": 1, "num_gpus": 1 / self._per_gpu}

    def _result(self, finished: Any, task: Task) -> str:
        """How a run ended: "finished" or the reason of its failure. A run folder that the worker sent is written here."""
        try:
            ended, archive = self._ray.get(finished)
        except self._ray.exceptions.RayError as error:
            why = f"Ray could not finish it, also after {_RETRIES} retries ({reason(error)[:200]})"
            mark_ended(RunFolder(task.folder), "failed", why)
            return why
        if archive is not None:
            _unpack(archive, task.folder)
        return str(ended)

    def _stop(self, running: list[Any]) -> None:
        """Interrupt the runs that are still being trained; they write where they are."""
        for force in (False, True):
            for each in running:
                with suppress(self._ray.exceptions.RayError, ValueError):
                    self._ray.cancel(each, force=force)
            running = self._ray.wait(running, num_returns=len(running), timeout=_TO_STOP)[1] if running else []


class Board:
    """Where workers write their progress, for the process that shows it."""

    def __init__(self) -> None:
        self._new: list[Progress] = []

    def put(self, progress: Progress) -> None:
        self._new.append(progress)

    def take(self) -> list[Progress]:
        """What was written since the last call."""
        new, self._new = self._new, []
        return new


def _train(task: Task, index: int, shared: list[Any], board: Any, probe: Path) -> tuple[str, bytes | None]:
    """Train a task in a worker; return how it ended and, without shared storage, its run folder as an archive.

    Args:
        probe: a file beside the run folders, which the worker finds if it shares their storage.
    """
    if probe.exists():
        task = replace(task, folder=probe.parent / task.folder.name)
        RunFolder(task.folder).wait_until_free(_LOCKED)  # a lost worker may have trained in it a moment ago
        return train_one(task, index, shared, board.put.remote), None
    if not task.alone:
        return f"the workers of the cluster do not share the folder {str(probe.parent)!r}, which a search needs", None
    place = Path(tempfile.gettempdir()) / probe.name.lstrip(".")
    task = replace(task, folder=place / task.folder.name)  # a run that is tried again on this machine resumes there
    ended = train_one(task, index, shared, board.put.remote)
    archive = _packed(task.folder) if task.folder.exists() else None  # a run may fail before it has a folder
    shutil.rmtree(task.folder, ignore_errors=True)
    with suppress(OSError):  # other runs are there
        place.rmdir()
    return ended, archive


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, ".")
    return buffer.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Replace a folder by the one in an archive."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetched-") as part, tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(Path(part) / "run", filter="data")
        if folder.exists():
            shutil.rmtree(folder)
        (Path(part) / "run").rename(folder)
