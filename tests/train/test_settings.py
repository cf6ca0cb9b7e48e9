"""What a run is asked to do may be given as objects; the folder holds the specs that say the same."""

import json

import numpy as np
import pytest
import torch
from small_runs import QUICK, clusters, same_bits
from torch import nn

from noisewise import InputError, fit, losses
from noisewise.data import augmentations
from noisewise.noise import registry as noises
from noisewise.train import make_settings
from noisewise.train._optimisers import optimisers, schedules

ASKED = {"data": "arrays", "model": "mlp", "epochs": 1}
OBJECTS = {
    "loss": (losses.registry, "0.3*gce(q=0.5) + 0.7*mae"),
    "noise": (noises, "symmetric(0.2, flips='exact') + pair(0.1)"),
    "optimiser": (optimisers, "sgd(lr=0.05, momentum=0.8)"),
    "schedule": (schedules, "multistep((0.5, 0.75), factor=0.2)"),
    "augment": (augmentations, "crop(2) + flip"),
}


def test_objects_train_as_the_specs_that_name_them_do(tmp_path):
    specs = {name: spec for name, (_, spec) in OBJECTS.items()}
    pictures = torch.randint(256, (100, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 3
    fit("mlp", pictures, folder=tmp_path / "specs", **{**QUICK, **specs})
    for name in ("objects", "objects"):  # given again, it finds its run
        objects = {setting: registry.get(spec) for setting, (registry, spec) in OBJECTS.items()}
        run = fit("mlp", pictures, folder=tmp_path / name, **{**QUICK, **objects})
    same_bits(tmp_path / "specs", tmp_path / "objects")
    written = json.loads((tmp_path / "objects/settings.json").read_text())
    assert {setting: written[setting] for setting in objects} == {setting: repr(value) for setting, value in objects.items()}
    assert run.settings.loss == repr(objects["loss"])


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_is_taken_as_an_object(name):
    for spec in losses.registry[name].examples or (name,):
        if not losses.get(spec).of_classes:
            with pytest.raises(InputError, match=r"Got binary\("):
                make_settings({**ASKED, "loss": spec})
            continue
        asked = make_settings({**ASKED, "loss": losses.get(spec)})
        assert repr(losses.get(asked.loss)) == repr(losses.get(spec))


def test_class_weights_are_written_down_to_the_last_bit():
    weight = torch.tensor([0.1, 0.2, 0.7])
    assert torch.equal(losses.get(make_settings({**ASKED, "loss": losses.get("ce", weight=weight)}).loss).weight, weight)


class Nameless(losses.MarginLoss):
    def value(self, d):
        return -d


class CE(losses.MarginLoss):  # called like a known one, and another
    def value(self, d):
        return -d


class Flip(type(augmentations.get("flip"))):
    pass


UNSAID = {
    "no name": {"loss": Nameless()},
    "another's name": {"loss": CE()},
    "another's name in a sum": {"loss": CE() + losses.get("mae")},
    "another's name in a chain": {"augment": augmentations.get("crop(2)") + Flip()},
    "weights that are rounded": {"loss": losses.get("ce", weight=torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64))},
}


@pytest.mark.parametrize("what", UNSAID)
def test_an_object_that_no_spec_says_is_refused_before_anything_is_written(tmp_path, what):
    with pytest.raises(InputError, match=r"no spec expresses the (loss|augmentation) "):
        fit("mlp", clusters(), folder=tmp_path / "run", **QUICK, **UNSAID[what])
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
    with pytest.raises(InputError, match=f"The '{setting}' parameter of a run must be the spec of a known {setting}"):
        make_settings({**ASKED, setting: given})


@pytest.mark.parametrize(
    ("setting", "given", "bounds"),
    [
        ("clip", 0, "(0, inf)"),  # which would learn nothing
        ("clip", float("inf"), "(0, inf)"),
        ("weight_decay", -1e-4, "[0, inf)"),
        ("validation", 1, "[0, 1)"),
        ("validation", float("nan"), "[0, 1)"),
    ],
)
def test_a_number_out_of_bounds_is_refused(setting, given, bounds):
    with pytest.raises(InputError) as caught:
        make_settings({**ASKED, setting: given})
    assert str(caught.value) == f"The '{setting}' parameter of a run must be in {bounds}. Got {given!r} instead."
    make_settings({**ASKED, "clip": 1e-9, "weight_decay": 0, "validation": 0})


def test_numbers_of_numpy_and_devices_of_torch_are_the_plain_values_they_are(tmp_path):
    given = {"seed": np.arange(5)[3], "weight_decay": np.float64(0.1), "normalise": np.bool_(False), "device": torch.device("cpu")}
    plain = {"seed": 3, "weight_decay": 0.1, "normalise": False, "device": "cpu"}
    for asked in (given, plain):  # the second finds the run of the first
        run = fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, **asked})
    written = json.loads((tmp_path / "run/settings.json").read_text())
    assert {name: written[name] for name in plain} == plain and run.settings.seed == 3


@pytest.mark.parametrize("device", ["meta", "mps", "gpu", 0.5])
def test_a_device_that_nothing_trains_on_is_refused(device):
    with pytest.raises(InputError, match=r"The 'device' parameter of a run must be auto, cpu, cuda or cuda:0\. Got "):
        make_settings({**ASKED, "device": device})


def test_a_gpu_this_machine_has_not_is_refused():
    with pytest.raises(InputError, match=r"The 'device' parameter of a run .*Got 'cuda:99'"):
        make_settings({**ASKED, "device": "cuda:99"})
