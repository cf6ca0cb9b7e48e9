"""What methods with their own targets compute, against the formulas of their papers in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from noisewise import losses, methods
from noisewise.data import Dataset

EXAMPLES, CLASSES = 6, 4
LABELS = torch.tensor([0, 3, 1, 2, 2, 0])


def data() -> Dataset:
    return Dataset(torch.arange(2.0 * EXAMPLES).view(EXAMPLES, 2), LABELS, classes=tuple("abcd"))


def scores(seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(EXAMPLES, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch_of(index: list[int] | None = None, progress: float = 0.0, seed: int = 0) -> methods.Batch:
    rows = torch.arange(EXAMPLES) if index is None else torch.tensor(index)
    generator = torch.Generator().manual_seed(seed)
    inputs, lr = data().inputs[rows], torch.tensor(0.1)
    return methods.Batch(rows, LABELS[rows], inputs, lambda each: each, len(rows), lr, torch.tensor(progress), generator)


def pull_of(method: methods.Method, state: methods.State, batch: methods.Batch, given: torch.Tensor, loss: str = "ce") -> methods.Pull:
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), state, batch, (given,))
    return pull


def state_of(method: methods.Method) -> methods.State:
    return {name: value.double() if value.is_floating_point() else value for name, value in method.start(data(), 0).items()}


def one_hot(labels: torch.Tensor = LABELS) -> torch.Tensor:
    return F.one_hot(labels, CLASSES).double()


def gradient_of(objective: Any, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of the sum of an objective, and its values, by autograd."""
    leaf = given.clone().requires_grad_()
    values = objective(leaf)
    return torch.autograd.grad(values.sum(), leaf)[0], values.detach()


def assert_follows(pull: methods.Pull, objective: Any, given: torch.Tensor) -> None:
    gradient, values = gradient_of(objective, given)
    torch.testing.assert_close(pull.gradient, gradient)
    torch.testing.assert_close(pull.value, values)


def test_the_targets_of_elr_follow_their_recursion_over_three_steps() -> None:
    method = methods.get("elr(beta=0.7, lam=3)")
    state, expected = state_of(method), np.zeros((EXAMPLES, CLASSES))
    for step in range(3):
        given = scores(step)
        p = np.exp(given.numpy()) / np.exp(given.numpy()).sum(1, keepdims=True)
        p = p.clip(1e-4, 1 - 1e-4)
        expected = 0.7 * expected + 0.3 * p / p.sum(1, keepdims=True)
        pull = pull_of(method, state, batch_of(), given)
        np.testing.assert_allclose(state["targets"].numpy(), expected, rtol=1e-12)
    targets = torch.tensor(expected)
    assert_follows(
        pull, lambda s: F.cross_entropy(s, LABELS, reduction="none") + 3 * (1 - (s.softmax(1) * targets).sum(1)).log(), scores(2)
    )


@pytest.mark.parametrize("scale", [1, 5, 50])
def test_the_penalty_of_elr_has_no_gradient_where_it_is_clipped(scale: float) -> None:
    method, given = methods.get("elr(beta=0.5, lam=3)"), scale * scores()
    state = state_of(method)
    state["targets"].copy_(scores(1).softmax(1))
    pull = pull_of(method, state, batch_of(), given)
    targets = state["targets"]
    assert ((given.softmax(1) < 1e-4).any()) == (scale > 1)

    def objective(s: torch.Tensor) -> torch.Tensor:
        agreement = (s.softmax(1).clamp(1e-4, 1 - 1e-4) * targets).sum(1)
        return F.cross_entropy(s, LABELS, reduction="none") + 3 * (1 - agreement).log()

    assert_follows(pull, objective, given)


def test_elr_does_not_make_scores_grow_without_end() -> None:
    method = methods.get("elr(beta=0.7, lam=3)")
    state, given = state_of(method), 3 * one_hot()
    for _ in range(1000):
        given = given - pull_of(method, state, batch_of(), given).gradient
    margin = given.gather(1, LABELS[:, None]) - given.masked_fill(one_hot().bool(), -torch.inf).amax(1, keepdim=True)
    assert margin.max() < 20


def test_elr_changes_the_targets_of_its_batch_only() -> None:
    method = methods.get("elr")
    state = state_of(method)
    pull_of(method, state, batch_of([1, 4]), scores()[[1, 4]])
    assert state["targets"].any(1).tolist() == [False, True, False, False, True, False]


