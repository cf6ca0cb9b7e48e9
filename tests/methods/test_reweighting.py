"""Methods that weight examples with the help of trusted ones, against independent computations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import noisewise
from noisewise import losses, methods
from noisewise.data import Dataset
from refused import refused

N, CLASSES = 24, 3


def data(truth: bool = True) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    true = torch.randint(CLASSES, (N,), generator=generator)
    given = torch.where(torch.rand(N, generator=generator) < 0.4, (true + 1) % CLASSES, true)
    inputs = torch.randn(N, 5, generator=generator, dtype=torch.float64) + true.unsqueeze(1)
    return Dataset(inputs, given, tuple("abc"), true_labels=true if truth else None)


def batch_of(rows: torch.Tensor) -> methods.Batch:
    examples = data()
    lr, progress = torch.tensor(0.1), torch.tensor(0.0)
    generator = torch.Generator().manual_seed(7)
    return methods.Batch(rows, examples.labels[rows], examples.inputs[rows], lambda raw: raw, len(rows), lr, progress, generator)


def network(normalised: bool) -> nn.Module:
    torch.manual_seed(1)
    middle = nn.BatchNorm1d(8) if normalised else nn.Identity()
    return nn.Sequential(nn.Linear(5, 8), middle, nn.Tanh(), nn.Linear(8, CLASSES)).double()


def in_double(state: methods.State) -> methods.State:
    return {name: value.double() if value.is_floating_point() else value for name, value in state.items()}


def weights_after_one_step(model: nn.Module, batch: methods.Batch, inputs: torch.Tensor, labels: torch.Tensor, loss: Any) -> torch.Tensor:
    """The normalised positive part of −∂T/∂ε after the step θ − Σ ε_i ∇loss_i, by differentiating through that step."""
    names, weights = zip(*model.named_parameters(), strict=True)
    epsilon = torch.zeros(len(batch.index), dtype=torch.float64, requires_grad=True)
    scores = torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (batch.inputs,))
    gradients = torch.autograd.grad((epsilon * loss(scores, batch.labels)).sum(), weights, create_graph=True)
    moved = {name: weight - gradient for name, weight, gradient in zip(names, weights, gradients, strict=True)}
    trusted = F.cross_entropy(torch.func.functional_call(model, moved, (inputs,)), labels)
    (slope,) = torch.autograd.grad(trusted, epsilon)
    positive = (-slope).clamp(min=0)
    return positive / positive.sum()


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("spec", ["ce", "gce(q=0.7)"])
def test_bilevel_weights_are_the_derivative_of_one_step(spec: str, normalised: bool) -> None:
    method, model, batch = methods.get("bilevel(trusted=9, per_step=9)"), network(normalised), batch_of(torch.arange(4, 20))
    state = in_double(method.start(data(), 3))
    (scores,) = method.scores([model], state, batch)
    (pull,) = method.pulls(methods.LossPull(losses.get(spec)), state, batch, (scores.detach(),))
    expected = weights_after_one_step(model, batch, state["inputs"], state["labels"], losses.get(f"{spec}", reduction="none"))
    assert (expected == 0).any() and (expected > 0).sum() > 2
    ordinary = methods.LossPull(losses.get(spec)).rows(scores.detach(), batch.labels)
    assert ordinary.value is not None and pull.value is not None
    # The engine divides by the size of the batch.
    torch.testing.assert_close(pull.gradient / len(batch.index), expected.unsqueeze(1) * ordinary.gradient, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(pull.value / len(batch.index), expected * ordinary.value, rtol=1e-9, atol=1e-12)


def test_bilevel_updates_running_statistics_once_per_step() -> None:
    method, model, batch = methods.get("bilevel(trusted=9, per_step=4)"), network(True), batch_of(torch.arange(8))
    method.scores([model], in_double(method.start(data(), 0)), batch)
    alone = network(True)
    alone(batch.inputs)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, msg=name)


def test_bilevel_without_a_positive_product_has_no_gradient() -> None:
    method, batch = methods.get("bilevel(trusted=9, per_step=4)"), batch_of(torch.arange(8))
    state = in_double(method.start(data(), 0))
    scores = torch.randn(8, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ce = methods.LossPull(losses.get("ce"))
    state["slopes"][batch.index] = -ce.rows(scores, batch.labels).gradient
    (pull,) = method.pulls(ce, state, batch, (scores,))
    assert torch.equal(pull.gradient, torch.zeros_like(scores))


def test_trusted_examples_have_true_labels_and_follow_from_the_seed() -> None:
    method, examples = methods.get("bilevel(trusted=9, per_step=4)"), data()
    states = [method.start(examples, seed) for seed in (0, 0, 1)]
    assert torch.equal(states[0]["inputs"], states[1]["inputs"]) and not torch.equal(states[0]["inputs"], states[2]["inputs"])
    assert examples.true_labels is not None
    for row, label in zip(states[0]["inputs"], states[0]["labels"], strict=True):
        position = int((examples.inputs == row).all(1).nonzero())
        assert label == examples.true_labels[position]


def test_trusted_examples_are_required(tmp_path: Path) -> None:
    def train(method: str, examples: Dataset) -> None:
        noisewise.fit("linear", examples, method=method, epochs=1, folder=tmp_path / "run", device="cpu")

    with refused("bilevel", "true labels"):
        train("bilevel(trusted=9, per_step=4)", data(truth=False))
    with refused("bilevel", N, 1000):
        train("bilevel", data())
    with refused("per_step", 10, 9):
        train("bilevel(trusted=9, per_step=10)", data())
    assert not (tmp_path / "run").exists()
