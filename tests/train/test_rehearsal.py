"""Trying a model before anything is written: it refuses no model that can be trained, and leaves no trace in one."""

import pytest
import torch
from test_fit import QUICK, clusters
from torch import nn
from torch.utils.checkpoint import checkpoint

from noisewise import fit
from noisewise.train._rehearsal import check_scores, check_training

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


def first_seen(self):
    self.held = torch.ones(2) if self.held is None else self.held


@pytest.mark.parametrize(
    ("buffer", "change"),
    [
        (torch.zeros(1), longer),
        (torch.zeros(2), of_another_type),
        (None, first_seen),
        (torch.zeros(2), lambda self: self.held.add_(1)),
        (torch.full((2,), torch.nan), lambda self: self.held.fill_(1)),
        (torch.zeros(1).expand(3), lambda self: None),
        (torch.eye(2).to_sparse(), lambda self: self.held.mul_(2)),
    ],
    ids=["longer", "type", "none", "in place", "nan", "expanded", "sparse"],
)
def test_trying_a_model_leaves_its_buffers_as_they_are(buffer, change):
    model, inputs = Held(buffer, change), torch.zeros(2, 8)
    before = None if buffer is None else buffer.clone()
    for trial in (check_scores, check_training):
        trial(model, "Held", inputs, 3)
        assert model.held is buffer
        if buffer is not None:
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
