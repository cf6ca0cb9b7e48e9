"""One small batch for the tests of methods in float64: its labels, scores and state, and what a method does with it."""

from __future__ import annotations

from typing import Any

import torch

from noisewise import losses, methods
from noisewise.data import Dataset

LABELS = torch.tensor([0, 2, 1, 2, 0, 1, 1])
N, CLASSES = len(LABELS), 3


def scores(seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(N, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(labels: torch.Tensor = LABELS) -> Dataset:
    return Dataset(torch.zeros(len(labels), 2), labels, classes=tuple("abc"))


def batch(labels: torch.Tensor = LABELS, lr: float = 0.1) -> methods.Batch:
    index = torch.arange(len(labels))
    rate = torch.tensor(lr, dtype=torch.float64)
    inputs = torch.zeros(len(labels), 2)
    return methods.Batch(index, labels, inputs, lambda each: each, len(labels), rate, torch.tensor(0.0), torch.Generator())


def state_of(method: methods.Method, labels: torch.Tensor = LABELS) -> methods.State:
    return {name: value.double() if value.is_floating_point() else value for name, value in method.start(data(labels), 0).items()}


def scored(each: torch.Tensor) -> methods.Scored:
    return methods.Scored(lambda network: each, lambda index: each[index], torch.Generator())


def never_scored() -> Any:
    def fail(_: Any) -> Any:
        raise AssertionError("the training set must not be scored in this epoch")

    return methods.Scored(fail, fail, torch.Generator())


def pull_of(
    method: methods.Method, state: methods.State, given: torch.Tensor, loss: str = "ce", of: methods.Batch | None = None
) -> methods.Pull:
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), state, of or batch(), (given,))
    return pull


def assert_follows(pull: methods.Pull, objective: Any, given: torch.Tensor) -> None:
    leaf = given.clone().requires_grad_()
    values = objective(leaf)
    torch.testing.assert_close(pull.value, values.detach())
    torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0])
