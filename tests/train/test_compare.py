"""`compare`: its runs equal those of `fit`, finished runs are not trained again, and one failed run does not end the others."""

import multiprocessing
import os
import signal
import sys

import numpy as np
import pytest
import torch
from small_runs import clusters, read_status, same_bits

import noisewise
from noisewise import compare, fit
from noisewise.noise import registry as noises
from noisewise.train import RunsFailedError, _compare
from noisewise.train._compare import plan
from refused import refused
from waiting import wait_until

SETTINGS = {"epochs": 2, "batch_size": 64, "device": "cpu"}
GRID = {"loss": ["ce", "gce(q=0.7)"], "noise": ["symmetric(0.2)"], "seed": [0, 1]}


def test_runs_of_two_workers_equal_runs_of_fit(tmp_path, monkeypatch):
    """The only test with workers that start as they do for users."""
    monkeypatch.setattr(_compare, "multiprocessing", torch.multiprocessing)
    sets = {"model": "mlp(hidden=(16,))", "data": clusters(), "test": clusters(seed=1)}
    runs = compare(folder=tmp_path / "compare", jobs=2, **sets, **GRID, **SETTINGS)
    grid = [("ce", 0), ("ce", 1), ("gce(q=0.7)", 0), ("gce(q=0.7)", 1)]
    assert [(run.settings.loss, run.settings.seed, run.state) for run in runs] == [(*case, "finished") for case in grid]
    for run, (loss, seed) in zip(runs, grid, strict=True):
        folder = tmp_path / f"{loss}-{seed}"
        fit(folder=folder, loss=loss, seed=seed, noise="symmetric(0.2)", **sets, **SETTINGS)
        same_bits(folder, run.path)


def test_finished_runs_are_not_trained_again(tmp_path):
    first = fit("mlp", clusters(), loss="ce", folder=tmp_path / "none-ce-seed0", **SETTINGS)
    before = (first.path / "model.safetensors").stat().st_mtime_ns
    seen = []
    runs = compare("mlp", clusters(), loss=["ce", "mae"], folder=tmp_path, jobs=1, watch=seen.append, **SETTINGS)
    assert len(runs) == 2 and (first.path / "model.safetensors").stat().st_mtime_ns == before
    assert {progress.place for progress in seen if progress.step} == {1}


