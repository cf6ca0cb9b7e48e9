"""What IDO counts, fits and minimises, against its formulas in float64 with the distributions of scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods.ido import cleanliness_and_difficulty, fit_mixture

N, CLASSES = 60, 3
LABELS = torch.arange(N) % CLASSES
CE = methods.LossPull(losses.get("ce"))


def batch_of(rows: torch.Tensor) -> methods.Batch:
    lr, progress = torch.tensor(0.1), torch.tensor(0.0)
    return methods.Batch(rows, LABELS[rows], torch.zeros(len(rows), 2), lambda raw: raw, len(rows), lr, progress, torch.Generator())


def views(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    first, noise = 2 * torch.randn(2, N, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return first, first + noise / 2


def started(epoch: int = 1) -> tuple[methods.Method, methods.State]:
    method = methods.get("ido(warm_up=4)")
    state = method.start(Dataset(torch.zeros(N, 2), LABELS, tuple("abc")), 0)
    generator = torch.Generator().manual_seed(1)
    right, wrong = torch.randint(0, 2, (N,), generator=generator), torch.randint(2, 5, (N,), generator=generator)
    state["wrong"].copy_(torch.where(torch.arange(N) < 40, right, wrong))
    method.begin_epoch(state, epoch, 10, None)  # type: ignore[arg-type]
    return method, state


def mixture_by_hand(x: np.ndarray, steps: int) -> list[list[float]]:
    """Expectation maximisation by moments, component by component."""
    components = [[1.0, 2.0, 0.5], [2.0, 1.0, 0.5]]
    for _ in range(steps):
        likelihood = [np.maximum(share * stats.beta(a, b).pdf(x), 1e-6) for a, b, share in components]
        responsible = [each / (likelihood[0] + likelihood[1]) for each in likelihood]
        for number, r in enumerate(responsible):
            mean = (r * x).sum() / r.sum()
            variance = max((r * (x - mean) ** 2).sum() / r.sum(), 1e-6)
            alpha = max(mean * (mean * (1 - mean) / variance - 1), 1e-6)
            components[number] = [alpha, alpha * (1 - mean) / mean, r.mean()]
        components[0][1] = components[0][1] if components[0][1] >= 1.02 else 1.1
        components[1][0] = components[1][0] if components[1][0] >= 1.02 else 1.1
    return components


def scaled(counts: np.ndarray, of: np.ndarray) -> np.ndarray:
    return 1e-6 + (1 - 2e-6) * np.clip((counts - of.min()) / (of.max() - of.min()), 0, 1)


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_the_mixture_follows_its_recursion(steps: int) -> None:
    x = np.random.default_rng(0).beta([[2], [9]], [[9], [3]], (2, 80)).ravel()
    fitted = fit_mixture(x, np.array([[1.0, 2.0, 0.5], [2.0, 1.0, 0.5]]), steps)
    np.testing.assert_allclose(fitted, mixture_by_hand(x, steps), rtol=1e-8)


def test_cleanliness_and_difficulty_follow_from_the_distributions() -> None:
    mixture = np.array([[2.0, 6.0, 0.7], [5.0, 1.5, 0.3]])
    x = np.linspace(0.01, 0.99, 25)
    right, wrong = (stats.beta(alpha, beta) for alpha, beta, _ in mixture)
    clean = 0.7 * right.pdf(x) / (0.7 * right.pdf(x) + 0.3 * wrong.pdf(x))
    found = cleanliness_and_difficulty(x, mixture)
    np.testing.assert_allclose(found[0], clean, rtol=1e-4)
    np.testing.assert_allclose(found[1], clean * right.cdf(x) + clean * (1 - wrong.cdf(x)), rtol=1e-4)
    assert found[0][0] > 0.95 and found[0][-1] < 0.05


def test_every_class_has_its_own_mixture_after_the_warm_up() -> None:
    _, state = started(epoch=5)
    assert not state["warming_up"]
    for label in range(CLASSES):
        rows = np.flatnonzero(LABELS.numpy() == label)
        counts = state["wrong"].numpy()[rows]
        mixture = mixture_by_hand(scaled(counts, counts), 20)
        np.testing.assert_allclose(state["mixtures"][label], mixture, rtol=1e-6)
        clean, hard = cleanliness_and_difficulty(scaled(counts[:, None] + np.arange(3), counts), np.array(mixture))
        np.testing.assert_allclose(state["clean"][rows], clean, atol=1e-6)
        np.testing.assert_allclose(state["hard"][rows], hard, atol=1e-6)


def test_a_class_whose_counts_are_all_equal_is_fitted_too() -> None:
    method, state = started()
    state["wrong"].fill_(3)
    method.begin_epoch(state, 5, 10, None)  # type: ignore[arg-type]
    assert all(bool(state[name].isfinite().all()) for name in ("mixtures", "clean", "hard"))


def test_the_warm_up_trains_on_the_first_view_alone() -> None:
    method, state = started(epoch=4)
    before, batch, scores = state["wrong"].clone(), batch_of(torch.arange(10, 50)), tuple(each[10:50] for each in views())
    pulls = method.pulls(CE, state, batch, scores)
    torch.testing.assert_close(pulls[0].gradient, CE.rows(scores[0], batch.labels).gradient)
    assert not pulls[1].gradient.any()
    torch.testing.assert_close(pulls[0].value, F.cross_entropy(scores[0], batch.labels, reduction="none"))
    assert torch.equal(state["wrong"][10:50] - before[10:50], (scores[0].argmax(1) != batch.labels).long())
    assert torch.equal(state["wrong"][:10], before[:10])


def test_the_objective_follows_the_formula() -> None:
    method, state = started(epoch=5)
    before, batch = state["wrong"].clone(), batch_of(torch.arange(N))
    leaves = tuple(each.clone().requires_grad_() for each in views())
    new = sum((each.argmax(1) != LABELS).long() for each in leaves)
    assert set(new.tolist()) == {0, 1, 2}
    clean, hard = (state[name].double()[torch.arange(N), new] for name in ("clean", "hard"))
    q = (leaves[0].softmax(1) + leaves[1].softmax(1)) / 2
    entropy = -(q * q.log()).sum(1)
    fit = sum(F.cross_entropy(each, LABELS, reduction="none") for each in leaves)
    objective = clean * fit + hard * (leaves[0] - leaves[1]).square().mean(1) + (1 - clean) * q.max(1).values * entropy
    pulls = method.pulls(CE, state, batch, tuple(each.detach() for each in leaves))
    for pull, gradient in zip(pulls, torch.autograd.grad(objective.sum(), leaves), strict=True):
        torch.testing.assert_close(pull.gradient, gradient, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(pull.value, objective.detach())
    assert torch.equal(state["wrong"], before + new)


def test_an_example_does_not_depend_on_the_rest_of_its_batch() -> None:
    gradients = []
    for size in (N, 7):
        method, state = started(epoch=5)
        scores = tuple(each[:size] for each in views())
        gradients.append(method.pulls(CE, state, batch_of(torch.arange(size)), scores)[0].gradient[:7])
    torch.testing.assert_close(*gradients)
