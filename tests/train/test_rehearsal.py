"""Trying a model before anything is written: it refuses no model that can be trained, and leaves no trace in one."""

import pytest
import torch
from test_fit import QUICK, clusters, same_bits
from torch import nn
from torch.utils.checkpoint import checkpoint

from noisewise import InputError, fit
from noisewise.data import load
from noisewise.train import _fit
from noisewise.train._dry_run import check_scores, check_training

ONCE = {**QUICK, "epochs": 1}


class Held(nn.Module):
    """Linear scores beside a buffer, to which something is done in every forward pass."""

    def __init__(self, buffer, change=lambda self: None, **how):
        super().__init__()
        self.layer, self.change = nn.Linear(8, 3), change
        self.register_buffer("held", buffer, **how)

    def forward(self, inputs):
        self.change(self)
        return self.layer(inputs)


def longer(self):
    self.held = torch.cat([self.held, torch.ones(1)])


def of_another_type(self):
    self.held = self.held.double() + 1


@pytest.mark.parametrize(
    ("buffer", "change"),
    [
        (torch.zeros(1), longer),
        (torch.zeros(2), of_another_type),
        (torch.zeros(2), lambda self: self.held.add_(1)),
        (torch.full((2,), torch.nan), lambda self: self.held.fill_(1)),
        (torch.zeros(1).expand(3), lambda self: None),
    ],
    ids=["longer", "type", "in place", "nan", "expanded"],
)
def test_trying_a_model_leaves_its_buffers_as_they_are(buffer, change):
    model, inputs = Held(buffer, change), torch.zeros(2, 8)
    before = buffer.clone()
    for trial in (check_scores, check_training):
        trial(model, "Held", inputs, 3)
        assert model.held is buffer
        torch.testing.assert_close(buffer, before, rtol=0, atol=0, equal_nan=True)


def test_trying_a_model_leaves_the_gradients_of_the_caller_as_they_are():
    model = nn.Linear(8, 3)
    model.weight.grad = torch.ones(3, 8)
    check_training(model, "Linear", torch.ones(2, 8), 3)
    assert torch.equal(model.weight.grad, torch.ones(3, 8)) and model.bias.grad is None


def test_a_buffer_made_under_inference_mode_that_nobody_writes_to_can_stay(tmp_path):
    with torch.inference_mode():
        mask = torch.ones(2)
    assert fit(Held(mask, persistent=False), clusters(), folder=tmp_path / "run", **ONCE).state == "finished"


class Checkpointed(nn.Module):
    """A model that computes its middle again in the backward pass, as large ones do to save memory."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        middle = self.first(inputs)
        return checkpoint(self.last, middle, use_reentrant=True) if self.training else self.last(middle)


def test_a_model_with_checkpoints_within_can_be_trained(tmp_path):
    model = Checkpointed()
    before = model.last.weight.detach().clone()
    fit(model, clusters(), folder=tmp_path / "run", **ONCE)
    assert not torch.equal(model.last.weight, before)


def test_a_model_that_reshapes_its_inputs_in_place_is_tried_with_them_as_they_are(tmp_path):
    class Reshaping(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs.unsqueeze_(1)).squeeze(1)

    assert fit(Reshaping(8, 3), clusters(), folder=tmp_path / "run", normalise=False, **ONCE).state == "finished"


def test_a_model_that_cannot_be_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="There is no model named 'resnet21'"):
        fit("resnet21", clusters(), folder=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match=r"The model must give scores shaped \(N, 3\), one per class. Got \(2, 5\)"):
        fit(nn.Linear(8, 5), clusters(), folder=tmp_path / "run", **QUICK)
    reason = r"shaped \(2, 8\): mat1 and mat2 shapes cannot be multiplied \(2x8 and 5x3\)\. Give a model that takes such inputs"
    with pytest.raises(InputError, match=f"The model Linear cannot score inputs {reason}"):
        fit(nn.Linear(5, 3), clusters(), folder=tmp_path / "run", **QUICK)
    words = (torch.arange(240).reshape(30, 8) % 9, torch.arange(30) % 3)
    with pytest.raises(InputError, match="normalise=False"):
        fit(Words(), words, folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    assert fit(Words(), words, folder=tmp_path / "run", normalise=False, **QUICK).state == "finished"


class Words(nn.Module):
    """Takes examples of integers, as every data set holds them: as float32."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(9, 3)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.vectors(numbers.long()).mean(1)


