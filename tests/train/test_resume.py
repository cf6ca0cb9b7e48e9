"""A stopped run resumes as if it had not been stopped, and its status is always right."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_runs import QUICK, clusters, interrupt_after, interrupt_before_model_file, read_status, same_bits
from torch import nn

from noisewise import DivergedError, InputError, fit, models
from noisewise.data import load
from noisewise.train import Run
from noisewise.train._loggers import JSONLines
from refused import refused, warned

PATIENT = {**QUICK, "epochs": 30, "optimiser": "sgd(lr=0.02, momentum=0.0)", "schedule": "constant", "validation": 0.3, "patience": 3}
PATIENT_MODEL = "mlp(hidden=(8,))"


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """A run that stopped early, with an accuracy that equals its best."""
    return fit(PATIENT_MODEL, clusters(), folder=tmp_path_factory.mktemp("runs") / "straight", **PATIENT)


def test_an_accuracy_that_equals_the_best_is_not_an_improvement(patient):
    accuracies = [line["validation_accuracy"] for line in patient.metrics]
    first_best = int(np.argmax(accuracies))
    assert len(accuracies) == first_best + 1 + PATIENT["patience"] < PATIENT["epochs"]
    assert accuracies[-1] == max(accuracies), "there must be a tie for this to be a test"
    assert "validation" in read_status(patient.path)["reason"]


@pytest.mark.parametrize("epochs_before_the_end", [0, 1, 3])
def test_a_resumed_run_stops_early_at_the_same_epoch(patient, tmp_path, epochs_before_the_end):
    last = patient.metrics[-1 - epochs_before_the_end]
    interrupt_after(last["step"], PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    run = fit(PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    same_bits(patient.path, run.path)


def test_a_run_interrupted_after_its_last_checkpoint_trains_no_more_steps(patient, tmp_path, monkeypatch):
    interrupt_before_model_file(monkeypatch, PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    steps = []
    run = fit(PATIENT_MODEL, clusters(), folder=tmp_path / "run", watch=lambda step, _: steps.append(step), **PATIENT)
    assert run.state == "finished" and not steps
    same_bits(patient.path, run.path)


def test_a_resumed_run_draws_the_same_random_numbers(tmp_path):
    data = load("digits").take(torch.arange(128))
    settings = {**QUICK, "epochs": 4, "augment": "crop(1)", "optimiser": "adam(lr=0.01)"}
    model = "mlp(hidden=(16,), dropout=0.2)"
    straight = fit(model, data, folder=tmp_path / "straight", **settings)
    interrupt_after(5, model, data, folder=tmp_path / "run", **settings)
    same_bits(straight.path, fit(model, data, folder=tmp_path / "run", **settings).path)


def test_a_resumed_run_removes_the_record_of_epochs_that_it_trains_again(tmp_path):
    settings = {**QUICK, "epochs": 4, "checkpoint_every": 2, "folder": tmp_path / "run"}
    interrupt_after(17, "linear", clusters(), **settings)  # in the fourth epoch; the last checkpoint is from the second
    run, seen = Run(tmp_path / "run"), []
    assert [line["epoch"] for line in run.metrics] == [1, 2, 3]
    fit("linear", clusters(), watch=lambda *_: seen.append((len(run.metrics), run.dynamics.record.epochs())), **settings)
    assert seen[0] == (2, (1, 2)) and seen == sorted(seen), "the third epoch comes back when it is trained again"
    assert len(run.metrics) == 4 and run.dynamics.record.epochs() == (1, 2, 3, 4)


@pytest.mark.parametrize("step", [7, 12])
def test_an_adaptive_loss_resumes_to_the_same_bits(tmp_path, step):
    settings = {**QUICK, "loss": "auto", "noise": "symmetric(0.4)"}
    straight = fit("linear", clusters(), folder=tmp_path / "straight", **settings)
    interrupt_after(step, "linear", clusters(), folder=tmp_path / "run", **settings)
    fit("linear", clusters(), folder=tmp_path / "run", **settings)
    same_bits(straight.path, tmp_path / "run")
    assert [line["adapted"]["size"] for line in straight.metrics] == pytest.approx([1, 1.5, 2.25]), "it changed in every epoch"


MODULES = {
    "user module": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
    "built-in model": lambda: models.get("mlp(hidden=(16,))", num_classes=3, shape=(8,)),
}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("step", [2, 7])
def test_a_module_resumes_from_the_weights_of_its_run(tmp_path, kind, step):
    def build(seed):
        torch.manual_seed(seed)
        return MODULES[kind]()

    fit(build(1), clusters(), folder=tmp_path / "straight", **QUICK)
    interrupt_after(step, build(1), clusters(), folder=tmp_path / "run", **QUICK)
    with warned("run"):
        fit(build(2), clusters(), folder=tmp_path / "run", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.head(self.second(self.first(inputs).relu()).relu())


def test_tied_weights_are_saved_and_stay_tied(tmp_path):
    def build(seed):
        torch.manual_seed(seed)
        return Tied()

    straight = build(1)
    run = fit(straight, clusters(), folder=tmp_path / "straight", **QUICK)
    interrupt_after(7, build(1), clusters(), folder=tmp_path / "run", **QUICK)
    resumed = build(2)
    with warned("Tied"):
        fit(resumed, clusters(), folder=tmp_path / "run", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")
    assert resumed.second.weight is resumed.first.weight
    fresh = run.model(into=Tied())
    for name, value in straight.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name


def test_a_resumed_run_names_the_same_step_when_it_diverges(tmp_path):
    settings = {**QUICK, "epochs": 9, "batch_size": 300, "optimiser": "sgd(lr=1e4)", "schedule": "constant", "clean_pass": False}
    with refused("step 4", kind=DivergedError) as straight:
        fit("mlp", clusters(), folder=tmp_path / "straight", **settings)
    interrupt_after(3, "mlp", clusters(), folder=tmp_path / "run", **settings)
    with refused("step 4", kind=DivergedError) as resumed:
        fit("mlp", clusters(), folder=tmp_path / "run", **settings)
    assert str(straight.value) == str(resumed.value)
    assert Run(tmp_path / "run").metrics[-1]["epoch"] == 3


def test_the_status_of_a_resumed_run_is_running(tmp_path):
    interrupt_after(12, "mlp", clusters(), folder=tmp_path / "run", **QUICK)
    statuses = []
    fit("mlp", clusters(), folder=tmp_path / "run", watch=lambda *_: statuses.append(read_status(tmp_path / "run")), **QUICK)
    assert statuses[0] == {"state": "running", "reason": None, "epoch": 2, "step": 10}


def test_an_error_marks_the_run_as_failed_with_a_reason_and_the_run_can_resume(tmp_path):
    error = RuntimeError("no more")

    def watch(step, steps):
        if step == 7:
            raise error

    with pytest.raises(RuntimeError) as caught:
        fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert caught.value is error
    assert read_status(tmp_path / "run") == {"state": "failed", "reason": "RuntimeError: no more", "epoch": 1, "step": 5}
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    fit("mlp", clusters(), folder=tmp_path / "straight", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")
    assert read_status(tmp_path / "run")["state"] == "finished"


DIVERGING = {
    "scores": {"optimiser": "sgd(lr=1e30)"},
    "scores, not evaluated": {"optimiser": "sgd(lr=1e30)", "clean_pass": False},
    "weights": {"optimiser": "sgd(lr=3e38)", "weight_decay": 1e3},
}


@pytest.mark.parametrize("what", DIVERGING)
def test_a_run_that_diverges_in_its_last_step_has_failed(tmp_path, what):
    with refused(what.partition(",")[0], "step 1", kind=DivergedError):
        fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, "epochs": 1, "batch_size": 300, **DIVERGING[what]})
    assert read_status(tmp_path / "run")["state"] == "failed" and not (tmp_path / "run/model.safetensors").exists()
    for path in (tmp_path / "run/checkpoints").glob("*"):
        assert all(value.isfinite().all() for value in load_file(path).values())


def test_a_model_with_weights_that_are_not_finite_is_refused(tmp_path):
    model = nn.Linear(8, 3)
    with torch.no_grad():
        model.bias[1] = math.nan
    with refused("Linear", "finite"):
        fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


class NotInstalled(JSONLines):
    def open(self, settings):
        raise InputError("This logger is not installed.")


def test_loggers_that_were_started_are_finished_when_another_logger_cannot_start(tmp_path):
    loggers = [JSONLines(str(tmp_path / "first.jsonl")), NotInstalled(str(tmp_path / "second.jsonl"))]
    with refused():
        fit("mlp", clusters(), folder=tmp_path / "run", loggers=loggers, **QUICK)
    assert json.loads((tmp_path / "first.jsonl").read_text().splitlines()[-1]) == {"state": "failed"}
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"], "nothing else was written"
    assert fit("mlp", clusters(), loss="mae", folder=tmp_path / "run", **QUICK).state == "finished"
