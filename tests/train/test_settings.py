"""The settings of a run: given as specs or as objects, stored as specs, and checked."""

import json

import numpy as np
import pytest
import torch
from small_runs import QUICK, clusters, same_bits
from torch import nn

from noisewise import fit, losses
from noisewise.data import augmentations
from noisewise.noise import registry as noises
from noisewise.train import make_settings
from noisewise.train._optimisers import optimisers, schedules
from refused import refused

ASKED = {"data": "arrays", "model": "mlp", "epochs": 1}
OBJECTS = {
    "loss": (losses.registry, "0.3*gce(q=0.5) + 0.7*mae"),
    "noise": (noises, "symmetric(0.2, flips='exact') + pair(0.1)"),
    "optimiser": (optimisers, "sgd(lr=0.05, momentum=0.8)"),
    "schedule": (schedules, "multistep((0.5, 0.75), factor=0.2)"),
    "augment": (augmentations, "crop(2) + flip"),
}


def test_objects_train_like_their_specs(tmp_path):
    specs = {name: spec for name, (_, spec) in OBJECTS.items()}
    pictures = torch.randint(256, (100, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 3
    fit("mlp", pictures, folder=tmp_path / "specs", **{**QUICK, **specs})
    for name in ("objects", "objects"):  # the second call returns the run of the first
        objects = {setting: registry.get(spec) for setting, (registry, spec) in OBJECTS.items()}
        run = fit("mlp", pictures, folder=tmp_path / name, **{**QUICK, **objects})
    same_bits(tmp_path / "specs", tmp_path / "objects")
    written = json.loads((tmp_path / "objects/settings.json").read_text())
    assert {setting: written[setting] for setting in objects} == {setting: repr(value) for setting, value in objects.items()}
    assert run.settings.loss == repr(objects["loss"])


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_may_be_given_as_an_object(name):
    for spec in losses.registry[name].examples or (name,):
        if not losses.get(spec).of_classes:
            with refused("binary("):
                make_settings({**ASKED, "loss": spec})
            continue
        asked = make_settings({**ASKED, "loss": losses.get(spec)})
        assert repr(losses.get(asked.loss)) == repr(losses.get(spec))


def test_class_weights_are_stored_exactly():
    weight = torch.tensor([0.1, 0.2, 0.7])
    assert torch.equal(losses.get(make_settings({**ASKED, "loss": losses.get("ce", weight=weight)}).loss).weight, weight)


class Nameless(losses.MarginLoss):
    def value(self, d):
        return -d


class CE(losses.MarginLoss):  # has the name of a built-in loss
    def value(self, d):
        return -d


class Flip(type(augmentations.get("flip"))):
    pass


WITHOUT_SPEC = {
    "no name": {"loss": Nameless()},
    "another's name": {"loss": CE()},
    "another's name in a sum": {"loss": CE() + losses.get("mae")},
    "another's name in a chain": {"augment": augmentations.get("crop(2)") + Flip()},
    "weights that are rounded": {"loss": losses.get("ce", weight=torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64))},
}


@pytest.mark.parametrize("case", WITHOUT_SPEC)
def test_an_object_that_no_spec_expresses_is_refused_before_anything_is_written(tmp_path, case):
    ((_, given),) = WITHOUT_SPEC[case].items()
    with refused(repr(given), "name="):
        fit("mlp", clusters(), folder=tmp_path / "run", **QUICK, **WITHOUT_SPEC[case])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("loss", nn.CrossEntropyLoss()),
        ("loss", None),
        ("noise", 0.4),
        ("loss", noises.get("symmetric(0.2)")),
        ("optimiser", torch.optim.SGD),
    ],
)
def test_an_object_of_another_kind_is_refused(setting, given):
    with refused(f"'{setting}'", f"Got {given!r}"):
        make_settings({**ASKED, setting: given})


@pytest.mark.parametrize(
    ("setting", "given", "bounds"),
    [
        ("clip", 0, "(0, inf)"),  # would learn nothing
        ("clip", float("inf"), "(0, inf)"),
        ("weight_decay", -1e-4, "[0, inf)"),
        ("validation", 1, "[0, 1)"),
        ("validation", float("nan"), "[0, 1)"),
    ],
)
def test_a_number_out_of_bounds_is_refused(setting, given, bounds):
    with refused(f"'{setting}'", bounds, f"Got {given!r}"):
        make_settings({**ASKED, setting: given})
    make_settings({**ASKED, "clip": 1e-9, "weight_decay": 0, "validation": 0})


def test_numpy_numbers_and_torch_devices_are_stored_as_plain_values(tmp_path):
    given = {"seed": np.arange(5)[3], "weight_decay": np.float64(0.1), "normalise": np.bool_(False), "device": torch.device("cpu")}
    plain = {"seed": 3, "weight_decay": 0.1, "normalise": False, "device": "cpu"}
    for asked in (given, plain):  # the second call returns the run of the first
        run = fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, **asked})
    written = json.loads((tmp_path / "run/settings.json").read_text())
    assert {name: written[name] for name in plain} == plain and run.settings.seed == 3


@pytest.mark.parametrize("device", ["meta", "mps", "gpu", 0.5])
def test_an_unsupported_device_is_refused(device):
    with refused("'device'", "auto", "cpu", "cuda", f"Got {device!r}"):
        make_settings({**ASKED, "device": device})


def test_a_missing_gpu_is_refused():
    with refused("'device'", "Got 'cuda:99'"):
        make_settings({**ASKED, "device": "cuda:99"})
