"""A run that was stopped goes on as if it had not been, and says truthfully how it stands."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_fit import QUICK, clusters, same_bits
from torch import nn

from noisewise import DivergedError, InputError, fit, models
from noisewise.data import load
from noisewise.runs import RunFolder
from noisewise.train import Run
from noisewise.train._loggers import JSONLines

PATIENT = {**QUICK, "epochs": 30, "optimiser": "sgd(lr=0.02, momentum=0.0)", "schedule": "constant", "validation": 0.3, "patience": 3}
PATIENT_MODEL = "mlp(hidden=(8,))"


def status(folder):
    return json.loads((folder / "status.json").read_text())


def stopped_at(step, model, data, **asked):
    """Interrupt a run after some step."""

    def watch(done, of):
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, data, watch=watch, **asked)
    assert Run(asked["folder"]).state == "interrupted"


def stopped_before_its_model(monkeypatch, model, data, **asked):
    """Interrupt a run after its last checkpoint."""
    written = RunFolder.write_tensors

    def stops(self, name, tensors, notes):
        if name == "model.safetensors":
            raise KeyboardInterrupt
        written(self, name, tensors, notes)

    monkeypatch.setattr(RunFolder, "write_tensors", stops)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, **asked)
    monkeypatch.undo()


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """A run that stopped early though it stayed at its best."""
    return fit(PATIENT_MODEL, clusters(), folder=tmp_path_factory.mktemp("runs") / "straight", **PATIENT)


def test_an_evaluation_as_good_as_the_best_is_no_better(patient):
    watched = [line["validation_accuracy"] for line in patient.metrics]
    first_of_the_best = int(np.argmax(watched))
    assert len(watched) == first_of_the_best + 1 + PATIENT["patience"] < PATIENT["epochs"]
    assert watched[-1] == max(watched), "without a tie this shows nothing"
    assert status(patient.path)["reason"] == "no improvement on the validation share"


@pytest.mark.parametrize("back", [0, 1, 2, 3])
def test_a_resumed_run_stops_early_where_it_would_have(patient, tmp_path, back):
    last = patient.metrics[-1 - back]
    stopped_at(last["step"], PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    run = fit(PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    same_bits(patient.path, run.path)


def test_a_run_stopped_after_its_last_checkpoint_does_not_train_on(patient, tmp_path, monkeypatch):
    stopped_before_its_model(monkeypatch, PATIENT_MODEL, clusters(), folder=tmp_path / "run", **PATIENT)
    steps = []
    run = fit(PATIENT_MODEL, clusters(), folder=tmp_path / "run", watch=lambda *place: steps.append(place), **PATIENT)
    assert run.state == "finished" and not steps
    same_bits(patient.path, run.path)


def test_a_resumed_run_goes_on_with_the_chances_it_would_have_had(tmp_path):
    data = load("digits").take(torch.arange(128))
    asked = {**QUICK, "epochs": 4, "augment": "crop(1)", "optimiser": "adam(lr=0.01)"}
    straight = fit("mlp(hidden=(16,), dropout=0.2)", data, folder=tmp_path / "straight", **asked)
    stopped_at(5, "mlp(hidden=(16,), dropout=0.2)", data, folder=tmp_path / "run", **asked)
    same_bits(straight.path, fit("mlp(hidden=(16,), dropout=0.2)", data, folder=tmp_path / "run", **asked).path)


def test_a_resumed_run_shows_nothing_of_the_epochs_it_trains_again(tmp_path):
    asked = {**QUICK, "epochs": 4, "checkpoint_every": 2, "folder": tmp_path / "run"}
    stopped_at(17, "linear", clusters(), **asked)  # in the fourth epoch: the third was written, the checkpoint is of the second
    run, shown = Run(tmp_path / "run"), []
    assert [line["epoch"] for line in run.metrics] == [1, 2, 3]
    fit("linear", clusters(), watch=lambda *_: shown.append((len(run.metrics), run.dynamics.record.epochs())), **asked)
    assert shown[0] == (2, (1, 2)) and shown[-1] == (3, (1, 2, 3))


MODULES = {
    "own": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
    "ours": lambda: models.get("mlp(hidden=(16,))", num_classes=3, shape=(8,)),
}


@pytest.mark.parametrize("whose", MODULES)
@pytest.mark.parametrize("step", [2, 7])
def test_a_model_given_as_an_object_goes_on_from_the_weights_it_came_with(tmp_path, whose, step):
    def made(seed):
        torch.manual_seed(seed)
        return MODULES[whose]()

    fit(made(1), clusters(), folder=tmp_path / "straight", **QUICK)
    stopped_at(step, made(1), clusters(), folder=tmp_path / "run", **QUICK)
    with pytest.warns(UserWarning, match="started from other weights"):
        fit(made(2), clusters(), folder=tmp_path / "run", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.into, self.onto, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.onto.weight = self.into.weight

    def forward(self, inputs):
        return self.head(self.onto(self.into(inputs).relu()).relu())


def test_tied_weights_are_saved_and_go_on_tied(tmp_path):
    def made(seed):
        torch.manual_seed(seed)
        return Tied()

    straight = made(1)
    run = fit(straight, clusters(), folder=tmp_path / "straight", **QUICK)
    stopped_at(7, made(1), clusters(), folder=tmp_path / "run", **QUICK)
    resumed = made(2)
    with pytest.warns(UserWarning, match="started from other weights"):
        fit(resumed, clusters(), folder=tmp_path / "run", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")
    assert resumed.onto.weight is resumed.into.weight
    fresh = run.model(into=Tied())
    for name, value in straight.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name


def test_a_resumed_run_names_the_step_it_blew_up_at(tmp_path):
    asked = {**QUICK, "epochs": 9, "batch_size": 300, "optimiser": "sgd(lr=1e4)", "schedule": "constant", "clean_pass": False}
    sentences = []
    for name in ("straight", "run"):
        if name == "run":
            stopped_at(3, "mlp", clusters(), folder=tmp_path / name, **asked)
        with pytest.raises(DivergedError) as caught:
            fit("mlp", clusters(), folder=tmp_path / name, **asked)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1] and "was not finite at step 4;" in sentences[0]
    assert Run(tmp_path / "run").metrics[-1]["epoch"] == 3


def test_a_resumed_run_says_that_it_runs(tmp_path):
    stopped_at(12, "mlp", clusters(), folder=tmp_path / "run", **QUICK)
    seen = []
    fit("mlp", clusters(), folder=tmp_path / "run", watch=lambda *place: seen.append(status(tmp_path / "run")), **QUICK)
    assert seen[0] == {"state": "running", "reason": None, "epoch": 2, "step": 10}


def test_any_error_leaves_a_failed_run_that_says_why_and_can_go_on(tmp_path):
    def watch(done, of):
        if done == 7:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert status(tmp_path / "run") == {"state": "failed", "reason": "RuntimeError: no more", "epoch": 1, "step": 5}
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    fit("mlp", clusters(), folder=tmp_path / "straight", **QUICK)
    same_bits(tmp_path / "straight", tmp_path / "run")
    assert status(tmp_path / "run")["state"] == "finished"


LAST_STEPS = {
    "scores": ({"optimiser": "sgd(lr=1e30)"}, "The scores of the train set were not finite after step 1;"),
    "scores, not evaluated": ({"optimiser": "sgd(lr=1e30)", "clean_pass": False}, "The scores were not finite after step 1;"),
    "weights": ({"optimiser": "sgd(lr=3e38)", "weight_decay": 1e3}, "The weights were not finite after step 1;"),
}


@pytest.mark.parametrize("what", LAST_STEPS)
def test_a_run_that_blows_up_in_its_last_step_is_not_finished(tmp_path, what):
    asked, sentence = LAST_STEPS[what]
    with pytest.raises(DivergedError, match=sentence):
        fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, "epochs": 1, "batch_size": 300, **asked})
    assert status(tmp_path / "run")["state"] == "failed" and not (tmp_path / "run/model.safetensors").exists()
    for path in (tmp_path / "run/checkpoints").glob("*"):
        assert all(value.isfinite().all() for value in load_file(path).values())


def test_a_model_with_weights_that_are_not_finite_is_refused(tmp_path):
    model = nn.Linear(8, 3)
    with torch.no_grad():
        model.bias[1] = math.nan
    with pytest.raises(InputError, match="The model Linear has weights that are not finite"):
        fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


class Refuses(JSONLines):
    def open(self, settings):
        raise InputError("This logger is not installed.")


def test_loggers_that_have_started_are_finished_when_another_cannot_start(tmp_path):
    loggers = [JSONLines(str(tmp_path / "first.jsonl")), Refuses(str(tmp_path / "second.jsonl"))]
    with pytest.raises(InputError, match="not installed"):
        fit("mlp", clusters(), folder=tmp_path / "run", loggers=loggers, **QUICK)
    assert json.loads((tmp_path / "first.jsonl").read_text().splitlines()[-1]) == {"state": "failed"}
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"], "refused before anything is written"
    assert fit("mlp", clusters(), loss="mae", folder=tmp_path / "run", **QUICK).state == "finished"
