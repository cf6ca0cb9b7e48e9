"""A small batch and networks that remember their inputs, for tests of methods that mix inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from noisewise import losses, methods
from noisewise.data import Dataset

EXAMPLES, CLASSES = 6, 4
LABELS = torch.tensor([0, 3, 1, 2, 2, 0])
INPUTS = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
CE = methods.LossPull(losses.get("ce"))


class Seen(torch.nn.Module):
    """A linear network that remembers its inputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        weight = torch.randn(CLASSES, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.weight = torch.nn.Parameter(weight)
        self.inputs: list[torch.Tensor] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.inputs.append(inputs)
        return inputs @ self.weight.T


def batch_of(index: list[int] | None = None, seed: int = 0) -> methods.Batch:
    rows = torch.arange(EXAMPLES) if index is None else torch.tensor(index)
    generator = torch.Generator().manual_seed(seed)
    lr, progress = torch.tensor(0.1), torch.tensor(0.0)
    return methods.Batch(rows, LABELS[rows], INPUTS[rows], lambda each: each, len(rows), lr, progress, generator)


def start(method: methods.Method) -> methods.State:
    """The first state of a method, in float64."""
    data = Dataset(INPUTS, LABELS, classes=tuple("abcd"))
    return {name: value.double() if value.is_floating_point() else value for name, value in method.start(data, 0).items()}


def one_hot(labels: torch.Tensor) -> torch.Tensor:
    return F.one_hot(labels, CLASSES).double()


def soft_cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(targets * scores.log_softmax(1)).sum(1)


def assert_follows(pull: methods.Pull, objective: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor) -> None:
    leaf = given.detach().clone().requires_grad_()
    values = objective(leaf)
    torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0])
    torch.testing.assert_close(pull.value, values.detach())
