"""The run folder: only one call trains in it at a time, it contains one run, and files of others are never changed."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from killable_training import TRAINED
from small_runs import QUICK, clusters, file_contents, interrupt_after, read_status, same_bits
from torch import nn

import noisewise.runs._folder
from noisewise import fit
from noisewise.runs import KEPT_CHECKPOINTS, RunFolder
from noisewise.train import Run
from refused import refused

ONCE = {**QUICK, "epochs": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of "mlp" on `clusters()` that finished without interruption."""
    return fit("mlp", clusters(), folder=tmp_path_factory.mktemp("runs") / "finished", **QUICK).path


@pytest.fixture
def copy_of_finished(finished, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_a_folder_that_is_in_use_is_refused(tmp_path, finished):
    errors = []

    def watch(step, steps):
        if step == 7:
            with refused(tmp_path / "run") as caught:
                fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
            errors.append(caught.value)

    fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert len(errors) == 1
    same_bits(finished, tmp_path / "run")


def test_the_folder_of_a_killed_process_is_free(tmp_path, killable, uninterrupted):
    folder = tmp_path / "run"
    stopped = killable.train(folder, step=7, send=signal.SIGSTOP)
    before = read_status(folder)
    assert before["state"] == "running"
    with refused(folder):
        fit(folder=folder, **TRAINED)
    assert read_status(folder) == before
    os.kill(stopped.process, signal.SIGKILL)
    assert (stopped.code, killable.wait().code) == (-signal.SIGSTOP, -signal.SIGKILL)
    assert killable.train(folder).code == 0
    same_bits(uninterrupted[0], folder)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of the open files")
def test_a_process_forked_during_training_does_not_keep_the_lock(tmp_path):
    folder, lock = RunFolder(tmp_path), str(tmp_path / ".lock")
    with folder.lock():
        copies = [os.dup(int(file.name)) for file in Path("/proc/self/fd").iterdir() if os.path.realpath(file) == lock]  # as in a fork
    assert copies
    with folder.lock():
        pass
    for copy in copies:
        os.close(copy)


def test_a_finished_run_can_be_read_while_its_folder_is_locked(finished):
    with RunFolder(finished).lock():
        assert fit("mlp", clusters(), folder=finished, **QUICK).state == "finished"


def test_partial_files_of_a_killed_process_are_removed(tmp_path):
    interrupt_after(7, "mlp", clusters(), folder=tmp_path / "run", **QUICK)
    partial = [tmp_path / "run/.status.json.0123.part", tmp_path / "run/record/training/.margins-00002.npy.4567.part"]
    for path in partial:
        path.write_bytes(b"half")
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    assert not any(path.exists() for path in partial)


def layers(width, activation=torch.relu):
    class Activation(nn.Module):
        def forward(self, inputs):
            return activation(inputs)

        def extra_repr(self):
            return repr(activation)

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), Activation(), nn.Linear(width, 3))


def test_modules_of_one_class_with_other_layers_are_different_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, again, other = (fit(layers(width), clusters(), **ONCE) for width in (4, 4, 8))
    assert first.path == again.path != other.path
    assert first.model(into=layers(4)) and other.model(into=layers(8))


def test_a_folder_with_a_run_of_another_module_is_refused(tmp_path):
    fit(layers(4), clusters(), folder=tmp_path / "run", **ONCE)
    with refused(tmp_path / "run", "Sequential"):
        fit(layers(8), clusters(), folder=tmp_path / "run", **ONCE)


def test_a_folder_that_another_run_used_meanwhile_is_refused(tmp_path):
    class TrainsAnother(nn.Linear):
        def forward(self, inputs):
            with torch.enable_grad():
                fit("mlp", clusters(), folder=tmp_path / "run", **ONCE)
            return super().forward(inputs)

    with refused("model='mlp'", "model='TrainsAnother'"):
        fit(TrainsAnother(8, 3), clusters(), folder=tmp_path / "run", **ONCE)
    assert Run(tmp_path / "run").state == "finished" and Run(tmp_path / "run").model()


def test_the_address_of_a_function_does_not_make_another_module(tmp_path):
    functions = [lambda inputs: inputs.relu() for _ in range(2)]
    assert repr(functions[0]) != repr(functions[1])
    for function in functions:
        fit(layers(4, function), clusters(), folder=tmp_path / "run", **ONCE)


def test_a_trained_module_finds_its_run_again(tmp_path):
    model = layers(4)
    first = fit(model, clusters(), folder=tmp_path / "run", **ONCE)
    assert fit(model, clusters(), folder=tmp_path / "run", **ONCE).metrics == first.metrics


@pytest.mark.parametrize(
    ("change", "mentions"), [({"format": 2}, ["format", 2]), ({"warp": 9}, ["'warp'"]), ({"model": None}, ["'model'"])], ids=str
)
def test_a_run_of_another_version_is_refused(copy_of_finished, change, mentions):
    path = copy_of_finished / "settings.json"
    settings = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: value for name, value in settings.items() if name not in change or value is not None}))
    for use in (lambda: Run(copy_of_finished), lambda: fit("mlp", clusters(), folder=copy_of_finished, **QUICK)):
        with refused(copy_of_finished, *mentions):
            use()


