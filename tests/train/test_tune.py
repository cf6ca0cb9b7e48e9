"""`tune` and `--search`: Optuna searches the hyper-parameters of losses, workers share a study, and test labels are never used."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as multiprocessing
from small_runs import clusters, read_status
from typer.testing import CliRunner

from noisewise import losses
from noisewise.cli import app
from noisewise.runs import find_runs
from noisewise.train import Run, RunsFailedError, Tuned, train_one, tune
from quick_workers import PRELOADED
from refused import refused
from waiting import wait_until

optuna = pytest.importorskip("optuna", reason="searches are tested if Optuna is installed: pip install 'noisewise[optuna]'")

from noisewise.integrations.optuna import space, suggested  # noqa: E402

SETTINGS: dict[str, Any] = {"epochs": 3, "batch_size": 64, "device": "cpu", "validation": 0.2, "noise": ["symmetric(0.4)"]}


def in_this_process(tasks: Any, shared: Any, jobs: Any, watch: Any) -> dict[int, str]:
    ended = [train_one(task, index, shared, watch) for index, task in enumerate(tasks)]
    return {index: why for index, why in enumerate(ended) if why != "finished"}


def trials_of(folder: Path) -> list[Run]:
    return [Run(path) for path in sorted((folder / ".search").rglob("trial-*"))]


def search(folder: Path, trials: int = 8, loss: str = "gce(q=0.7)", **options: Any) -> Tuned:
    settings = {**SETTINGS, **options}
    on = settings.pop("on", in_this_process)
    (tuned,) = tune("linear", clusters(), loss=[loss], search=f"optuna(trials={trials})", folder=folder, on=on, **settings)
    return tuned


def test_a_search_keeps_the_trial_with_the_best_held_out_accuracy_and_starts_with_the_given_loss(tmp_path: Path) -> None:
    tuned = search(tmp_path, loss="scaled(gce(q=0.7), tau=2.0)")
    runs = trials_of(tmp_path)
    assert len(runs) == tuned.trials == 8 and runs[0].settings.loss == "scaled(gce(q=0.7), 2.0)"
    whole = [run for run in runs if run.state == "finished"]
    assert len(whole) == tuned.trials - tuned.pruned
    accuracies = {run.settings.loss: run.metrics[-1]["validation_accuracy"] for run in whole}
    assert tuned.accuracy == max(accuracies.values()) == accuracies[tuned.loss]
    parameters = {(loss.tau, loss.loss.q) for loss in map(losses.get, accuracies)}
    assert len(parameters) == len(whole)
    assert all(0.2 <= tau <= 20 and 0.01 <= q <= 1 for tau, q in parameters)


def test_trials_are_judged_by_noisy_held_out_labels_and_get_no_test_labels(tmp_path: Path) -> None:
    tuned = tune("linear", "digits", loss=["gce"], search="optuna(trials=1)", folder=tmp_path, on=in_this_process, **SETTINGS)
    (run,) = trials_of(tmp_path)
    assert all("test_accuracy" not in line and "validation_accuracy" in line for line in run.metrics)
    assert tuned[0].accuracy is not None and tuned[0].accuracy < 0.75  # of labels of which 36 % are wrong


def test_the_same_call_trains_no_trial_again_and_more_trials_continue_the_study(tmp_path: Path) -> None:
    first = search(tmp_path, trials=2)
    before = {run.path: (run.path / "model.safetensors").stat().st_mtime_ns for run in trials_of(tmp_path)}
    assert search(tmp_path, trials=2) == first
    assert search(tmp_path, trials=3).trials == 3
    assert {path: (path / "model.safetensors").stat().st_mtime_ns for path in before} == before
    assert len(trials_of(tmp_path)) == 3


def test_other_data_of_the_same_name_are_another_study(tmp_path: Path) -> None:
    search(tmp_path, trials=1)
    tune("linear", clusters(seed=1), loss=["gce(q=0.7)"], search="optuna(trials=1)", folder=tmp_path, on=in_this_process, **SETTINGS)
    assert len(list((tmp_path / ".search").iterdir())) == 2


def test_the_pruner_stops_trials_that_are_behind_the_median(tmp_path: Path) -> None:
    tuned = search(tmp_path, trials=16, epochs=6, seed=1)
    pruned = [run for run in trials_of(tmp_path) if run.state == "failed"]
    assert 0 < tuned.pruned == len(pruned) < 16
    curves = [[line["validation_accuracy"] for line in run.metrics] for run in trials_of(tmp_path)]
    for run in pruned:
        epoch, number = len(run.metrics), int(run.path.name.rpartition("-")[2])
        assert epoch < 6 and number >= 5, "the first five trials are never stopped"
        others = sorted(curve[epoch - 1] for curve in curves[:number] if len(curve) >= epoch)
        assert max(curves[number]) <= others[len(others) // 2]
        assert "median" in read_status(run.path)["reason"]


def _killed_worker(folder: Path) -> None:
    """Dies in its first trial, when the other worker has begun one."""

    def watch(progress: Any) -> None:
        if progress.step > 0:
            wait_until(lambda: len(list((folder / ".search").rglob("settings.json"))) > 1)
            os.kill(os.getpid(), signal.SIGKILL)

    search(folder, watch=watch)


def _other_worker(folder: Path) -> None:
    search(folder)


def test_two_workers_share_a_journal_and_one_completes_the_study_when_the_other_is_killed(tmp_path: Path) -> None:
    multiprocessing.set_forkserver_preload(PRELOADED)
    context = multiprocessing.get_context("forkserver")
    killed, other = (context.Process(target=work, args=(tmp_path,)) for work in (_killed_worker, _other_worker))
    killed.start()
    wait_until(lambda: len(list((tmp_path / ".search").rglob("settings.json"))) == 1)
    other.start()
    for worker in (killed, other):
        worker.join()
    assert (killed.exitcode, other.exitcode) == (-signal.SIGKILL, 0)
    (journal,) = (tmp_path / ".search").rglob("journal.log")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    study = optuna.load_study(study_name="gce(q=0.7)", storage=storage)
    states = [trial.state.name for trial in study.trials]
    assert len(states) == 8 and set(states) <= {"COMPLETE", "PRUNED"}
    runs = trials_of(tmp_path)
    assert [run.path.name for run in runs] == [f"trial-{number:03d}" for number in range(8)]
    assert [run.settings.loss for run in runs] == [trial.user_attrs["loss"] for trial in study.trials]
    values = [run.metrics[-1]["validation_accuracy"] for run in runs if run.state == "finished"]
    assert values == [trial.value for trial in study.trials if trial.state.name == "COMPLETE"]


def test_a_search_in_which_every_trial_fails_says_why(tmp_path: Path) -> None:
    with refused("cr", "'prior'", kind=RunsFailedError):
        search(tmp_path, trials=2, loss="cr(prior=(0.5, 0.5))")


@pytest.mark.parametrize("spec", [spec for name in losses.available() for spec in losses.registry[name].examples or [name]])
def test_the_ends_of_every_range_are_accepted_by_the_loss(spec: str) -> None:
    loss = losses.get(spec)
    ends = [suggested(loss, optuna.trial.FixedTrial({name: ends[end] for name, ends in space(loss).items()})) for end in (0, 1)]
    assert {type(losses.get(end)) for end in ends} == {type(loss)}
    assert len(set(ends)) == (2 if space(loss) else 1)
    assert repr(losses.get(spec)) == repr(loss), "the given loss was changed"


def test_the_command_searches_and_trains_the_best_loss_with_every_seed(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    given = ['data = "digits"', 'model = "linear"', 'loss = ["gce", "ce"]', "epochs = 1", "validation = 0.1", 'search = "optuna(trials=2)"']
    config.write_text("\n".join(given))
    command = ["compare", "--config", str(config), "--seed", "0", "--seed", "1", "--device", "cpu", "-o", str(tmp_path / "runs"), "--json"]
    done = CliRunner().invoke(app, [*command, "--noise", "symmetric(0.2)", "--noise", "none", "--jobs", "2"])
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["results"]
    assert [row["noise"] for row in results] == ["symmetric(0.2)"] * 2 + ["none"] * 2
    assert all(row["seeds"] == [0, 1] and row["final"] for row in results)
    trials = [json.loads((path / "settings.json").read_text())["loss"] for path in (tmp_path / "runs/.search").rglob("trial-*")]
    assert len(trials) == 4 and {row["loss"] for row in results} <= {*trials, "ce"}
    assert "held-out accuracy" in done.stderr and "ce, none has no hyper-parameters" in done.stderr.replace("ce has", "ce, none has")
    assert len(find_runs(tmp_path / "runs")) == 8, "reports leave out the trials"


def test_train_searches_before_it_trains(tmp_path: Path) -> None:
    settings = ["--data", "digits", "--model", "linear", "--loss", "gce(q=0.7)", "--validation", "0.1", "--epochs", "1", "--device", "cpu"]
    folder = tmp_path / "runs/best"
    done = CliRunner().invoke(app, ["train", *settings, "--search", "optuna(trials=2)", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    (journal,) = (tmp_path / "runs").rglob("journal.log")
    best = {run.metrics[-1]["validation_accuracy"]: run.settings.loss for run in reversed(trials_of(tmp_path / "runs"))}
    assert Run(folder).settings.loss == best[max(best)] and journal.parent.parent.name == ".search"


def test_a_search_needs_a_held_out_share_and_a_known_name(tmp_path: Path) -> None:
    with refused("validation"):
        search(tmp_path, validation=0)
    with refused("optina", "optuna"):
        tune("linear", clusters(), loss=["gce"], search="optina", folder=tmp_path, **SETTINGS)
    with refused("trials", 0):
        search(tmp_path, trials=0)
    assert not any(tmp_path.iterdir())


def test_a_missing_optuna_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with refused("pip install 'noisewise[optuna]'"):
        search(tmp_path)
