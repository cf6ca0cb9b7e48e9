"""Online soft mining and class-aware attention, against a loop over all pairs that follows the formula of the paper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise import losses, methods
from refused import refused

LABELS = [0, 1, 0, 2, 1, 0, 2]
CLASSES, SIZE = 3, 4

Vectors = list[list[float]]


def unit(vector: list[float]) -> list[float]:
    length = math.hypot(*vector)
    return [entry / length for entry in vector]


def weighted_pairs(features: Vectors, attention: list[float], sigma: float, alpha: float) -> dict[tuple[int, int], float]:
    """The weight of every pair in its own sum."""
    unnormalised, sums = {}, {True: 0.0, False: 0.0}
    for i in range(len(features)):
        for j in range(i + 1, len(features)):
            d = math.dist(unit(features[i]), unit(features[j]))
            same = LABELS[i] == LABELS[j]
            weight = (math.exp(-(d**2) / sigma**2) if same else max(0.0, alpha - d)) * min(attention[i], attention[j])
            unnormalised[i, j] = weight
            sums[same] += weight
    return {(i, j): weight / sums[LABELS[i] == LABELS[j]] for (i, j), weight in unnormalised.items()}


def loop(features: Vectors, weights: dict[tuple[int, int], float], alpha: float, lam: float) -> float:
    """The weighted contrastive loss for given weights."""
    value = 0.0
    for (i, j), weight in weights.items():
        d = math.dist(unit(features[i]), unit(features[j]))
        value += weight * ((1 - lam) * d**2 / 2 if LABELS[i] == LABELS[j] else lam * max(0.0, alpha - d) ** 2 / 2)
    return value


def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, some of them close to each other, and scores."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(LABELS), SIZE, generator=generator, dtype=torch.float64) + 1.5
    return features, torch.randn(len(LABELS), CLASSES, generator=generator, dtype=torch.float64)


def pulls_of(method: methods.Method, features: torch.Tensor, scores: torch.Tensor) -> tuple[methods.Pull, ...]:
    rows, labels = torch.arange(len(LABELS)), torch.tensor(LABELS)
    numbers = torch.tensor(0.1), torch.tensor(0.0)
    batch = methods.Batch(rows, labels, features, lambda each: each, len(rows), *numbers, torch.Generator())
    return method.pulls(methods.LossPull(losses.get("ce")), {}, batch, (scores, features))


@pytest.mark.parametrize(("sigma", "alpha", "lam"), [(0.8, 1.2, 0.5), (0.3, 0.6, 0.2), (2.0, 2.0, 1.0)])
def test_value_and_gradient_equal_those_of_a_loop_over_pairs(sigma: float, alpha: float, lam: float) -> None:
    method = methods.get(f"osm_caa(sigma={sigma}, alpha={alpha}, lam={lam})")
    for seed in range(3):
        features, scores = drawn(seed)
        attention = [math.exp(row[label]) / sum(map(math.exp, row)) for row, label in zip(scores.tolist(), LABELS, strict=True)]
        weights = weighted_pairs(features.tolist(), attention, sigma, alpha)
        expected = loop(features.tolist(), weights, alpha, lam)
        classified, embedded = pulls_of(method, features, scores)
        ordinary = F.cross_entropy(scores, torch.tensor(LABELS), reduction="none")
        torch.testing.assert_close(classified.value, ordinary + expected)
        probabilities = scores.softmax(1) - F.one_hot(torch.tensor(LABELS), CLASSES)
        torch.testing.assert_close(classified.gradient, probabilities)  # attention has no gradient
        slopes = torch.zeros_like(features)
        for row in range(len(LABELS)):
            for column in range(SIZE):
                step = torch.zeros_like(features)
                step[row, column] = 1e-6
                up, down = (loop((features + sign * step).tolist(), weights, alpha, lam) for sign in (1, -1))
                slopes[row, column] = (up - down) / 2e-6
        torch.testing.assert_close(embedded.gradient, len(LABELS) * slopes, rtol=1e-5, atol=1e-8)


def test_an_abnormal_example_has_little_weight() -> None:
    method, labels = methods.get("osm_caa"), torch.tensor([0, 0, 0, 1])
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)

    def slope(attention: float) -> float:
        leaf = features.clone().requires_grad_()
        method.contrastive(leaf, labels, torch.tensor([0.9, 0.9, attention, 0.9], dtype=torch.float64)).backward()
        return float(leaf.grad[2].norm())  # type: ignore[index]

    assert slope(0.01) < 0.1 * slope(0.9)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [0, 0, 0, 0]])
def test_a_batch_with_pairs_of_one_kind_has_a_finite_loss(labels: list[int]) -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]], requires_grad=True)  # two are equal
    methods.get("osm_caa").contrastive(features, torch.tensor(labels), torch.ones(4)).backward()
    assert features.grad is not None and features.grad.isfinite().all() and features.grad.any()


def test_embeddings_of_a_class_come_closer_together(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 6
    inputs = torch.randn(240, 12, generator=generator) + 2 * F.one_hot(labels, 12)

    def spread(method: str, seed: int) -> float:
        """The mean distance within a class, beside that between classes."""
        settings = {"epochs": 15, "batch_size": 60, "device": "cpu", "clean_pass": False}
        folder = tmp_path / f"{method}-{seed}"
        run = noisewise.fit("mlp(hidden=(32,))", (inputs, labels), method=method, folder=folder, seed=seed, **settings)
        scaled = (inputs - inputs.mean(0)) / inputs.std(0, correction=0)
        with torch.no_grad():
            unit = F.normalize(run.model().features(scaled), dim=1)  # type: ignore[operator]
        distances, same = torch.cdist(unit, unit), labels[:, None] == labels
        return float(distances[same].mean() / distances[~same].mean())

    assert all(spread("osm_caa", seed) < spread("plain", seed) for seed in range(4))


def test_a_model_without_an_embedding_is_refused(tmp_path: Path) -> None:
    with refused("osm_caa", "embedding", "Linear"):
        noisewise.fit(torch.nn.Linear(4, 3), (torch.randn(9, 4), torch.arange(9) % 3), method="osm_caa", folder=tmp_path / "run", epochs=1)
    with refused("osm_caa", "embedding", "linear", "last layer", "mlp"):
        noisewise.fit("linear", (torch.randn(9, 4), torch.arange(9) % 3), method="osm_caa", folder=tmp_path / "run", epochs=1)
    with refused("osm_caa", "accumulate=2"):
        data = torch.randn(9, 4), torch.arange(9) % 3
        noisewise.fit("mlp", data, method="osm_caa", folder=tmp_path / "run", epochs=1, batch_size=4, accumulate=2)
    assert not (tmp_path / "run").exists()
