"""Comparisons on clusters: a Ray cluster of three machines, of which one dies, and Slurm jobs through submitit's local executor.

The runs must equal those of this machine, bit for bit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import clusters, read_status, same_bits

from noisewise import compare, plugins
from noisewise.runs import RunFolder
from noisewise.train import Progress, RunsFailedError, train_one
from refused import refused

SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 64, "device": "cpu", "noise": ["symmetric(0.2)"]}


def in_this_process(tasks: Any, shared: Any, jobs: Any, watch: Any) -> dict[int, str]:
    """The simplest executor."""
    ended = [train_one(task, index, shared, watch) for index, task in enumerate(tasks)]
    return {index: why for index, why in enumerate(ended) if why != "finished"}


def same_runs(first: Any, second: Any) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.state == other.state == "finished" and one.settings == other.settings
        same_bits(one.path, other.path)


class Cluster:
    """A Ray cluster of a head and two workers, each with its own address of this machine. No dashboard, no telemetry.

    The workers say that they have a GPU, so that Ray divides it.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        self._nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **_at(2)})
        self._workers = [self._nodes.add_node(wait=False, num_cpus=1, num_gpus=1, **_at(number)) for number in (3, 4)]
        self.spec = f"ray(address={self._nodes.address!r}, per_gpu=4)"

    def kill_worker(self) -> None:
        """Kill all processes of one machine."""
        (raylet,) = self._workers.pop(0).all_processes["raylet"]
        children = Path(f"/proc/{raylet.process.pid}/task/{raylet.process.pid}/children").read_text().split()
        for process in (raylet.process.pid, *map(int, children)):
            os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        self._nodes.shutdown()


def _at(number: int) -> dict[str, str]:
    return {"node_ip_address": f"127.0.0.{number}"}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="Ray is tested if it is installed: pip install 'noisewise[ray]'")
    if sys.platform != "linux":
        pytest.skip("the machines of the cluster are addresses of this machine, which only Linux has")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        monkeypatch.setenv("RAY_health_check_period_ms", "500")  # by default a lost machine is noticed after half a minute
        monkeypatch.setenv("RAY_health_check_failure_threshold", "10")  # five seconds, because this machine may be busy
        monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "60")
        cluster = Cluster()
        yield cluster
        cluster.stop()


_OF_RAY = "ignore::ResourceWarning"  # it leaves files and processes to the garbage collector


