"""The run folder: one trains in it at a time, it takes no other run, and it says what it cannot be read for."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from test_fit import QUICK, clusters, same_bits
from test_resume import status, stopped_at
from torch import nn
from trainer import TRAINED, Trainer

import noisewise.runs._folder
from noisewise import InputError, fit
from noisewise.runs import KEPT_CHECKPOINTS, RunFolder
from noisewise.train import Run


def test_a_folder_that_is_trained_in_is_refused_until_that_ends(tmp_path):
    sentences = []

    def watch(done, of):
        if done == 7:
            with pytest.raises(InputError) as caught:
                fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
            sentences.append(str(caught.value))

    fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert "is in use: another call trains in it. Wait until it ends" in sentences[0] and str(tmp_path / "run") in sentences[0]
    fit("mlp", clusters(), folder=tmp_path / "straight", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")


def test_a_process_that_is_killed_leaves_its_folder_free(tmp_path):
    folder = tmp_path / "run"
    with Trainer() as trainer:
        stopped = trainer.train(folder, step=7, send=signal.SIGSTOP)
        before = status(folder)
        assert before["state"] == "running"
        with pytest.raises(InputError, match="is in use"):
            fit(folder=folder, **TRAINED)
        assert status(folder) == before
        os.kill(stopped.process, signal.SIGKILL)
        assert (stopped.code, trainer.wait().code) == (-signal.SIGSTOP, -signal.SIGKILL)
        for name in ("run", "straight"):
            assert trainer.train(tmp_path / name).code == 0
    same_bits(tmp_path / "straight", folder)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to find a file that is open")
def test_a_process_forked_during_training_does_not_keep_the_folder(tmp_path):
    folder, lock = RunFolder(tmp_path), str(tmp_path / ".lock")
    with folder.lock():
        copies = [os.dup(int(one.name)) for one in Path("/proc/self/fd").iterdir() if os.path.realpath(one) == lock]  # as a fork has it
    assert copies
    with folder.lock():
        pass
    for copy in copies:
        os.close(copy)


def test_a_finished_run_is_read_back_while_its_folder_is_held(tmp_path):
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    with RunFolder(tmp_path / "run").lock():
        assert fit("mlp", clusters(), folder=tmp_path / "run", **QUICK).state == "finished"


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    stopped_at(7, "mlp", clusters(), folder=tmp_path / "run", **QUICK)
    left = [tmp_path / "run/.status.json.0123.part", tmp_path / "run/record/training/.margins-00002.npy.4567.part"]
    for path in left:
        path.write_bytes(b"half")
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    assert not any(path.exists() for path in left)


def layers(width, activation=torch.relu):
    class Activation(nn.Module):
        def forward(self, inputs):
            return activation(inputs)

        def extra_repr(self):
            return repr(activation)

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), Activation(), nn.Linear(width, 3))


def test_modules_of_one_class_that_are_built_otherwise_are_different_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, again, other = (fit(layers(width), clusters(), **QUICK) for width in (4, 4, 8))
    assert first.path == again.path != other.path
    assert first.model(into=layers(4)) and other.model(into=layers(8))


def test_a_folder_with_a_run_of_another_module_is_refused(tmp_path):
    fit(layers(4), clusters(), folder=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="a run of another Sequential, with other layers"):
        fit(layers(8), clusters(), folder=tmp_path / "run", **QUICK)


def test_a_folder_that_another_run_took_meanwhile_is_refused(tmp_path):
    class Late(nn.Linear):
        def forward(self, inputs):
            with torch.enable_grad():
                fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
            return super().forward(inputs)

    with pytest.raises(InputError, match=r"a run with model='mlp'. Got model='Late'"):
        fit(Late(8, 3), clusters(), folder=tmp_path / "run", **QUICK)
    assert Run(tmp_path / "run").state == "finished" and Run(tmp_path / "run").model()


def test_where_a_function_lies_in_memory_does_not_make_another_module(tmp_path):
    functions = [lambda inputs: inputs.relu() for _ in range(2)]
    assert repr(functions[0]) != repr(functions[1])
    for function in functions:
        fit(layers(4, function), clusters(), folder=tmp_path / "run", **QUICK)


def test_a_module_may_be_given_again_after_its_training(tmp_path):
    model = layers(4)
    first = fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert fit(model, clusters(), folder=tmp_path / "run", **QUICK).metrics == first.metrics


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "has format 2"),
        ({"warp": 9}, "has an unknown setting 'warp'"),
        ({"model": None}, "has no setting 'model'"),
    ],
)
def test_a_run_of_another_version_is_refused_in_one_sentence(tmp_path, change, sentence):
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    path = tmp_path / "run/settings.json"
    written = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: value for name, value in written.items() if name not in change or value is not None}))
    for use in (lambda: Run(tmp_path / "run"), lambda: fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)):
        with pytest.raises(InputError, match=f"The run in '.*run' {sentence}"):
            use()


def test_a_margin_beyond_half_precision_is_recorded_as_the_largest_it_has(tmp_path):
    RunFolder(tmp_path).write_record("training", 1, torch.tensor([-1e6, 2.5, 1e6, torch.nan]), torch.tensor([0, 1, 2, -1]))
    margins = np.load(tmp_path / "record/training/margins-00001.npy")
    np.testing.assert_array_equal(margins, [-65504, 2.5, 65504, np.nan])


def test_what_an_epoch_writes_does_not_grow_with_those_before(tmp_path, monkeypatch):
    """Small tables are trained for thousands of epochs: none of them reads the lines, nor lists the files, of the others."""
    looks = []
    settings = {name: value for name, value in QUICK.items() if name != "epochs"}
    scan, read = os.scandir, noisewise.runs._folder.read_metrics
    monkeypatch.setattr(noisewise.runs._folder, "read_metrics", lambda path: looks.append(path) or read(path))
    monkeypatch.setattr(os, "scandir", lambda path=".": ("record" in str(path) and looks.append(path)) or scan(path))
    numbers = []
    for epochs in (2, 9):
        looks.clear()
        fit("mlp", clusters(), folder=tmp_path / str(epochs), epochs=epochs, **settings)
        numbers.append(len(looks))
    assert numbers[0] == numbers[1] > 0


def test_checkpoints_are_kept_and_read_by_their_number(tmp_path):
    folder = RunFolder(tmp_path)
    for epoch in (99_998, 99_999, 100_000, 100_001):
        folder.write_checkpoint(
            epoch, {"weight": torch.full((2,), float(epoch))}, {"epoch": epoch, "step": 1, "best": None, "best_epoch": 0, "waited": 0}
        )
    assert KEPT_CHECKPOINTS == 2 and [notes["epoch"] for _, notes in folder.checkpoints()] == [100_001, 100_000]


def test_a_run_that_lost_its_settings_is_not_taken_for_another(tmp_path):
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    (tmp_path / "run/settings.json").unlink()
    before = contents(tmp_path / "run")
    for asked in ({}, {"loss": "mae", "seed": 7}):
        with pytest.raises(InputError, match=r"'.*run' is not empty .*'checkpoints' and no settings.json"):
            fit("mlp", clusters(), folder=tmp_path / "run", **QUICK, **asked)
    assert contents(tmp_path / "run") == before


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FOREIGN = {
    "notes": ["notes.txt"],
    "labels of one's own": ["labels/given.npy"],
    "a folder": ["labels/old/given.npy", "provenance.json"],
    "a hidden file": [".gitignore"],
    "files that are called like a run's": ["classes.json", "status.json"],
    "a file that is called like a run's first": ["provenance.json"],
    "a record": ["provenance.json", "classes.json", "record/training/margins-00001.npy"],
    "metrics": ["provenance.json", "metrics.jsonl"],
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_folder_with_files_that_are_not_a_runs_is_left_as_it_is(tmp_path, what):
    for name in FOREIGN[what]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"noisewise": "0.1"}' if what in ("a folder", "a record", "metrics") else "mine")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="is not empty and is not a run"):
        fit("mlp", clusters(), folder=tmp_path, **QUICK)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("last", ["provenance.json", "classes.json", "labels/given.npy", "labels/true.npy", "status.json", "settings.json"])
def test_a_start_that_was_cut_short_is_begun_anew_whatever_was_asked(tmp_path, monkeypatch, last):
    written, deadly = RunFolder._write, []

    def dies(self, name, content):
        if name == deadly[-1]:
            raise KeyboardInterrupt
        written(self, name, content)

    monkeypatch.setattr(RunFolder, "_write", dies)
    for name in (last, "provenance.json"):  # what begins it anew dies too, before its first word
        deadly.append(name)
        with pytest.raises(KeyboardInterrupt):
            fit("mlp", clusters(), noise="symmetric(0.3)", folder=tmp_path / "run", **QUICK)
    monkeypatch.undo()
    (tmp_path / f"run/.{Path(last).name}.0123.part").write_bytes(b"half")
    assert not RunFolder(tmp_path / "run").exists()
    for name in ("run", "straight"):
        fit("mlp", clusters(), folder=tmp_path / name, **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")
    assert set(contents(tmp_path / "run")) == set(contents(tmp_path / "straight")), "labels/true.npy is the noise's, and there is none now"


def test_files_that_came_while_the_model_was_built_are_left_as_they_are(tmp_path):
    class Late(nn.Linear):
        def forward(self, inputs):
            (tmp_path / "run/labels").mkdir(parents=True, exist_ok=True)
            (tmp_path / "run/labels/given.npy").write_text("mine")
            return super().forward(inputs)

    with pytest.raises(InputError, match=r"is not empty .*'labels'"):
        fit(Late(8, 3), clusters(), folder=tmp_path / "run", **QUICK)
    assert (tmp_path / "run/labels/given.npy").read_text() == "mine"
