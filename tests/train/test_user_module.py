"""Modules that a user passes to `fit` or `Recorder`: what is stored, and when a warning or an error is given."""

from pathlib import Path

import pytest
import torch
from small_runs import QUICK, WithBuffer, clusters, grow_buffer, interrupt_after
from torch import nn

from noisewise import Recorder, fit, models
from noisewise.runs import RunFolder
from noisewise.train._run import is_unmodified
from noisewise.train._user_module import model_digests
from refused import refused, warned

ONCE = {**QUICK, "epochs": 1}


class WithExtraState(nn.Linear):
    """A layer whose state has more than tensors."""

    def get_extra_state(self):
        return {"seen": 3}


UNSUPPORTED = {
    "extra state": (lambda: WithExtraState(8, 3), "'_extra_state'"),
    "sparse": (lambda: WithBuffer(torch.eye(2).to_sparse()), "'state'"),
    "complex128": (lambda: WithBuffer(torch.ones(2, dtype=torch.complex128)), "'state'"),
}


@pytest.mark.parametrize(("build", "name"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_state_that_cannot_be_stored_is_refused(tmp_path, build, name):
    with refused(name):
        fit(build(), clusters(), folder=tmp_path / "run", **ONCE)
    assert not (tmp_path / "run").exists()
    recorder = Recorder(tmp_path / "recorded", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with refused(name):
        recorder.finish(build())
    assert recorder.finish().state == "finished", "it can still be finished without a model"


@pytest.mark.parametrize(
    ("model", "mention"),
    [
        ("mlp", "torch.nn.Module"),
        ({"weight": torch.ones(2)}, "torch.nn.Module"),
        (nn.LazyLinear(2), "'weight'"),
        (nn.Linear(2, 2, device="meta"), "'weight'"),
    ],
    ids=["spec", "dict", "lazy", "meta"],
)
def test_a_recorder_stores_only_modules_with_weights(tmp_path, model, mention):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with refused(mention):
        recorder.finish(model)


def test_the_digest_of_the_initial_weights_does_not_depend_on_their_memory_format():
    model = nn.Conv2d(3, 4, 2)
    model.register_buffer("empty", torch.zeros(0, 3))
    model.register_buffer("number", torch.tensor(3))
    start = model_digests(model)["start"]
    assert model_digests(model.to(memory_format=torch.channels_last))["start"] == start
    with torch.no_grad():
        model.bias[-1] += 1
    assert model_digests(model)["start"] != start


def test_replacing_the_weights_of_another_run_gives_a_warning(tmp_path):
    first, second = nn.Linear(8, 3), nn.Linear(8, 3)
    for model, name in ((first, "first"), (second, "second")):
        fit(model, clusters(), folder=tmp_path / name, **ONCE)
    with warned("second", "Linear"):
        fit(first, clusters(), folder=tmp_path / "second", **ONCE)
    assert torch.equal(first.weight, second.weight)


def test_a_module_does_not_count_as_trained_when_its_folder_was_refused(tmp_path):
    model = nn.Linear(8, 3)
    with RunFolder(tmp_path / "locked").lock(), refused(tmp_path / "locked"):
        fit(model, clusters(), folder=tmp_path / "locked", **ONCE)
    fit(model, clusters(), folder=tmp_path / "free", **ONCE)  # a warning would be an error


def test_only_the_first_process_of_a_run_warns(tmp_path, monkeypatch):
    fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)  # a warning would be an error
    monkeypatch.setenv("RANK", "0")
    with warned("Linear"):
        fit(nn.Linear(8, 3), clusters(), folder=tmp_path / "run", **ONCE)


@pytest.mark.parametrize("step", [7, None], ids=["interrupted", "finished"])
def test_a_module_whose_buffers_changed_their_shape_cannot_be_loaded_again(tmp_path, step):
    def build():
        torch.manual_seed(0)
        return WithBuffer(torch.zeros(1), grow_buffer)

    settings = {**QUICK, "folder": tmp_path / "run"}
    if step is None:
        fit(build(), clusters(), **settings)
    else:
        interrupt_after(step, build(), clusters(), **settings)
    with refused("WithBuffer", tmp_path / "run", "state"):
        fit(build(), clusters(), **settings)


def test_changes_to_a_built_in_model_are_detected():
    """A GPU would run Python code of a changed model only once, when a step is captured."""

    def build():
        return models.get("resnet20", num_classes=3)

    replaced, hooked = build(), build()
    replaced.head = WithExtraState(64, 3)
    hooked.layer1.register_forward_hook(lambda *passed: None)
    assert is_unmodified(build()) and not is_unmodified(replaced) and not is_unmodified(hooked) and not is_unmodified(nn.Linear(8, 3))


def test_a_module_gets_the_weights_of_a_run_that_is_already_finished(tmp_path):
    trained, another = nn.Linear(8, 3), nn.Linear(8, 3)
    fit(trained, clusters(), folder=tmp_path / "run", **QUICK)
    assert not torch.equal(trained.weight, another.weight)
    with warned("Linear") as caught:
        fit(another, clusters(), folder=tmp_path / "run", **QUICK)
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    assert torch.equal(trained.weight, another.weight) and torch.equal(trained.bias, another.bias)
    loaded = nn.Linear(8, 3)
    loaded.load_state_dict(trained.state_dict())
    for known in (trained, another, loaded):  # a warning would be an error
        fit(known, clusters(), folder=tmp_path / "run", **QUICK)
    with warned("fit"):
        fit(another, clusters(), loss="mae", folder=tmp_path / "other", **QUICK)


def test_weights_that_cannot_be_trained_are_refused(tmp_path):
    with refused("'weight'"):
        fit(nn.Linear(8, 3, device="meta"), clusters(), folder=tmp_path / "run", **QUICK)
    sparse = nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten(), nn.Linear(24, 3))
    tokens = (torch.randint(9, (60, 8)), torch.arange(60) % 3)
    sparse.forward = lambda inputs: nn.Sequential.forward(sparse, inputs.long().clamp(0, 8))
    with refused("Sequential", "sparse"):
        fit(sparse, tokens, folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_with_other_frozen_layers_is_refused(tmp_path):
    def layers(frozen):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3))
        model[0].requires_grad_(not frozen)
        return model

    fit(layers(False), clusters(), folder=tmp_path / "run", **QUICK)
    with refused(tmp_path / "run", "frozen"):
        fit(layers(True), clusters(), folder=tmp_path / "run", **QUICK)


def test_training_a_module_again_gives_a_warning_unless_it_was_reset(tmp_path):
    model = nn.Linear(8, 3)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    fit(model, clusters(), folder=tmp_path / "a", **QUICK)
    with warned("fit") as caught:
        fit(model, clusters(), loss="mae", folder=tmp_path / "b", **QUICK)
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    fit(model, clusters(), loss="mae", folder=tmp_path / "b", **QUICK)  # finished: nothing is trained

    def stop(step, steps):
        raise KeyboardInterrupt

    model.load_state_dict(first)
    with pytest.raises(KeyboardInterrupt):
        fit(model, clusters(), loss="gce", folder=tmp_path / "stopped", watch=stop, **QUICK)
    with warned("fit"):
        fit(model, clusters(), loss="gce", folder=tmp_path / "after that", **QUICK)
    model.load_state_dict(first)
    fit(model, clusters(), loss="gce", folder=tmp_path / "c", **QUICK)