def normalising():
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_batches_of_one_are_refused_only_to_a_model_that_cannot_take_them(tmp_path):
    alone = {**QUICK, "epochs": 1, "batch_size": 1}
    sentence = r"The model Sequential cannot be trained on batches of one example: Expected more than 1 value .*\. Give larger batches"
    for parts in (alone, {**alone, "batch_size": 3, "accumulate": 2}, {**alone, "batch_size": 4, "accumulate": 4}):
        with pytest.raises(InputError, match=sentence):
            fit(normalising(), clusters(6), folder=tmp_path / "run", **parts)
    assert not (tmp_path / "run").exists()
    assert fit("mlp", clusters(6), folder=tmp_path / "mlp", **alone).state == "finished"
    assert fit(normalising(), clusters(6), folder=tmp_path / "two", **{**alone, "batch_size": 2}).state == "finished"


def test_trying_a_batch_of_one_leaves_no_trace(tmp_path, monkeypatch):
    """A run in batches of one is the run it would be if nothing had been tried: dropout and running means are as ever."""

    def trained(folder):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3))
        return fit(model, clusters(6), folder=folder, **{**QUICK, "epochs": 1, "batch_size": 1}).path

    tried = trained(tmp_path / "tried")
    monkeypatch.setattr(_fit, "check_training", lambda *asked: None)
    same_bits(tried, trained(tmp_path / "untried"))


class Other(nn.Module):
    """A model that is another one in training."""

    def __init__(self, training):
        super().__init__()
        self.layer, self.in_training = nn.Linear(8, 3), training

    def forward(self, inputs):
        return self.in_training(self, inputs) if self.training else self.layer(inputs)


def fails(self, inputs):
    raise KeyError("what")


@pytest.mark.parametrize(
    ("training", "sentence"),
    [
        (lambda self, inputs: (self.layer(inputs), None), r"The model must give scores shaped \(N, 3\), one per class. Got tuple"),
        (fails, r"The model Other cannot be trained on inputs shaped \(2, 8\): 'what'\."),
        (torch.no_grad()(lambda self, inputs: self.layer(inputs)), r"cannot be trained on inputs shaped \(2, 8\): element 0 of tensors"),
    ],
    ids=["tuple", "error", "no gradient"],
)
def test_a_model_that_fails_in_training_alone_is_refused_before_anything_is_written(training, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        fit(Other(training), clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["mlp", nn.Sequential(nn.Flatten(), nn.Linear(64, 10))], ids=["ours", "one's own"])
def test_a_model_that_cannot_take_what_the_augmentation_makes_is_refused_before_anything_is_written(tmp_path, model):
    with pytest.raises(InputError, match=r"\(2, 1, 6, 6\)"):
        fit(model, "digits", augment="crop(0, size=6)", folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_frozen_as_a_whole_is_refused_before_anything_is_written(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).requires_grad_(False)
    with pytest.raises(InputError, match="The model Sequential has no parameters to train"):
        fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    model[1].requires_grad_(True)
    before = model[0].weight.clone()
    assert fit(model, clusters(), folder=tmp_path / "run", **QUICK).state == "finished" and torch.equal(model[0].weight, before)


class Convolutional(nn.Module):
    """Flattens with a function of its choice, and remembers in which memory order it was given images."""

    def __init__(self, flatten):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.head, self.flatten, self.channels_last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 10), flatten, set()

    def forward(self, images):
        self.channels_last.add(images.is_contiguous(memory_format=torch.channels_last))
        return self.head(self.flatten(self.convolution(images).relu()))


def test_images_lie_channels_last_in_memory_for_a_module_that_takes_them_so_and_for_one_that_does_not_they_do_not(tmp_path):
    digits = load("digits").take(torch.arange(120))
    data = digits.inputs.expand(-1, 3, -1, -1).contiguous(), digits.labels
    either, one = Convolutional(lambda x: x.flatten(1)), Convolutional(lambda x: x.view(len(x), -1))
    runs = [fit(module, data, folder=tmp_path / name, **QUICK) for module, name in ((either, "either"), (one, "one"))]
    assert either.channels_last == {True}
    assert either.convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert one.convolution.weight.is_contiguous() and not one.convolution.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(runs[0].predict(data[0], into=either), runs[1].predict(data[0], into=one), rtol=1e-3, atol=1e-4)