def test_hard_bootstrapping_is_cross_entropy_with_a_mixed_target() -> None:
    given = scores()
    target = 0.8 * one_hot() + 0.2 * one_hot(given.argmax(1))
    pull = pull_of(methods.get("bootstrap_hard"), {}, batch_of(), given)
    torch.testing.assert_close(pull.gradient, given.softmax(1) - target)
    torch.testing.assert_close(pull.value, -(target * given.log_softmax(1)).sum(1))


def test_soft_bootstrapping_differentiates_its_target() -> None:
    pull = pull_of(methods.get("bootstrap_soft(beta=0.6)"), {}, batch_of(), scores())
    assert_follows(pull, lambda s: -((0.6 * one_hot() + 0.4 * s.softmax(1)) * s.log_softmax(1)).sum(1), scores())


@pytest.mark.parametrize("name", ["bootstrap_hard", "bootstrap_soft"])
def test_bootstrapping_with_all_weight_on_the_label_is_the_loss(name: str) -> None:
    pull = pull_of(methods.get(f"{name}(beta=1)"), {}, batch_of(), scores(), loss="gce(q=0.7)")
    expected = methods.LossPull(losses.get("gce(q=0.7)")).rows(scores(), LABELS)
    torch.testing.assert_close(pull.gradient, expected.gradient)
    torch.testing.assert_close(pull.value, expected.value)


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.9])
def test_proselflc_trusts_confident_predictions_late(progress: float) -> None:
    given = scores()
    p = given.softmax(1).numpy()
    entropy = -(p * np.log(p)).sum(1)
    epsilon = torch.tensor(1 / (1 + np.exp(-16 * (progress - 0.5))) * (1 - entropy / np.log(CLASSES))).unsqueeze(1)
    pull = pull_of(methods.get("proselflc(B=16)"), {}, batch_of(progress=progress), given)

    def objective(s: torch.Tensor) -> torch.Tensor:
        return -(((1 - epsilon) * one_hot() + epsilon * s.softmax(1)) * s.log_softmax(1)).sum(1)

    gradient, values = gradient_of(objective, given)
    torch.testing.assert_close(pull.gradient, gradient, rtol=1e-5, atol=1e-6)  # the progress is a float32
    torch.testing.assert_close(pull.value, values, rtol=1e-5, atol=1e-6)


def test_sop_moves_its_variables_by_sgd() -> None:
    method = methods.get("sop(lr_u=3, lr_v=5)")
    state = state_of(method)
    assert 0 < state["u"].abs().max() < 1e-6 and 0 < state["v"].abs().max() < 1e-6
    generator = torch.Generator().manual_seed(1)
    for each in state.values():
        each.copy_(0.4 * torch.randn(each.shape, generator=generator))
    index = [4, 0, 3]
    u, v = (state[name][index].clone().requires_grad_() for name in "uv")
    others = {name: state[name][[1, 2, 5]].clone() for name in "uv"}
    given = scores()[index].requires_grad_()
    y, predicted = one_hot(LABELS[index]), one_hot(given.argmax(1))
    q = (given.softmax(1) + u**2 * y - (v**2 * (1 - y)).detach()).clamp(min=1e-4)
    ordinary = -(y * (q / q.sum(1, keepdim=True)).log()).sum(1)
    squared = ((predicted + u**2 * y - v**2 * (1 - y) - y) ** 2).sum(1)
    expected = torch.autograd.grad(ordinary.sum(), given, retain_graph=True)[0]
    slope_u, slope_v = torch.autograd.grad((ordinary + squared).mean(), (u, v))

    pull = pull_of(method, state, batch_of(index), given.detach())
    torch.testing.assert_close(pull.gradient, expected)
    torch.testing.assert_close(pull.value, (ordinary + squared).detach())
    torch.testing.assert_close(state["u"][index], u.detach() - 3 * slope_u)
    torch.testing.assert_close(state["v"][index], v.detach() - 5 * slope_v)
    assert all(torch.equal(state[name][[1, 2, 5]], rows) for name, rows in others.items())


def test_sop_explains_labels_that_the_network_contradicts() -> None:
    method = methods.get("sop")
    state, given = state_of(method), 5 * one_hot()
    given[0] = 5 * one_hot(torch.tensor(2))  # the network contradicts the label of the first example only
    pulls = [pull_of(method, state, batch_of(), given) for _ in range(60)]
    first, last = (pull.gradient.abs().sum(1) for pull in (pulls[0], pulls[-1]))
    assert last[0] < 0.5 * first[0]
    assert state["u"].square()[0] > 0.9 > 0.1 > state["u"].square()[1:].max()
