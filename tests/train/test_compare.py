"""Many runs at once: the same results as one after the other, nothing done twice, one failure does not end the rest."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from small_runs import clusters, same_bits

import noisewise
from noisewise import InputError, compare, fit
from noisewise.noise import registry as noises
from noisewise.train import RunsFailedError
from noisewise.train._compare import plan
from waiting import LIMIT

SETTINGS = {"epochs": 2, "batch_size": 64, "device": "cpu"}
GRID = {"loss": ["ce", "gce(q=0.7)"], "noise": ["symmetric(0.2)"], "seed": [0, 1]}


def test_the_number_of_runs_at_a_time_changes_nothing(tmp_path):
    sets = {"model": "mlp(hidden=(16,))", "data": clusters(), "test": clusters(seed=1)}
    runs = compare(folder=tmp_path / "together", jobs=2, **sets, **GRID, **SETTINGS)
    grid = [("ce", 0), ("ce", 1), ("gce(q=0.7)", 0), ("gce(q=0.7)", 1)]
    assert [(run.settings.loss, run.settings.seed, run.state) for run in runs] == [(*asked, "finished") for asked in grid]
    for run, (loss, seed) in zip(runs, grid, strict=True):
        folder = tmp_path / f"{loss}-{seed}"
        fit(folder=folder, loss=loss, seed=seed, noise="symmetric(0.2)", **sets, **SETTINGS)
        same_bits(folder, run.path)


def test_finished_runs_are_not_done_again_and_the_rest_is(tmp_path):
    first = fit("mlp", clusters(), loss="ce", folder=tmp_path / "none-ce-seed0", **SETTINGS)
    before = (first.path / "model.safetensors").stat().st_mtime_ns
    seen = []
    runs = compare("mlp", clusters(), loss=["ce", "mae"], folder=tmp_path, jobs=1, watch=seen.append, **SETTINGS)
    assert len(runs) == 2 and (first.path / "model.safetensors").stat().st_mtime_ns == before
    assert {progress.place for progress in seen if progress.step} == {1}


def test_a_folder_with_runs_of_other_settings_is_refused_before_any_run_starts(tmp_path):
    noisewise.fit("mlp", clusters(), loss="ce", folder=tmp_path / "none-ce-seed0", **SETTINGS)
    with pytest.raises(InputError, match=r"none-ce-seed0' .* weight_decay=0.0001. Got weight_decay=0.0"):
        compare("mlp", clusters(), loss=["mae", "ce"], folder=tmp_path, jobs=1, weight_decay=0.0, **SETTINGS)
    with pytest.raises(InputError, match="none-ce-seed0' is a run itself"):
        compare("mlp", clusters(), loss=["mae", "ce"], folder=tmp_path / "none-ce-seed0", jobs=1, **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["none-ce-seed0"]


def test_a_failed_run_is_named_after_the_others_finished(tmp_path):
    two_of_three = "cr(prior=(0.5, 0.5))"
    with pytest.raises(
        RunsFailedError, match=r"1 of 2 runs failed; the first, cr.*: The 'prior' parameter of CR must be one probability for each"
    ) as caught:
        compare("mlp", clusters(), loss=[two_of_three, "ce"], folder=tmp_path, jobs=1, **SETTINGS)
    assert [(run.settings.loss, run.state) for run in caught.value.finished] == [("ce", "finished")]


LONG = {"epochs": 5000, "batch_size": 64, "device": "cpu", "evaluate_every": 5000, "checkpoint_every": 5000}


def status(folder):
    return json.loads((folder / "status.json").read_text())


def test_an_error_of_watch_ends_the_workers_and_says_so_in_every_folder(tmp_path):
    """As an interrupt does, which a test of the command line sends."""
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
        assert status(folder)["state"] == "interrupted"
    assert not (tmp_path / "none-gce-seed0").exists()


def test_a_comparison_that_is_stopped_says_nothing_of_a_run_that_another_call_trains(tmp_path):
    folder, states = tmp_path / "none-ce-seed0", []

    def stop(progress):
        raise KeyboardInterrupt

    def watch(done, of):
        if done == 7:
            with pytest.raises(KeyboardInterrupt):
                compare("mlp", clusters(), loss=["ce"], folder=tmp_path, jobs=1, watch=stop, **SETTINGS)
            states.append(status(folder)["state"])

    fit("mlp", clusters(), folder=folder, watch=watch, **SETTINGS)
    assert states == ["running"]


def test_a_run_whose_worker_is_killed_has_failed_and_the_other_worker_does_the_rest(tmp_path):
    killed = []
    asked = {**SETTINGS, "epochs": 60, "evaluate_every": 60, "clean_pass": False}

    def watch(progress):
        """Kill the first worker that has trained for an epoch; the runs are handed out in order, so that its run is known."""
        if killed or progress.place > 1 or not progress.step:
            return
        reached = status(tmp_path / f"none-ce-seed{progress.place}")
        if reached["state"] == "running" and reached["step"] > 0:
            workers = sorted(multiprocessing.active_children(), key=lambda worker: int(worker.name.rpartition("-")[2]))
            killed.append(progress.place)
            os.kill(workers[progress.place].pid, signal.SIGKILL)

    with pytest.raises(RunsFailedError, match=r"1 of 4 runs failed; the first, ce: its process ended with status -9"):
        compare("mlp(hidden=(16,))", clusters(), loss=["ce"], seed=range(4), folder=tmp_path, jobs=2, watch=watch, **asked)
    states = [status(folder) for folder in sorted(tmp_path.iterdir())]
    assert sorted(one["state"] for one in states) == ["failed", *["finished"] * 3]
    (failed,) = (one for one in states if one["state"] == "failed")
    assert failed["reason"] == "its process ended with status -9" and failed["step"] > 0
    again = fit("mlp(hidden=(16,))", clusters(), loss="ce", seed=killed[0], folder=tmp_path / f"none-ce-seed{killed[0]}", **asked)
    assert again.state == "finished"


SLOW = {"steps": 400_000, "batch_size": 300, "device": "cpu"}  # a two-hundredth, after which a worker tells its step, takes minutes


def compare_until_killed(folder, model, asked, number):
    def watch(progress):
        if progress.step > 0:
            os.kill(os.getpid(), number)

    compare(model, clusters(), loss=["ce"], folder=folder, jobs=1, watch=watch, **asked)


@pytest.mark.parametrize(
    ("model", "asked", "how"), [("mlp", LONG, signal.SIGTERM), ("mlp(hidden=(2048, 2048))", SLOW, signal.SIGKILL)], ids=["asked", "killed"]
)
def test_a_comparison_that_is_killed_interrupts_its_runs_without_a_word(tmp_path, model, asked, how):
    called = f"test_compare.compare_until_killed({str(tmp_path)!r}, {model!r}, {asked!r}, {how.value})"
    program = f"import sys; sys.path[:0] = {sys.path!r}; import test_compare; {called}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == -how and "Traceback" not in ended.stderr  # which its worker has too, and lets go of at its end
    assert status(tmp_path / "none-ce-seed0")["state"] == "interrupted"


def test_runs_that_no_worker_is_left_for_have_failed_too(tmp_path):
    def watch(progress):
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)

    with pytest.raises(RunsFailedError, match="3 of 3 runs failed; the first, ce: its process ended with status -9"):
        compare("mlp", clusters(), loss=["ce", "mae", "gce"], folder=tmp_path, jobs=1, watch=watch, **LONG)


def test_a_negative_setting_has_a_folder_of_its_own_and_other_folders_keep_their_names(tmp_path):
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


def test_a_spec_that_is_too_long_for_a_name_is_cut_and_told_apart_from_others(tmp_path):
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
    asked = {"loss": ["ce"], "noise": ["none"], "folder": "runs", "epochs": 1}
    assert plan("mlp", "digits", seed=np.arange(2), **asked) == plan("mlp", "digits", seed=[0, 1], **asked)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"loss": "ce"}, "The 'loss' parameter of compare must be a list with at least one entry. Got 'ce'"),
        ({"loss": []}, "The 'loss' parameter of compare must be a list with at least one entry. Got [] instead."),
        ({"loss": ["ce"], "seed": 3}, "The 'seed' parameter of compare must be a list with at least one entry. Got 3"),
        ({"loss": ["ce"], "jobs": -1}, "The 'jobs' parameter of compare must be an integer in [1, inf). Got -1 instead."),
        ({"loss": ["ce"], "jobs": 0}, "The 'jobs' parameter of compare must be an integer"),
        ({"loss": ["ce"], "jobs": 1.5}, "The 'jobs' parameter of compare must be an integer"),
        ({"loss": ["ce"], "jobs": True}, "The 'jobs' parameter of compare must be an integer"),
        ({"loss": ["ce"], "watch": 3}, "The 'watch' parameter of compare must be a function. Got 3 instead."),
        ({"loss": ["ce", "ce"]}, "Two runs of the comparison are the same"),
        ({"loss": ["imea"]}, "There is no loss named 'imea'"),
        ({"loss": ["ce"], "noise": ["symetric(0.1)"]}, "There is no noise named 'symetric'"),
    ],
)
def test_a_grid_is_checked_before_any_run_starts(tmp_path, grid, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        compare("mlp", clusters(), folder=tmp_path / "runs", **grid, **SETTINGS)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("folder", ["file/runs", 3])
def test_a_folder_that_cannot_be_is_refused_before_any_worker_starts(tmp_path, monkeypatch, folder):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(noisewise.train._compare, "_work", None)
    with pytest.raises(InputError, match=r"^'file/runs' cannot be written \(|^A run folder must be a path\. Got 3 instead\."):
        compare("mlp", clusters(), folder=folder, **GRID, **SETTINGS)


def test_losses_and_noises_may_be_objects(tmp_path):
    grid = {"loss": [noisewise.get("gce"), "ce"], "noise": [noises.get("symmetric(0.2)")]}
    runs = compare("mlp(hidden=(16,))", clusters(), folder=tmp_path / "objects", jobs=1, **grid, **SETTINGS)
    assert [(run.settings.loss, run.settings.noise) for run in runs] == [("gce(q=0.7)", "symmetric(0.2)"), ("ce", "symmetric(0.2)")]
    specs = compare(
        "mlp(hidden=(16,))", clusters(), loss=["gce(q=0.7)"], noise=["symmetric(0.2)"], folder=tmp_path / "specs", jobs=1, **SETTINGS
    )
    assert specs[0].path.name == runs[0].path.name
    same_bits(specs[0].path, runs[0].path)


def test_a_comparison_builds_its_models_itself(tmp_path):
    with pytest.raises(InputError, match=r"'model' parameter of compare must be a model spec.*Got 'Linear'"):
        compare(torch.nn.Linear(4, 3), "digits", loss=["ce", "mae"], epochs=1, folder=tmp_path / "runs")


def test_losses_that_differ_in_their_parentheses_have_folders_of_their_own(tmp_path):
    runs = compare("linear", "digits", loss=["2*mae + ce", "2*(mae + ce)"], epochs=1, folder=tmp_path, jobs=1)
    assert len({run.path for run in runs}) == 2
