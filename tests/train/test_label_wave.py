"""Which epoch Label Wave keeps, against the definition computed by hand from the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from small_runs import QUICK, clusters, interrupt_after, same_bits
from typer.testing import CliRunner

from noisewise import fit
from noisewise.cli import app
from noisewise.report._report import gather
from noisewise.train import Run
from refused import refused
from two_processes import in_two_processes

MODEL = "mlp(hidden=(64,))"
DATA = clusters(200)
LONG: dict[str, Any] = {**QUICK, "epochs": 24, "noise": "symmetric(0.4)", "checkpoint_every": 5}
WAVE: dict[str, Any] = {**LONG, "keep": "label_wave"}


def by_hand(run: Run) -> int | None:
    """The first epoch whose average of three changes is not above the one before and below the next; None if there is none."""
    epochs = len(run.metrics)
    predicted = [np.load(run.path / f"record/training/predictions-{epoch:05d}.npy") for epoch in range(1, epochs + 1)]
    changes = {epoch: int((predicted[epoch - 1] != predicted[epoch - 2]).sum()) for epoch in range(2, epochs + 1)}
    average = {epoch: changes[epoch - 2] + changes[epoch - 1] + changes[epoch] for epoch in range(4, epochs + 1)}
    minima = [epoch for epoch in range(5, epochs) if average[epoch - 1] >= average[epoch] < average[epoch + 1]]
    return minima[0] if minima else None


@pytest.fixture(scope="module")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(MODEL, DATA, test=clusters(100, seed=5), folder=tmp_path_factory.mktemp("runs") / "wave", **WAVE)


def test_the_first_local_minimum_of_the_changes_is_kept(wave: Run, tmp_path: Path) -> None:
    kept = by_hand(wave)
    assert kept is not None and kept < 23
    assert wave.kept_epoch == kept
    assert wave.dynamics.kept == wave.metrics[kept - 1]["test_accuracy"]
    last = fit(MODEL, DATA, test=clusters(100, seed=5), folder=tmp_path / "last", **LONG)
    assert [line["train_loss"] for line in last.metrics] == [line["train_loss"] for line in wave.metrics], "training does not change"
    accuracy = float((wave.predict(clusters(100, seed=5)[0]).argmax(1) == clusters(100, seed=5)[1]).double().mean())
    assert accuracy == wave.metrics[kept - 1]["test_accuracy"]


@pytest.mark.parametrize("epoch", [3, 12, 23])
def test_a_resumed_run_keeps_the_same_model(wave: Run, epoch: int, tmp_path: Path) -> None:
    settings = {**WAVE, "test": clusters(100, seed=5), "folder": tmp_path / "run"}
    interrupt_after(wave.metrics[epoch - 1]["step"] + 1, MODEL, DATA, **settings)
    run = fit(MODEL, DATA, **settings)
    same_bits(wave.path, run.path)
    assert run.kept_epoch == wave.kept_epoch


def test_without_a_minimum_the_last_epoch_is_kept(tmp_path: Path) -> None:
    run = fit(MODEL, DATA, folder=tmp_path / "run", **{**WAVE, "epochs": 4})
    assert run.kept_epoch == 4 and run.state == "finished"
    last = fit(MODEL, DATA, folder=tmp_path / "last", **{**LONG, "epochs": 4})
    for name, value in last.model().state_dict().items():
        assert torch.equal(value, run.model().state_dict()[name])


def test_a_last_epoch_that_is_cut_short_counts_only_what_it_saw(tmp_path: Path) -> None:
    settings = {**WAVE, "epochs": None, "steps": 4 * 6 + 1}
    run = fit(MODEL, DATA, folder=tmp_path / "run", **settings)
    cut = np.load(run.path / "record/training/predictions-00007.npy")
    assert (cut == -1).sum() == 200 - 64 and run.state == "finished"


def test_it_also_stops_early_on_a_validation_share(tmp_path: Path) -> None:
    run = fit(MODEL, DATA, folder=tmp_path / "run", validation=0.3, patience=3, **WAVE)
    kept = by_hand(run)
    assert len(run.metrics) < 24 and run.kept_epoch == (kept or len(run.metrics))


def _train(folder: str) -> None:
    dist.init_process_group("gloo")
    try:
        fit(MODEL, DATA, folder=folder, **{**WAVE, "epochs": 12})
    finally:
        dist.destroy_process_group()


def test_two_processes_keep_the_epoch_of_their_record(tmp_path: Path) -> None:
    in_two_processes(_train, str(tmp_path / "two"))
    run = Run(tmp_path / "two")
    assert run.state == "finished" and run.kept_epoch == (by_hand(run) or 12)


def test_the_command_line_and_the_report_say_what_was_kept(wave: Run, tmp_path: Path) -> None:
    notes = str(gather([wave.path], title="t")["runs"][0])
    assert f"epoch {wave.kept_epoch}, chosen by Label Wave" in notes
    options = ["--data", "digits", "--model", "linear", "--epochs", "2", "--keep", "label_wave", "--device", "cpu"]
    done = CliRunner().invoke(app, ["train", *options, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0 and "kept the model of epoch 2: test accuracy" in done.output, done.output
    assert "label_wave" in CliRunner().invoke(app, ["train", "--help"]).output


def test_every_epoch_must_be_evaluated(tmp_path: Path) -> None:
    with refused("label_wave", "evaluate_every=2"):
        fit(MODEL, DATA, folder=tmp_path / "run", evaluate_every=2, **WAVE)
