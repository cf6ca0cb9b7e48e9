"""ELR+: its targets, losses and weight averages, against computations by hand in float64."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import noisewise
from mixed_batch import CE, EXAMPLES, INPUTS, LABELS, Seen, assert_follows, batch_of, start
from noisewise import losses, methods
from refused import refused

SPEC = "elr_plus(beta=0.8, lam=2, gamma=0.9, ramp=0.5)"


def four() -> list[Seen]:
    """The two networks, and the weight average of each."""
    return [Seen(seed) for seed in (1, 2, 3, 4)]


def batch_at(progress: float, index: list[int] | None = None, seed: int = 0) -> methods.Batch:
    """A batch at this share of the training, in float64 like everything else here."""
    return dataclasses.replace(batch_of(index, seed), progress=torch.tensor(progress, dtype=torch.float64))


def step(method: methods.Method, state: methods.State, networks: list[Seen], batch: methods.Batch) -> tuple[methods.Pull, ...]:
    scores = tuple(each.detach() for each in method.scores(networks, state, batch))
    return method.pulls(CE, state, batch, scores)


def softmax(network: Seen, rows: list[int]) -> np.ndarray:
    scores = (INPUTS[rows] @ network.weight.detach().T).numpy()
    return np.exp(scores) / np.exp(scores).sum(1, keepdims=True)


def test_the_targets_follow_the_weight_average_of_the_other_network() -> None:
    method, networks = methods.get(SPEC), four()
    state = start(method)
    expected = {name: np.zeros((EXAMPLES, 4)) for name in ("targets_1", "targets_2")}
    for number, rows in enumerate([[0, 1, 2, 3, 4, 5], [5, 2, 0], [1, 5]]):
        with torch.no_grad():
            for network in networks:
                network.weight.add_(0.3 * number)[0].neg_()
        step(method, state, networks, batch_of(rows, seed=number))
        for name, other in (("targets_1", networks[3]), ("targets_2", networks[2])):
            expected[name][rows] = 0.8 * expected[name][rows] + 0.2 * softmax(other, rows)
            np.testing.assert_allclose(state[name].numpy(), expected[name], rtol=1e-12)


def test_the_averages_see_the_examples_and_the_networks_see_mixtures() -> None:
    method, networks, batch = methods.get(SPEC), four(), batch_of()
    scores = method.scores(networks, start(method), batch)
    assert [each.requires_grad for each in scores] == [True, True]
    assert not any(each.requires_grad for each in batch.notes["teachers"])
    for average in networks[2:]:
        torch.testing.assert_close(average.inputs, [INPUTS])
    first, second = batch.notes["mixtures"]
    assert first.lam != second.lam and min(first.lam, second.lam) >= 0.5
    for network, mixture, mine in zip(networks[:2], (first, second), scores, strict=True):
        mixed = mixture.lam * INPUTS + (1 - mixture.lam) * INPUTS[mixture.partners[0]]
        torch.testing.assert_close(network.inputs, [mixed])
        torch.testing.assert_close(mine, mixed @ network.weight.T)


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
@pytest.mark.parametrize(("lam_ramp", "progress", "strength"), [(0, 0.0, 2.0), (0.5, 0.25, 2 * math.exp(-1.25)), (0.5, 0.75, 2.0)])
def test_the_pull_is_the_gradient_of_the_formula(loss: str, lam_ramp: float, progress: float, strength: float) -> None:
    method, networks, batch = methods.get(f"elr_plus(beta=0.8, lam=2, lam_ramp={lam_ramp})"), four(), batch_at(progress, [4, 0, 3, 1])
    state = start(method)
    for name in ("targets_1", "targets_2"):
        state[name].copy_(torch.rand(EXAMPLES, 4, generator=torch.Generator().manual_seed(9)).softmax(1))
    scores = tuple(each.detach() for each in method.scores(networks, state, batch))
    assert all(((p > 1e-4) & (p < 1 - 1e-4)).all() for p in (each.softmax(1) for each in scores))  # nothing is clipped
    pulls = method.pulls(methods.LossPull(losses.get(loss)), state, batch, scores)
    each = losses.get(loss, reduction="none")
    for pull, given, mixture, name in zip(pulls, scores, batch.notes["mixtures"], ("targets_1", "targets_2"), strict=True):
        share, (partner,) = mixture.lam, mixture.partners
        targets = state[name][batch.index]
        targets = share * targets + (1 - share) * targets[partner]

        def objective(s: torch.Tensor, share: Any = share, partner: Any = partner, targets: Any = targets) -> torch.Tensor:
            ordinary = share * each(s, batch.labels) + (1 - share) * each(s, batch.labels[partner])
            return ordinary + strength * (1 - (s.softmax(1) * targets).sum(1)).log()

        assert_follows(pull, objective, given)


@pytest.mark.parametrize("scale", [3, 10, 1000])
def test_clipped_predictions_have_a_finite_penalty_without_a_gradient(scale: float) -> None:
    networks = four()
    with torch.no_grad():
        for network in networks:
            network.weight.copy_(scale * networks[0].weight)  # at the largest scale, targets and predictions have one class
    with_penalty, without = ("elr_plus(beta=0, lam=1)", "elr_plus(beta=0, lam=0)")
    method, batch = methods.get(with_penalty), batch_of()
    state = start(method)
    scores = tuple(each.detach() for each in method.scores(networks, state, batch))
    pulls, ordinary = (methods.get(spec).pulls(CE, state, batch, scores) for spec in (with_penalty, without))
    for pull, other, given, mixture, name in zip(pulls, ordinary, scores, batch.notes["mixtures"], ("targets_1", "targets_2"), strict=True):
        targets = mixture.lam * state[name] + (1 - mixture.lam) * state[name][mixture.partners[0]]
        assert (given.softmax(1) < 1e-4).any()
        assert pull.value is not None and other.value is not None
        penalty = methods.Pull(pull.gradient - other.gradient, pull.value - other.value)
        assert_follows(
            penalty,
            lambda s, targets=targets: (1 - (s.softmax(1).clamp(1e-4, 1 - 1e-4) * targets).sum(1)).log(),  # type: ignore[misc]
            given,
        )
        assert (penalty.gradient.abs().sum(1).max() < 1e-12) == (scale == 1000)


def test_the_weight_averages_follow_their_recursion() -> None:
    method, networks = methods.get(SPEC), four()
    state = start(method)
    expected = [network.weight.detach().clone() for network in networks[2:]]
    # The first average is the network itself. The momentum then rises until half of the training is done.
    momenta = [0.0, 0.9 * math.exp(-5 * 0.8**2), 0.9 * math.exp(-5 * 0.2**2), 0.9, 0.9]
    for number, (progress, momentum) in enumerate(zip([0.0, 0.1, 0.4, 0.5, 0.9], momenta, strict=True)):
        step(method, state, networks, batch_at(progress, seed=number))
        with torch.no_grad():
            for network in networks[:2]:
                network.weight.add_(torch.full_like(network.weight, number + 1.0)).mul_(1.1)
        trained = [network.weight.detach().clone() for network in networks[:2]]
        method.after_step(networks, state)
        expected = [momentum * mean + (1 - momentum) * mine for mean, mine in zip(expected, trained, strict=True)]
        for network, mine in zip(networks, trained + expected, strict=True):
            torch.testing.assert_close(network.weight.detach(), mine)


def test_only_two_networks_are_trained_by_gradients_and_used() -> None:
    method = methods.get("elr_plus")
    scores = [torch.full((2, 3), float(number)) for number in (1, 3, 50, 70)]
    torch.testing.assert_close(method.combine(scores), torch.full((2, 3), 2.0))


def test_the_averages_of_a_run_differ_from_its_networks(tmp_path: Path) -> None:
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    run = noisewise.fit(
        "linear",
        (inputs, torch.arange(60) % 3),
        method="elr_plus(ramp=0, gamma=0.5)",
        epochs=2,
        batch_size=16,
        device="cpu",
        folder=tmp_path,
    )
    model: Any = run.model()
    first, second, *averages = ([p.detach() for p in network.parameters()] for network in model.networks)
    for mine, average in zip((first, second), averages, strict=True):
        moved = max(float((a - b).abs().max()) for a, b in zip(mine, average, strict=True))
        assert 0 < moved < 0.5
    assert not torch.equal(first[0], second[0])


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    given: Any = ("linear", (torch.zeros(6, 2), LABELS))
    for wrong in ("beta=1", "lam=-1", "lam_ramp=1.5", "gamma=1", "ramp=-0.1", "alpha=0"):
        with refused(*wrong.split("=")):
            noisewise.fit(*given, method=f"elr_plus({wrong})", epochs=1, folder=tmp_path / "run")
    with refused("elr_plus", "normalise='batch'"):
        noisewise.fit(*given, method="elr_plus", loss="imae(T=8, normalise='batch')", epochs=1, folder=tmp_path / "run")
    with refused("elr_plus", "accumulate=2"):
        noisewise.fit(*given, method="elr_plus", epochs=1, accumulate=2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
