"""Joint optimisation of network and labels, against its formulas in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise import losses, methods
from noisewise.data import Dataset
from refused import refused

EXAMPLES, CLASSES = 6, 4
LABELS = torch.tensor([0, 3, 1, 2, 2, 0])
NEVER: Any = None  # the method does not look at scores between epochs


def scores(seed: int) -> torch.Tensor:
    return 2 * torch.randn(EXAMPLES, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start(method: methods.Method) -> methods.State:
    data = Dataset(torch.zeros(EXAMPLES, 2), LABELS, classes=tuple("abcd"))
    return {name: value.double() if value.is_floating_point() else value for name, value in method.start(data, 0).items()}


def pull_of(method: methods.Method, state: methods.State, given: torch.Tensor, loss: str = "ce") -> methods.Pull:
    index = torch.arange(EXAMPLES)
    lr, progress = torch.tensor(0.1), torch.tensor(0.0)
    batch = methods.Batch(index, LABELS, torch.zeros(EXAMPLES, 2), lambda each: each, EXAMPLES, lr, progress, torch.Generator())
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), state, batch, (given,))
    return pull


def regularised(s: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    p = s.softmax(1)
    uniform = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    prior = F.kl_div(p.mean(0).log(), uniform, reduction="sum")
    return alpha * prior - beta * (p * p.log()).sum(1)


def assert_follows(pull: methods.Pull, objective: Any, given: torch.Tensor) -> None:
    leaf = given.clone().requires_grad_()
    values = objective(leaf)
    torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0])
    torch.testing.assert_close(pull.value, values.detach())


def test_the_given_labels_are_used_during_the_warm_up() -> None:
    method = methods.get("joint_optimisation(alpha=1.5, beta=0.6, warm_up=2)")
    state, given = start(method), scores(1)
    method.begin_epoch(state, 2, 9, NEVER)
    pull = pull_of(method, state, given)
    assert_follows(pull, lambda s: F.cross_entropy(s, LABELS, reduction="none") + regularised(s, 1.5, 0.6), given)


def test_the_targets_are_the_mean_of_earlier_predictions() -> None:
    method = methods.get("joint_optimisation(alpha=1.5, beta=0.6, warm_up=3, average=10)")
    state = start(method)
    for epoch in (1, 2, 3):
        method.begin_epoch(state, epoch, 9, NEVER)
        pull_of(method, state, scores(epoch))
    targets = torch.stack([scores(epoch).softmax(1) for epoch in (1, 2, 3)]).mean(0)
    torch.testing.assert_close(state["targets"], targets)
    method.begin_epoch(state, 4, 9, NEVER)
    pull = pull_of(method, state, scores(4))
    assert_follows(pull, lambda s: F.kl_div(s.log_softmax(1), targets, reduction="none").sum(1) + regularised(s, 1.5, 0.6), scores(4))
    torch.testing.assert_close(state["targets"], torch.stack([scores(epoch).softmax(1) for epoch in (1, 2, 3, 4)]).mean(0))


def test_old_predictions_fade_after_the_average_is_full() -> None:
    method = methods.get("joint_optimisation(warm_up=1, average=2)")
    state = start(method)
    for epoch in (1, 2, 3):
        method.begin_epoch(state, epoch, 9, NEVER)
        pull_of(method, state, scores(epoch))
    p = [scores(epoch).softmax(1) for epoch in (1, 2, 3)]
    torch.testing.assert_close(state["targets"], p[0] / 4 + p[1] / 4 + p[2] / 2)


def test_a_class_that_is_never_predicted_gives_a_finite_loss() -> None:
    method = methods.get("joint_optimisation")
    pull = pull_of(
        method, method.start(Dataset(torch.zeros(6, 2), LABELS, classes=tuple("abcd")), 0), 1e4 * F.one_hot(LABELS % 2, 4).float()
    )
    assert pull.gradient.isfinite().all() and pull.value is not None and pull.value.isfinite().all()


def test_a_warm_up_of_no_epochs_is_refused(tmp_path: Path) -> None:
    with refused("warm_up", "[1, inf)", "0"):
        noisewise.fit("linear", (torch.zeros(6, 2), LABELS), method="joint_optimisation(warm_up=0)", epochs=1, folder=tmp_path / "run")
    with refused("joint_optimisation", "whole", "accumulate=2"):
        noisewise.fit("linear", (torch.zeros(6, 2), LABELS), method="joint_optimisation", epochs=1, accumulate=2, folder=tmp_path / "run")


@pytest.mark.parametrize("spec", methods.registry["joint_optimisation"].examples)  # type: ignore[attr-defined]
def test_the_targets_of_a_run_are_probabilities(spec: str, tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    run = noisewise.fit("linear", (inputs, labels), method=spec, epochs=3, batch_size=16, folder=tmp_path, device="cpu")
    assert run.metrics[-1]["train_loss"] > 0
