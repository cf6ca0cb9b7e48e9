"""What a run says and keeps of a module that it is given."""

from pathlib import Path

import pytest
import torch
from test_fit import QUICK, clusters
from test_rehearsal import Held, longer
from test_resume import stopped_at
from torch import nn

from noisewise import InputError, Recorder, fit, models
from noisewise.runs import RunFolder
from noisewise.train._run import is_unmodified
from noisewise.train._user_module import model_digests

ONCE = {**QUICK, "epochs": 1}


class Noted(nn.Linear):
    """A layer that keeps more than tensors."""

    def get_extra_state(self):
        return {"seen": 3}


UNKEPT = {
    "extra state": (lambda: Noted(8, 3), "'_extra_state'"),
    "sparse": (lambda: Held(torch.eye(2).to_sparse()), "'held'"),
    "complex128": (lambda: Held(torch.ones(2, dtype=torch.complex128)), "'held'"),
}


@pytest.mark.parametrize(("made", "sentence"), UNKEPT.values(), ids=UNKEPT.keys())
def test_what_no_file_holds_is_one_sentence(tmp_path, made, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(made(), clusters(), folder=tmp_path / "run", **ONCE)
    assert not (tmp_path / "run").exists()
    recorder = Recorder(tmp_path / "recorded", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with pytest.raises(InputError, match=sentence):
        recorder.finish(made())
    assert recorder.finish().state == "finished", "it can still be finished without"


@pytest.mark.parametrize("model", ["mlp", {"weight": torch.ones(2)}, nn.LazyLinear(2), nn.Linear(2, 2, device="meta")], ids=type)
def test_a_recorder_keeps_a_module_with_weights_and_nothing_else(tmp_path, model):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with pytest.raises(InputError, match=r"must be a torch\.nn\.Module|'weight'"):
        recorder.finish(model)


def test_modules_of_the_same_weights_begin_alike_wherever_these_lie_in_memory():
    model = nn.Conv2d(3, 4, 2)
    model.register_buffer("empty", torch.zeros(0, 3))
    model.register_buffer("number", torch.tensor(3))
    start = model_digests(model)["start"]
    assert model_digests(model.to(memory_format=torch.channels_last))["start"] == start
    with torch.no_grad():
        model.bias[-1] += 1
    assert model_digests(model)["start"] != start


def test_weights_that_another_run_gave_a_module_are_not_replaced_without_a_word(tmp_path):
    one, other = nn.Linear(8, 3), nn.Linear(8, 3)
    for model, name in ((one, "one"), (other, "other")):
        fit(model, clusters(), folder=tmp_path / name, **ONCE)
    with pytest.warns(UserWarning, match=r"'.*other' started from other weights than this Linear"):
        fit(one, clusters(), folder=tmp_path / "other", **ONCE)
    assert torch.equal(one.weight, other.weight)


def test_a_module_that_a_folder_was_refused_to_was_not_trained(tmp_path):
    model = nn.Linear(8, 3)
    with RunFolder(tmp_path / "taken").lock(), pytest.raises(InputError, match="is in use"):
        fit(model, clusters(), folder=tmp_path / "taken", **ONCE)
    fit(model, clusters(), folder=tmp_path / "free", **ONCE)  # a warning would be an error


def test_of_several_processes_one_warns(tmp_path, monkeypatch):
    fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)  # a warning would be an error
    monkeypatch.setenv("RANK", "0")
    with pytest.warns(UserWarning, match="started from other weights"):
        fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)


@pytest.mark.parametrize("step", [7, None], ids=["stopped", "finished"])
def test_a_module_that_cannot_have_the_weights_of_its_run_again_is_one_sentence(tmp_path, step):
    def made():
        torch.manual_seed(0)
        return Held(torch.zeros(1), longer)

    asked = {**QUICK, "folder": tmp_path / "run"}
    fit(made(), clusters(), **asked) if step is None else stopped_at(step, made(), clusters(), **asked)
    with pytest.raises(InputError, match=r"The model Held has other layers .*run': size mismatch for held") as caught:
        fit(made(), clusters(), **asked)
    assert "\n" not in str(caught.value)


def test_what_is_done_in_python_in_one_of_our_models_is_seen():
    """On a GPU it would be done once, when a step is captured."""

    def made():
        return models.get("resnet20", num_classes=3)

    replaced, hooked = made(), made()
    replaced.head = Noted(64, 3)
    hooked.layer1.register_forward_hook(lambda *passed: None)
    assert is_unmodified(made()) and not is_unmodified(replaced) and not is_unmodified(hooked) and not is_unmodified(nn.Linear(8, 3))


def test_a_module_has_the_weights_of_a_run_that_was_finished_before(tmp_path):
    trained, another = nn.Linear(8, 3), nn.Linear(8, 3)
    fit(trained, clusters(), folder=tmp_path / "run", **QUICK)
    assert not torch.equal(trained.weight, another.weight)
    with pytest.warns(UserWarning, match="started from other weights than this Linear has") as warned:
        fit(another, clusters(), folder=tmp_path / "run", **QUICK)
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    assert torch.equal(trained.weight, another.weight) and torch.equal(trained.bias, another.bias)
    loaded = nn.Linear(8, 3)
    loaded.load_state_dict(trained.state_dict())
    for known in (trained, another, loaded):  # none of these is of another start
        fit(known, clusters(), folder=tmp_path / "run", **QUICK)
    with pytest.warns(UserWarning, match="already trained by fit"):
        fit(another, clusters(), loss="mae", folder=tmp_path / "other", **QUICK)


def test_weights_that_cannot_be_trained_are_refused(tmp_path):
    with pytest.raises(InputError, match="'weight'"):
        fit(nn.Linear(8, 3, device="meta"), clusters(), folder=tmp_path / "run", **QUICK)
    sparse = nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten(), nn.Linear(24, 3))
    tokens = (torch.randint(9, (60, 8)), torch.arange(60) % 3)
    sparse.forward = lambda inputs: nn.Sequential.forward(sparse, inputs.long().clamp(0, 8))
    with pytest.raises(InputError, match="Sequential has sparse gradients"):
        fit(sparse, tokens, folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_other_frozen_layers_are_another_run(tmp_path):
    def layers(frozen):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3))
        model[0].requires_grad_(not frozen)
        return model

    fit(layers(False), clusters(), folder=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="other frozen layers"):
        fit(layers(True), clusters(), folder=tmp_path / "run", **QUICK)


def test_a_model_that_was_trained_before_is_told_of_unless_it_was_reset(tmp_path):
    model = nn.Linear(8, 3)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    fit(model, clusters(), folder=tmp_path / "a", **QUICK)
    with pytest.warns(UserWarning, match="already trained by fit") as warned:
        fit(model, clusters(), loss="mae", folder=tmp_path / "b", **QUICK)
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    fit(model, clusters(), loss="mae", folder=tmp_path / "b", **QUICK)  # finished: nothing is trained

    def stop(step, steps):
        raise KeyboardInterrupt

    model.load_state_dict(first)
    with pytest.raises(KeyboardInterrupt):
        fit(model, clusters(), loss="gce", folder=tmp_path / "stopped", watch=stop, **QUICK)
    with pytest.warns(UserWarning, match="already trained by fit"):
        fit(model, clusters(), loss="gce", folder=tmp_path / "after that", **QUICK)
    model.load_state_dict(first)
    fit(model, clusters(), loss="gce", folder=tmp_path / "c", **QUICK)
