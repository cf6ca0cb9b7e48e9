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
from noisewise.methods.mentornet_dd import mentor
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


def mentored(burn_in: float = 0.2, again: float = 0.6) -> tuple[methods.Method, methods.State]:
    """MentorNet with trusted examples whose losses are large where the label is wrong."""
    method = methods.get(f"mentornet_dd(trusted=18, burn_in={burn_in}, again={again})")
    state = method.start(data(), 0)
    wrong = data().wrong
    assert wrong is not None
    state["losses"].copy_(torch.where(wrong, 3.0, 0.2) + 0.02 * torch.arange(N))
    state["differences"].copy_(state["losses"] - 1)
    return method, state


def test_mentornet_encodes_losses_with_a_bidirectional_lstm() -> None:
    _, state = mentored()
    losses_, differences = torch.rand(2, N, generator=torch.Generator().manual_seed(4))
    lstm = nn.LSTM(2, 1, bidirectional=True, batch_first=True)
    for direction, suffix in enumerate(("", "_reverse")):
        enter, new, leave = (2 * gate + direction for gate in range(3))
        for name, value in (("weight_ih", state["gates"]), ("bias_ih", state["gate_biases"])):
            getattr(lstm, f"{name}_l0{suffix}").data.copy_(torch.stack([value[enter], 9 * value[enter], value[new], value[leave]]))
        getattr(lstm, f"bias_hh_l0{suffix}").data.zero_()
    encoded = lstm(torch.stack([losses_, differences], 1).unsqueeze(1))[0].squeeze(1)
    percentage = state["epoch_embedding"][42].expand(N, -1)
    features = torch.cat([state["label_embedding"][data().labels], percentage, encoded], 1)
    expected = torch.tanh(features @ state["hidden"].T + state["hidden_biases"]) @ state["output"] + state["output_bias"]
    state["percentage"].fill_(42)
    torch.testing.assert_close(mentor(state, losses_, differences, data().labels), expected)


def test_mentornet_learns_from_trusted_examples_which_labels_are_right() -> None:
    method, state = mentored()
    untrained = {name: value.clone() for name, value in state.items()}
    method.begin_epoch(state, 3, 10, None)  # type: ignore[arg-type]
    assert torch.equal(state["epoch_embedding"], untrained["epoch_embedding"]) and int(state["percentage"]) == 20
    v = mentor(state, state["losses"], state["differences"], data().labels).sigmoid()
    wrong = data().wrong
    assert wrong is not None and bool(wrong.any())
    assert float(v[wrong].max()) < 0.1 and float(v[~wrong].min()) > 0.9, "also for examples that are not trusted"


@pytest.mark.parametrize(("epoch", "trained", "burning_in"), [(1, False, True), (2, False, True), (3, True, False), (4, False, False)])
def test_mentornet_is_trained_after_the_burn_in(epoch: int, trained: bool, burning_in: bool) -> None:
    method, state = mentored()
    before = state["hidden"].clone()
    method.begin_epoch(state, epoch, 10, None)  # type: ignore[arg-type]
    assert torch.equal(state["hidden"], before) is not trained
    assert bool(state["burning_in"]) is burning_in


def test_mentornet_is_trained_a_second_time() -> None:
    trained = []
    for epoch in range(1, 11):
        method, state = mentored()
        before = state["hidden"].clone()
        method.begin_epoch(state, epoch, 10, None)  # type: ignore[arg-type]
        trained += [] if torch.equal(state["hidden"], before) else [epoch]
    assert trained == [3, 7]


@pytest.mark.parametrize("epoch", [1, 3])
def test_mentornet_weights_the_loss(epoch: int) -> None:
    method, state = mentored()
    method.begin_epoch(state, epoch, 10, None)  # type: ignore[arg-type]
    batch = batch_of(torch.arange(4, 20))
    scores = 2 * torch.randn(16, CLASSES, generator=torch.Generator().manual_seed(6))
    (pull,) = method.pulls(methods.LossPull(losses.get("ce")), state, batch, (scores,))
    loss = F.cross_entropy(scores, batch.labels, reduction="none")
    difference = loss - torch.quantile(loss, 0.7)
    torch.testing.assert_close(state["losses"][4:20], loss)
    torch.testing.assert_close(state["differences"][4:20], difference)
    v = torch.ones(16) if epoch == 1 else mentor(state, loss, difference, batch.labels).sigmoid()
    assert pull.value is not None
    torch.testing.assert_close(pull.value, v * loss * 16 / v.sum().clamp(min=1), rtol=1e-4, atol=1e-6)


def test_mentornet_needs_trusted_examples(tmp_path: Path) -> None:
    for examples, mention in ((data(truth=False), "true labels"), (data(), 5000)):
        with refused("mentornet_dd", mention):
            noisewise.fit("linear", examples, method="mentornet_dd", epochs=1, folder=tmp_path / "run", device="cpu")