@pytest.mark.filterwarnings(_OF_RAY, "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_comparison_on_ray_survives_a_killed_worker_and_trains_nothing_twice(ray_cluster: Cluster, tmp_path: Path) -> None:
    grid = {"loss": ["ce", "gce(q=0.7)"], "seed": range(12)}
    finished: dict[int, int] = {}
    starts: Counter[int] = Counter()

    def model_written(index: int) -> int:
        loss, seed = ("ce", "gce_q_0.7")[index // 12], index % 12
        return (tmp_path / f"ray/symmetric_0.2-{loss}-seed{seed}/model.safetensors").stat().st_mtime_ns

    def watch(progress: Progress) -> None:
        starts[progress.place] += progress.state == "running" and progress.step == 0
        if progress.state == "finished":
            finished[progress.place] = model_written(progress.place)
            if len(finished) == 12:
                ray_cluster.kill_worker()

    runs = compare("linear", clusters(), folder=tmp_path / "ray", on=ray_cluster.spec, watch=watch, **grid, **SETTINGS)
    here = compare("linear", clusters(), folder=tmp_path / "here", on=in_this_process, **grid, **SETTINGS)
    assert len(runs) == 24
    same_runs(runs, here)
    assert finished == {index: model_written(index) for index in range(24)}, "a finished run was trained again"
    assert sum(starts.values()) <= 24 + 1, "more runs started again than the lost worker had"


@pytest.mark.filterwarnings(_OF_RAY, "ignore::pytest.PytestUnraisableExceptionWarning")
def test_run_folders_are_fetched_from_workers_that_do_not_share_the_folder(
    ray_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch = Path.touch
    hidden = lambda path, **options: path.name.startswith(".noisewise-") or touch(path, **options)  # noqa: E731
    monkeypatch.setattr(Path, "touch", hidden)  # the file by which workers see that they share the folder
    losses, two_of_three = ["ce", "gce(q=0.7)"], "cr(prior=(0.5, 0.5))"
    settings = {**SETTINGS, "device": "auto"}  # a share of a GPU
    with refused("1 of 3", "'prior'", kind=RunsFailedError):
        compare("linear", clusters(), loss=[*losses, two_of_three], folder=tmp_path / "ray", on=ray_cluster.spec, **settings)
    here = compare("linear", clusters(), loss=losses, folder=tmp_path / "here", on=in_this_process, **settings)
    seen: list[Progress] = []
    again = compare("linear", clusters(), loss=losses, folder=tmp_path / "ray", on=ray_cluster.spec, watch=seen.append, **settings)
    same_runs(again, here)
    assert {progress.state for progress in seen} == {"waiting", "finished"}
    assert sorted(path.name for path in (tmp_path / "ray").iterdir()) == sorted(run.path.name for run in again)


@pytest.fixture
def own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A loss from a file that was imported here, and by no worker."""
    monkeypatch.setattr("sys.path", list(sys.path))
    file = tmp_path / "mine.py"
    file.write_text("from noisewise.losses.mae import MAE\n\n\nclass Own(MAE, name='mae_from_a_file'):\n    pass\n", encoding="utf-8")
    plugins.load(file)
    return "mae_from_a_file"


@pytest.mark.filterwarnings(_OF_RAY, "ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_of_ray_import_the_file_of_a_loss(ray_cluster: Cluster, tmp_path: Path, own_loss: str) -> None:
    (run,) = compare("linear", clusters(), loss=[own_loss], folder=tmp_path / "runs", on=ray_cluster.spec, **SETTINGS)
    assert run.state == "finished" and run.settings.loss == own_loss


def test_slurm_jobs_import_the_file_of_a_loss(tmp_path: Path, own_loss: str) -> None:
    pytest.importorskip("submitit", reason="Slurm is tested if submitit is installed: pip install 'noisewise[slurm]'")
    (run,) = compare("linear", clusters(), loss=[own_loss], folder=tmp_path / "runs", on="slurm(cluster='local')", **SETTINGS)
    assert run.state == "finished" and run.settings.loss == own_loss


def test_a_comparison_in_slurm_jobs_equals_one_on_this_machine_and_an_interrupted_job_is_queued_again(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="Slurm is tested if submitit is installed: pip install 'noisewise[slurm]'")
    grid: dict[str, Any] = {**SETTINGS, "loss": ["ce", "gce(q=0.7)"], "epochs": 60}
    interrupted: list[str] = []

    def watch(progress: Progress) -> None:
        """Send the first job what Slurm sends before a time limit, when its run has a checkpoint."""
        if progress.step and not interrupted:
            jobs = sorted((tmp_path / "jobs").glob(".slurm-*/*_submitted.pkl"), key=lambda path: path.stat().st_mtime_ns)
            interrupted.append(jobs[progress.place].name.removesuffix("_submitted.pkl"))
            os.kill(int(interrupted[0]), signal.SIGUSR2)

    runs = compare("linear", clusters(), folder=tmp_path / "jobs", on="slurm(cluster='local')", watch=watch, **grid)
    here = compare("linear", clusters(), folder=tmp_path / "here", on=in_this_process, **grid)
    same_runs(runs, here)
    assert interrupted
    assert [path.name for path in (tmp_path / "jobs").iterdir() if path.name.startswith(".slurm")] == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # its logs stay open
def test_a_failed_run_of_a_job_is_named_and_the_logs_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="Slurm is tested if submitit is installed: pip install 'noisewise[slurm]'")
    with refused("1 of 2", "'prior'", kind=RunsFailedError):
        compare("linear", clusters(), loss=["cr(prior=(0.5, 0.5))", "ce"], folder=tmp_path, on="slurm(cluster='debug')", **SETTINGS)
    assert read_status(tmp_path / "symmetric_0.2-ce-seed0")["state"] == "finished"
    assert len(list(tmp_path.glob(".slurm-*"))) == 1 and not list(tmp_path.glob(".slurm-*/data.pickle"))


@pytest.mark.parametrize(("on", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_package_is_named_before_any_run_starts(on: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with refused(package, f"pip install 'noisewise[{on}]'"):
        compare("linear", clusters(), folder=tmp_path / "runs", on=on, **SETTINGS)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("on", "mentions"),
    [
        ("spark", ["spark", "slurm"]),
        (3, ["on", 3]),
        ("ray(per_gpu=0)", ["per_gpu", 0]),
        ("slurm(cluster='local', partitions='gpu')", ["local", "partitions"]),
    ],
    ids=str,
)
def test_a_wrong_cluster_is_refused(on: Any, mentions: list[object], tmp_path: Path) -> None:
    if str(on).startswith("slurm"):
        pytest.importorskip("submitit")
    elif str(on).startswith("ray"):
        pytest.importorskip("ray")
    with refused(*mentions):
        compare("linear", clusters(), folder=tmp_path, on=on, **SETTINGS)


def test_a_run_waits_until_its_folder_is_free(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not folder.in_use()
    with folder.lock():
        assert folder.in_use()
        folder.wait_until_free(0.1)
    assert not folder.in_use()
