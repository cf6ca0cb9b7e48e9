"""Dimensionality-driven learning: its estimate of dimensions on known manifolds, its turning point and its targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from method_runs import train

import noisewise
from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods.d2l import D2L, local_dimensions
from one_step import CLASSES, LABELS, assert_follows, pull_of, scores, state_of
from refused import refused


def ball(*shape: int, dimension: int, seed: int = 0) -> torch.Tensor:
    """Points that are uniform in the ball of a dimension."""
    generator = torch.Generator().manual_seed(seed)
    direction = F.normalize(torch.randn(*shape, dimension, generator=generator, dtype=torch.float64), dim=-1)
    return direction * torch.rand(*shape, 1, generator=generator, dtype=torch.float64) ** (1 / dimension)


def by_scikit_learn(points: torch.Tensor, neighbours: int) -> Any:
    r = pytest.importorskip("sklearn.neighbors").NearestNeighbors(n_neighbors=neighbours).fit(points).kneighbors()[0]
    return -1 / np.log(r / r[:, -1:]).mean(1)


@pytest.mark.parametrize("dimension", [2, 5, 10])
def test_the_dimension_of_a_ball_in_a_larger_space_is_recovered(dimension: int) -> None:
    basis = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q[:dimension]
    estimates = local_dimensions(7 + ball(1000, dimension=dimension) @ basis, 20)
    assert float(estimates.mean()) == pytest.approx(dimension, rel=0.1)


@pytest.mark.parametrize("dimension", [2, 5, 10])
def test_at_the_centre_of_a_ball_the_estimate_has_its_theoretical_mean(dimension: int) -> None:
    points = ball(4000, 30, dimension=dimension)
    points[:, 0] = 0
    # The logarithms of the ratios are exponential variables with rate d, so k over their sum has the mean d · k / (k − 2).
    assert float(local_dimensions(points, 20)[:, 0].mean()) == pytest.approx(dimension * 20 / 18, rel=0.02)


@pytest.mark.parametrize("neighbours", [2, 20])
def test_the_estimate_equals_that_of_scikit_learn(neighbours: int) -> None:
    points = torch.randn(3, 128, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = np.stack([by_scikit_learn(each, neighbours) for each in points])
    np.testing.assert_allclose(local_dimensions(points, neighbours), expected, rtol=1e-9)


def state_for(method: methods.Method, number: int) -> methods.State:
    return method.start(Dataset(torch.zeros(number, 2), torch.arange(number) % 2, classes=("a", "b")), 0)


@pytest.mark.parametrize(("number", "batches", "size"), [(2000, 10, 128), (300, 2, 128), (50, 1, 50)])
def test_dimensions_are_averaged_over_random_batches(number: int, batches: int, size: int) -> None:
    features = torch.randn(number, 8, generator=torch.Generator().manual_seed(0))
    method = methods.get("d2l(window=3)")
    state = state_for(method, number)
    method.begin_epoch(state, 1, 9, methods.Scored(features.__getitem__, features.__getitem__, torch.Generator().manual_seed(5)))
    drawn = torch.randperm(number, generator=torch.Generator().manual_seed(5))[: batches * size]
    expected = np.mean([by_scikit_learn(features[rows].double(), 20) for rows in drawn.view(batches, size)])
    assert state["recent"].tolist() == pytest.approx([np.inf, np.inf, expected])
    assert float(state["least"]) == pytest.approx(expected)


def test_examples_with_neighbours_at_equal_distances_are_ignored() -> None:
    features = torch.cat([torch.zeros(30, 8), 100 + torch.randn(30, 8, generator=torch.Generator().manual_seed(0))])
    method = methods.get("d2l(window=1)")
    state = state_for(method, 60)
    method.begin_epoch(state, 1, 9, methods.Scored(features.__getitem__, features.__getitem__, torch.Generator()))
    each = local_dimensions(features.double(), 20)
    assert int(each.isfinite().sum()) == 30
    assert float(state["recent"]) == pytest.approx(float(each[30:].mean()))
    method.begin_epoch(state, 2, 9, methods.Scored(torch.zeros_like, lambda index: torch.zeros(60, 8), torch.Generator()))
    assert float(state["recent"]) == pytest.approx(float(each[30:].mean()))  # nothing to learn from equal features


def alphas(monkeypatch: pytest.MonkeyPatch, spec: str, dimensions: list[float], epochs: int) -> list[float]:
    """The weight of the given labels in every epoch, if the features have these dimensions."""
    method = methods.get(spec)
    state, left = state_of(method), iter(dimensions)
    monkeypatch.setattr(D2L, "_dimension", lambda *_: next(left))
    weights = []
    for epoch in range(1, len(dimensions) + 1):
        method.begin_epoch(state, epoch, epochs, None)  # type: ignore[arg-type]
        weights.append(float(state["alpha"]))
    return weights


def test_the_turning_point_is_two_standard_deviations_above_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    # The windows (5, 3, 4), (3, 4, 2) and (4, 2, 3) end at 4 + 2√(2/3) = 5.63, 3 + 2√(2/3) = 4.63 and the same.
    given = [5.0, 3.0, 4.0, 2.0, 3.0, 4.7, 2.5, 1.0, 6.0]
    expected = [1.0] * 5 + [np.exp(-i / 20 * now / least) for i, now, least in [(5, 4.7, 2), (6, 2.5, 2), (7, 1.0, 2), (8, 6.0, 1)]]
    assert alphas(monkeypatch, "d2l(window=3, warm_up=0)", given, 20) == pytest.approx(expected)
    given[5] = 4.6
    assert alphas(monkeypatch, "d2l(window=3, warm_up=0)", given[:8], 20) == [1.0] * 8


def test_the_warm_up_is_left_out_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    rising = [float(i) for i in range(1, 8)]
    for warm_up in (0, 1, 2):
        weights = alphas(monkeypatch, f"d2l(window=3, warm_up={warm_up})", rising, 10)
        first = next(epoch for epoch, weight in enumerate(weights, 1) if weight < 1)
        assert first == warm_up + 3 + 1


def test_the_targets_mix_labels_and_predictions() -> None:
    method = methods.get("d2l")
    state = state_of(method, torch.arange(30) % CLASSES)
    state["alpha"].fill_(0.3)
    given = scores()
    target = 0.3 * F.one_hot(LABELS, CLASSES) + 0.7 * F.one_hot(given.argmax(1), CLASSES)
    assert_follows(pull_of(method, state, given), lambda leaf: -(target * leaf.log_softmax(1)).sum(1), given)
    gce = losses.get("gce(q=0.7)", reduction="none")
    assert_follows(
        pull_of(method, state, given, "gce(q=0.7)"), lambda leaf: 0.3 * gce(leaf, LABELS) + 0.7 * gce(leaf, given.argmax(1)), given
    )


def test_before_the_turning_point_it_is_the_loss() -> None:
    method = methods.get("d2l")
    pull, plain = pull_of(method, state_of(method), scores()), methods.LossPull(losses.get("ce")).rows(scores(), LABELS)
    torch.testing.assert_close(pull.gradient, plain.gradient)
    torch.testing.assert_close(pull.value, plain.value)


def test_the_example_that_every_method_is_tested_with_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, begin = [], D2L.begin_epoch

    def spy(self: D2L, state: methods.State, *rest: Any) -> None:
        begin(self, state, *rest)
        weights.append(float(state["alpha"]))

    monkeypatch.setattr(D2L, "begin_epoch", spy)
    train(tmp_path / "run", D2L.examples[0], epochs=2)
    assert weights[0] == 1 and 0 < weights[1] < 1


@pytest.mark.parametrize(
    ("model", "method", "loss", "mentions"),
    [
        ("linear", "d2l", "ce", ("d2l", "more examples than neighbours", "12 examples")),
        ("linear", "d2l(neighbours=128)", "ce", ("'neighbours'", "[2, 128)")),
        ("linear", "d2l(window=0)", "ce", ("'window'", "[1, inf)")),
        ("linear", "d2l(neighbours=5)", "imae(T=8, normalise='batch')", ("d2l", "normalise='batch'")),
        (torch.nn.Linear(4, 3), "d2l(neighbours=5)", "ce", ("d2l", "embedding", "Linear")),
    ],
)
def test_bad_requests_are_refused_before_any_work(model: Any, method: str, loss: str, mentions: tuple[str, ...], tmp_path: Path) -> None:
    examples = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    with refused(*mentions):
        noisewise.fit(model, examples, loss=loss, method=method, epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
