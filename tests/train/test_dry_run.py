"""The dry run of a model before anything is written: it accepts every model that can be trained, and does not change it."""

import pytest
import torch
from small_runs import QUICK, WithBuffer, clusters, grow_buffer, same_bits
from torch import nn
from torch.utils.checkpoint import checkpoint

from noisewise import fit
from noisewise.data import load
from noisewise.train import _fit
from noisewise.train._dry_run import check_scores, check_training
from refused import refused

ONCE = {**QUICK, "epochs": 1}


def change_type(model):
    model.state = model.state.double() + 1


@pytest.mark.parametrize(
    ("buffer", "change"),
    [
        (torch.zeros(1), grow_buffer),
        (torch.zeros(2), change_type),
        (torch.zeros(2), lambda model: model.state.add_(1)),
        (torch.full((2,), torch.nan), lambda model: model.state.fill_(1)),
        (torch.zeros(1).expand(3), lambda model: None),
    ],
    ids=["longer", "type", "in place", "nan", "expanded"],
)
def test_a_dry_run_does_not_change_buffers(buffer, change):
    model, inputs = WithBuffer(buffer, change), torch.zeros(2, 8)
    before = buffer.clone()
    for check in (check_scores, check_training):
        check(model, "WithBuffer", inputs, 3)
        assert model.state is buffer
        torch.testing.assert_close(buffer, before, rtol=0, atol=0, equal_nan=True)


def test_a_dry_run_does_not_change_gradients():
    model = nn.Linear(8, 3)
    model.weight.grad = torch.ones(3, 8)
    check_training(model, "Linear", torch.ones(2, 8), 3)
    assert torch.equal(model.weight.grad, torch.ones(3, 8)) and model.bias.grad is None


def test_a_constant_buffer_made_in_inference_mode_is_accepted(tmp_path):
    with torch.inference_mode():
        mask = torch.ones(2)
    assert fit(WithBuffer(mask, persistent=False), clusters(), folder=tmp_path / "run", **ONCE).state == "finished"


class Checkpointed(nn.Module):
    """A model that recomputes a layer in the backward pass, as large models do to save memory."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        middle = self.first(inputs)
        return checkpoint(self.last, middle, use_reentrant=True) if self.training else self.last(middle)


def test_a_model_with_activation_checkpointing_can_be_trained(tmp_path):
    model = Checkpointed()
    before = model.last.weight.detach().clone()
    fit(model, clusters(), folder=tmp_path / "run", **ONCE)
    assert not torch.equal(model.last.weight, before)


def test_a_model_that_reshapes_its_inputs_in_place_can_be_trained(tmp_path):
    class Reshaping(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs.unsqueeze_(1)).squeeze(1)

    assert fit(Reshaping(8, 3), clusters(), folder=tmp_path / "run", normalise=False, **ONCE).state == "finished"


def test_a_model_that_does_not_fit_the_data_is_refused_before_anything_is_written(tmp_path):
    with refused("resnet21"):
        fit("resnet21", clusters(), folder=tmp_path / "run", **QUICK)
    with refused("(N, 3)", "(2, 5)"):
        fit(nn.Linear(8, 5), clusters(), folder=tmp_path / "run", **QUICK)
    with refused("Linear", "(2, 8)", "2x8 and 5x3"):
        fit(nn.Linear(5, 3), clusters(), folder=tmp_path / "run", **QUICK)
    words = (torch.arange(240).reshape(30, 8) % 9, torch.arange(30) % 3)
    with refused("normalise=False"):
        fit(Words(), words, folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    assert fit(Words(), words, folder=tmp_path / "run", normalise=False, **QUICK).state == "finished"


class Words(nn.Module):
    """Takes integers, which a data set stores as float32."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(9, 3)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.vectors(numbers.long()).mean(1)