def test_a_folder_with_runs_of_other_settings_is_refused_before_any_run_starts(tmp_path):
    fit("mlp", clusters(), loss="ce", folder=tmp_path / "none-ce-seed0", **SETTINGS)
    with refused("none-ce-seed0", "weight_decay=0.0001", "weight_decay=0.0"):
        compare("mlp", clusters(), loss=["mae", "ce"], folder=tmp_path, jobs=1, weight_decay=0.0, **SETTINGS)
    with refused("none-ce-seed0"):
        compare("mlp", clusters(), loss=["mae", "ce"], folder=tmp_path / "none-ce-seed0", jobs=1, **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["none-ce-seed0"]


def test_a_failed_run_is_named_after_the_others_finished(tmp_path):
    two_of_three = "cr(prior=(0.5, 0.5))"
    with refused("1 of 2", two_of_three, "'prior'", kind=RunsFailedError) as caught:
        compare("mlp", clusters(), loss=[two_of_three, "ce"], folder=tmp_path, jobs=1, **SETTINGS)
    assert [(run.settings.loss, run.state) for run in caught.value.finished] == [("ce", "finished")]


LONG = {"epochs": 5000, "batch_size": 64, "device": "cpu", "evaluate_every": 5000, "checkpoint_every": 5000}


def test_an_error_in_watch_ends_the_workers_and_marks_every_run_as_interrupted(tmp_path):
    """As Ctrl-C does, which is tested with the command line."""
    error = RuntimeError("the table cannot be drawn")
    stopped, folders = [], [tmp_path / f"none-{loss}-seed0" for loss in ("ce", "mae")]

    def watch(progress):
        if all((folder / "metrics.jsonl").exists() for folder in folders):
            stopped.append(progress)
            raise error

    with pytest.raises(RuntimeError) as raised:
        compare("mlp", clusters(), loss=["ce", "mae", "gce"], folder=tmp_path, jobs=2, watch=watch, **LONG)
    assert raised.value is error and len(stopped) == 1
    assert multiprocessing.active_children() == []
    for folder in folders:
        assert read_status(folder)["state"] == "interrupted"
    assert not (tmp_path / "none-gce-seed0").exists()


def test_an_interrupted_comparison_does_not_change_the_status_of_a_run_of_another_call(tmp_path):
    folder, states = tmp_path / "none-ce-seed0", []

    def interrupt(progress):
        raise KeyboardInterrupt

    def watch(step, steps):
        if step == 7:
            with pytest.raises(KeyboardInterrupt):
                compare("mlp", clusters(), loss=["ce"], folder=tmp_path, jobs=1, watch=interrupt, **SETTINGS)
            states.append(read_status(folder)["state"])

    fit("mlp", clusters(), folder=folder, watch=watch, **SETTINGS)
    assert states == ["running"]


def test_the_run_of_a_killed_worker_has_failed_and_the_other_worker_trains_the_rest(tmp_path):
    killed = []
    settings = {**SETTINGS, "epochs": 60, "evaluate_every": 60, "clean_pass": False}

    def watch(progress):
        """Kill the first worker that has trained an epoch. Runs are assigned in order, so its run is known."""
        if killed or progress.place > 1 or not progress.step:
            return
        status = read_status(tmp_path / f"none-ce-seed{progress.place}")
        if status["state"] == "running" and status["step"] > 0:
            workers = sorted(multiprocessing.active_children(), key=lambda worker: int(worker.name.rpartition("-")[2]))
            killed.append(progress.place)
            os.kill(workers[progress.place].pid, signal.SIGKILL)

    with refused("1 of 3", "ce", -9, kind=RunsFailedError):
        compare("mlp(hidden=(16,))", clusters(), loss=["ce"], seed=range(3), folder=tmp_path, jobs=2, watch=watch, **settings)
    statuses = [read_status(folder) for folder in sorted(tmp_path.iterdir())]
    assert sorted(status["state"] for status in statuses) == ["failed", "finished", "finished"]
    (failed,) = (status for status in statuses if status["state"] == "failed")
    assert "-9" in failed["reason"] and failed["step"] > 0
    again = fit("mlp(hidden=(16,))", clusters(), loss="ce", seed=killed[0], folder=tmp_path / f"none-ce-seed{killed[0]}", **settings)
    assert again.state == "finished"


SLOW = {"steps": 400_000, "batch_size": 300, "device": "cpu"}  # its workers report a step only every 2000 steps, which takes minutes


PROGRAM = """
import os, sys
sys.path[:] = {path!r}
from noisewise import compare
from small_runs import clusters

def watch(progress):
    if progress.step > 0:
        os.kill(os.getpid(), {number})

if __name__ == "__main__":
    compare({model!r}, clusters(), loss=["ce"], folder="runs", jobs=1, watch=watch, **{settings!r})
"""


@pytest.mark.parametrize(
    ("model", "settings", "number"),
    [("mlp", LONG, signal.SIGTERM), ("mlp(hidden=(2048, 2048))", SLOW, signal.SIGKILL)],
    ids=["SIGTERM", "SIGKILL"],
)
def test_a_killed_comparison_marks_its_runs_as_interrupted(tmp_path, python, model, settings, number):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(path=sys.path, model=model, settings=settings, number=number.value))
    code, output = python.run(program)
    assert code == -number and "Traceback" not in output
    wait_until(
        lambda: read_status(tmp_path / "runs/none-ce-seed0")["state"] == "interrupted"
    )  # written by the worker, which may take longer


def test_runs_have_failed_when_no_worker_is_left(tmp_path):
    def watch(progress):
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)

    with refused("3 of 3", "ce", -9, kind=RunsFailedError):
        compare("mlp", clusters(), loss=["ce", "mae", "gce"], folder=tmp_path, jobs=1, watch=watch, **LONG)


