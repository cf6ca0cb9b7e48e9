"""Methods that mix inputs: what they draw, what the networks see, and the loss of a mixture, against computations by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

import noisewise
from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods._mix import draw_dominant_mixture, symmetric_beta
from refused import refused

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


@pytest.mark.parametrize("a", [0.2, 0.5, 1.0, 4.0, 32.0])
def test_the_drawn_numbers_have_the_beta_distribution(a: float) -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([symmetric_beta(a, generator, torch.device("cpu")) for _ in range(5000)]).numpy()
    assert ((drawn >= 0) & (drawn <= 1)).all()
    # The rounding to 0 and 1 is visible for a small a: the density has poles there.
    assert stats.kstest(drawn.clip(1e-16, 1 - 1e-16), "beta", (a, a)).pvalue > 0.01


def test_the_larger_share_has_the_distribution_of_the_maximum() -> None:
    batch = batch_of()
    drawn = np.array([float(draw_dominant_mixture(batch, 4.0).lam) for _ in range(2000)])
    assert drawn.min() >= 0.5
    assert stats.kstest(drawn, lambda x: 2 * stats.beta.cdf(x, 4, 4) - 1).pvalue > 0.01


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_mixup_trains_on_mixed_inputs_and_labels(loss: str) -> None:
    method, network = methods.get("mixup(alpha=1)"), Seen(1)
    batch = batch_of([4, 0, 3, 1])
    (scores,) = method.scores([network], {}, batch)
    lam, (partner,) = batch.notes["mixture"].lam, batch.notes["mixture"].partners
    assert 0 < lam < 1 and sorted(partner.tolist()) == [0, 1, 2, 3]
    torch.testing.assert_close(network.inputs[0], lam * batch.inputs + (1 - lam) * batch.inputs[partner])
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), {}, batch, (scores.detach(),))

    def objective(s: torch.Tensor) -> torch.Tensor:
        each = losses.get(loss, reduction="none")
        return lam * each(s, batch.labels) + (1 - lam) * each(s, batch.labels[partner])

    assert_follows(pull, objective, scores)
    if loss == "ce":
        targets = lam * one_hot(batch.labels) + (1 - lam) * one_hot(batch.labels[partner])
        assert_follows(pull, lambda s: soft_cross_entropy(s, targets), scores)


def test_mixup_draws_anew_in_every_step() -> None:
    method, network = methods.get("mixup(alpha=1)"), Seen(1)
    batch = batch_of()
    drawn = []
    for _ in range(2):
        method.scores([network], {}, batch)
        mixture = batch.notes["mixture"]
        drawn.append((float(mixture.lam), mixture.partners[0].tolist()))
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


def test_the_record_of_mixup_is_of_the_examples_themselves(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 16, "device": "cpu", "clean_pass": True}
    noisewise.fit("linear", (inputs, labels), method="mixup", folder=tmp_path, **settings)
    for file in (tmp_path / "record" / "clean").iterdir():
        assert (np.load(file) == np.load(tmp_path / "record" / "training" / file.name)).all()


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    given: Any = ("linear", (torch.zeros(6, 2), LABELS))
    with refused("alpha", "(0, inf)", "0"):
        noisewise.fit(*given, method="mixup(alpha=0)", epochs=1, folder=tmp_path / "run")
    with refused("mixup", "whole", "accumulate=2"):
        noisewise.fit(*given, method="mixup", epochs=1, accumulate=2, folder=tmp_path / "run")