def with_batch_norm():
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_batches_of_one_example_are_refused_only_for_models_that_cannot_use_them(tmp_path):
    single = {**QUICK, "epochs": 1, "batch_size": 1}
    for settings in (single, {**single, "batch_size": 3, "accumulate": 2}, {**single, "batch_size": 4, "accumulate": 4}):
        with refused("Sequential", "Expected more than 1 value"):
            fit(with_batch_norm(), clusters(6), folder=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
    assert fit("mlp", clusters(6), folder=tmp_path / "mlp", **single).state == "finished"
    assert fit(with_batch_norm(), clusters(6), folder=tmp_path / "two", **{**single, "batch_size": 2}).state == "finished"


def test_a_dry_run_with_one_example_does_not_change_the_run(tmp_path, monkeypatch):
    """Neither the random numbers of dropout nor the running means."""

    def train(folder):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3))
        return fit(model, clusters(6), folder=folder, **{**QUICK, "epochs": 1, "batch_size": 1}).path

    checked = train(tmp_path / "checked")
    monkeypatch.setattr(_fit, "check_training", lambda *arguments: None)
    same_bits(checked, train(tmp_path / "unchecked"))


class DifferentInTraining(nn.Module):
    """A linear model with another forward pass in training."""

    def __init__(self, training_forward):
        super().__init__()
        self.layer, self.training_forward = nn.Linear(8, 3), training_forward

    def forward(self, inputs):
        return self.training_forward(self, inputs) if self.training else self.layer(inputs)


def raise_error(self, inputs):
    raise KeyError("what")


@pytest.mark.parametrize(
    ("training_forward", "mentions"),
    [
        (lambda self, inputs: (self.layer(inputs), None), ["(N, 3)", "tuple"]),
        (raise_error, ["DifferentInTraining", "(2, 8)", "'what'"]),
        (torch.no_grad()(lambda self, inputs: self.layer(inputs)), ["DifferentInTraining", "(2, 8)"]),
    ],
    ids=["tuple", "error", "no gradient"],
)
def test_a_model_that_fails_only_in_training_is_refused_before_anything_is_written(training_forward, mentions, tmp_path):
    with refused(*mentions):
        fit(DifferentInTraining(training_forward), clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["mlp", nn.Sequential(nn.Flatten(), nn.Linear(64, 10))], ids=["built-in", "user module"])
def test_a_model_that_does_not_fit_augmented_images_is_refused_before_anything_is_written(tmp_path, model):
    with refused((2, 1, 6, 6)):
        fit(model, "digits", augment="crop(0, size=6)", folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_model_without_trainable_parameters_is_refused_before_anything_is_written(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).requires_grad_(False)
    with refused("Sequential", "parameters"):
        fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    model[1].requires_grad_(True)
    before = model[0].weight.clone()
    assert fit(model, clusters(), folder=tmp_path / "run", **QUICK).state == "finished" and torch.equal(model[0].weight, before)


class Convolutional(nn.Module):
    """Flattens with a given function, and notes the memory formats of its images."""

    def __init__(self, flatten):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.head, self.flatten, self.channels_last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 10), flatten, set()

    def forward(self, images):
        self.channels_last.add(images.is_contiguous(memory_format=torch.channels_last))
        return self.head(self.flatten(self.convolution(images).relu()))


def test_images_are_channels_last_only_for_modules_that_accept_it(tmp_path):
    digits = load("digits").take(torch.arange(120))
    data = digits.inputs.expand(-1, 3, -1, -1).contiguous(), digits.labels
    flattening, viewing = Convolutional(lambda x: x.flatten(1)), Convolutional(lambda x: x.view(len(x), -1))
    first, second = (fit(module, data, folder=tmp_path / name, **QUICK) for module, name in ((flattening, "flatten"), (viewing, "view")))
    assert flattening.channels_last == {True}
    assert flattening.convolution.weight.is_contiguous(memory_format=torch.channels_last)
    weight = viewing.convolution.weight
    assert weight.is_contiguous() and not weight.is_contiguous(memory_format=torch.channels_last)
    expected = second.predict(data[0], into=viewing)
    torch.testing.assert_close(first.predict(data[0], into=flattening), expected, rtol=1e-3, atol=1e-4)