def test_folder_names_differ_for_negative_settings(tmp_path):
    settings = {"noise": ["none"], "seed": [0], "folder": tmp_path, **SETTINGS}
    losses = ["gls(alpha=-0.4)", "gls(alpha=0.4)", "0.3*nce + 0.7*mae", "scaled(ce, 1e-05)", "-0.5*ce"]
    names = [task.folder.name for task in plan("mlp", "digits", loss=losses, **settings)]
    assert names == [
        "none-gls_alpha_-0.4-seed0",
        "none-gls_alpha_0.4-seed0",
        "none-0.3_nce_0.7_mae-seed0",
        "none-scaled_ce_1e_05-seed0",
        "none--0.5_ce-seed0",
    ]


def test_folder_names_of_long_specs_are_cut_and_stay_different(tmp_path):
    def matrix(rate):
        rows = [[1 - rate if row == column else rate / 9 for column in range(10)] for row in range(10)]
        return f"matrix({rows})"

    noise = [matrix(0.5), matrix(0.5 + 1e-12)]
    tasks = plan("mlp", "digits", loss=["ce"], noise=noise, seed=[0], folder=tmp_path, **SETTINGS)
    assert len({task.folder for task in tasks}) == 2
    for task in tasks:
        assert task.folder.name.startswith("matrix_0.") and task.folder.name.endswith("-ce-seed0")
        task.folder.mkdir()


def test_seeds_may_be_an_array():
    settings = {"loss": ["ce"], "noise": ["none"], "folder": "runs", "epochs": 1}
    assert plan("mlp", "digits", seed=np.arange(2), **settings) == plan("mlp", "digits", seed=[0, 1], **settings)


@pytest.mark.parametrize(
    ("grid", "mentions"),
    [
        ({"loss": "ce"}, ["loss", "'ce'"]),
        ({"loss": []}, ["loss", "[]"]),
        ({"loss": ["ce"], "seed": 3}, ["seed", 3]),
        ({"loss": ["ce"], "jobs": 0}, ["jobs", 0]),
        ({"loss": ["ce"], "jobs": 1.5}, ["jobs", 1.5]),
        ({"loss": ["ce"], "jobs": True}, ["jobs", True]),
        ({"loss": ["ce"], "watch": 3}, ["watch", 3]),
        ({"loss": ["ce", "ce"]}, ["same"]),
        ({"loss": ["imea"]}, ["imea"]),
        ({"loss": ["ce"], "noise": ["symetric(0.1)"]}, ["symetric"]),
    ],
    ids=str,
)
def test_a_grid_is_checked_before_any_run_starts(tmp_path, grid, mentions):
    with refused(*mentions):
        compare("mlp", clusters(), folder=tmp_path / "runs", **grid, **SETTINGS)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("folder", ["file/runs", 3])
def test_a_folder_that_cannot_be_written_is_refused_before_any_worker_starts(tmp_path, monkeypatch, folder):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(noisewise.train._compare, "_work", None)
    with refused(folder):
        compare("mlp", clusters(), folder=folder, **GRID, **SETTINGS)


def test_losses_and_noises_may_be_objects(tmp_path):
    grid = {"loss": [noisewise.get("gce"), "ce"], "noise": [noises.get("symmetric(0.2)")]}
    runs = compare("mlp(hidden=(16,))", clusters(), folder=tmp_path / "objects", jobs=1, **grid, **SETTINGS)
    assert [(run.settings.loss, run.settings.noise) for run in runs] == [("gce(q=0.7)", "symmetric(0.2)"), ("ce", "symmetric(0.2)")]
    (spec,) = plan("mlp", "arrays", loss=["gce(q=0.7)"], noise=["symmetric(0.2)"], seed=[0], folder=tmp_path, **SETTINGS)
    assert spec.folder.name == runs[0].path.name
    fit("mlp(hidden=(16,))", clusters(), loss="gce(q=0.7)", noise="symmetric(0.2)", folder=tmp_path / "specs", **SETTINGS)
    same_bits(tmp_path / "specs", runs[0].path)


def test_a_model_must_be_a_spec(tmp_path):
    with refused("model", "Linear"):
        compare(torch.nn.Linear(4, 3), "digits", loss=["ce", "mae"], epochs=1, folder=tmp_path / "runs")


def test_folder_names_differ_for_losses_with_other_parentheses(tmp_path):
    tasks = plan("linear", "digits", loss=["2*mae + ce", "2*(mae + ce)"], noise=["none"], seed=[0], folder=tmp_path, **SETTINGS)
    assert len({task.folder for task in tasks}) == 2