def test_margins_are_clamped_to_the_range_of_half_precision(tmp_path):
    RunFolder(tmp_path).write_record("training", 1, torch.tensor([-1e6, 2.5, 1e6, torch.nan]), torch.tensor([0, 1, 2, -1]))
    margins = np.load(tmp_path / "record/training/margins-00001.npy")
    np.testing.assert_array_equal(margins, [-65504, 2.5, 65504, np.nan])


def test_the_work_for_an_epoch_does_not_grow_with_the_number_of_epochs(tmp_path, monkeypatch):
    """Small tables are trained for thousands of epochs, so no epoch may read the lines or list the files of the others."""
    looks, numbers = [], []
    scandir, read_metrics = os.scandir, noisewise.runs._folder.read_metrics
    monkeypatch.setattr(noisewise.runs._folder, "read_metrics", lambda path: looks.append(path) or read_metrics(path))
    monkeypatch.setattr(os, "scandir", lambda path=".": ("record" in str(path) and looks.append(path)) or scandir(path))
    for epochs in (2, 6):
        looks.clear()
        fit("mlp", clusters(), folder=tmp_path / str(epochs), **{**QUICK, "epochs": epochs})
        numbers.append(len(looks))
    assert numbers[0] == numbers[1] > 0


def test_the_checkpoints_of_the_last_epochs_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    for epoch in (99_998, 99_999, 100_000, 100_001):
        folder.write_checkpoint(
            epoch, {"weight": torch.full((2,), float(epoch))}, {"epoch": epoch, "step": 1, "best": None, "best_epoch": 0, "waited": 0}
        )
    assert KEPT_CHECKPOINTS == 2 and [notes["epoch"] for _, notes in folder.checkpoints()] == [100_001, 100_000]


def test_a_run_without_its_settings_is_not_replaced(copy_of_finished):
    (copy_of_finished / "settings.json").unlink()
    before = file_contents(copy_of_finished)
    for settings in ({}, {"loss": "mae", "seed": 7}):
        with refused(copy_of_finished, "settings.json"):
            fit("mlp", clusters(), folder=copy_of_finished, **QUICK, **settings)
    assert file_contents(copy_of_finished) == before


FOREIGN = {
    "notes": ["notes.txt"],
    "other labels": ["labels/given.npy"],
    "a folder": ["labels/old/given.npy", "provenance.json"],
    "a hidden file": [".gitignore"],
    "files with names of run files": ["classes.json", "status.json"],
    "a file with the name of the first run file": ["provenance.json"],
    "a record": ["provenance.json", "classes.json", "record/training/margins-00001.npy"],
    "metrics": ["provenance.json", "metrics.jsonl"],
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_folder_with_other_files_is_refused_and_not_changed(tmp_path, what):
    for name in FOREIGN[what]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"noisewise": "0.1"}' if what in ("a folder", "a record", "metrics") else "mine")
    before = file_contents(tmp_path)
    with refused(tmp_path):
        fit("mlp", clusters(), folder=tmp_path, **QUICK)
    assert file_contents(tmp_path) == before


@pytest.mark.parametrize("last", ["provenance.json", "labels/given.npy", "labels/true.npy", "settings.json"])
def test_an_interrupted_start_can_be_replaced_by_any_run(tmp_path, monkeypatch, finished, last):
    write, stops = RunFolder._write, []

    def interrupt(self, name, content):
        if name == stops[-1]:
            raise KeyboardInterrupt
        write(self, name, content)

    monkeypatch.setattr(RunFolder, "_write", interrupt)
    for name in (last, "provenance.json"):  # the second attempt is interrupted before its first file
        stops.append(name)
        with pytest.raises(KeyboardInterrupt):
            fit("mlp", clusters(), noise="symmetric(0.3)", folder=tmp_path / "run", **QUICK)
    monkeypatch.undo()
    (tmp_path / f"run/.{Path(last).name}.0123.part").write_bytes(b"half")
    assert not RunFolder(tmp_path / "run").exists()
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    same_bits(finished, tmp_path / "run")
    assert set(file_contents(tmp_path / "run")) == set(file_contents(finished)), "labels/true.npy belongs to the noise of the first attempt"


def test_files_that_appear_while_the_model_is_built_are_not_changed(tmp_path):
    class WritesLabels(nn.Linear):
        def forward(self, inputs):
            (tmp_path / "run/labels").mkdir(parents=True, exist_ok=True)
            (tmp_path / "run/labels/given.npy").write_text("mine")
            return super().forward(inputs)

    with refused(tmp_path / "run", "'labels'"):
        fit(WritesLabels(8, 3), clusters(), folder=tmp_path / "run", **QUICK)
    assert (tmp_path / "run/labels/given.npy").read_text() == "mine"
