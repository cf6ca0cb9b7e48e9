"""What optimised gradient clipping computes, against the formulas of its paper in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods.ogc import clipping_margin
from refused import refused

GRID = np.linspace(-np.log1p(-1e-7), -np.log(1e-7), 1000)
SLOPES = {
    "ce": lambda p: 1 / p,
    "gce(q=0.7)": lambda p: p**-0.3,
    "focal(q=0.5)": lambda p: (1 - p) ** 0.5 / p - 0.5 * (1 - p) ** -0.5 * np.log(p),
}


def costs(number: int = 4096) -> np.ndarray:
    """Costs of examples with right and with wrong labels."""
    random = np.random.default_rng(0)
    both = np.concatenate([random.normal(0.5, 0.3, number // 2), random.normal(4.0, 1.0, number - number // 2)])
    return random.permutation(both).clip(GRID[0], GRID[-1])


def published_threshold(spec: str, given: np.ndarray, ratio: float) -> float:
    """The threshold in p, from scikit-learn's mixture and truncated normal densities, by bisection."""
    mixture = pytest.importorskip("sklearn.mixture").GaussianMixture(2, max_iter=10, reg_covar=1e-3, random_state=0).fit(given[:, None])
    truncnorm = pytest.importorskip("scipy.stats").truncnorm
    order = mixture.means_.ravel().argsort()
    means, deviations = mixture.means_.ravel()[order], np.sqrt(mixture.covariances_.ravel()[order])
    right, wrong = (
        truncnorm.pdf(GRID, (GRID[0] - mean) / deviation, (GRID[-1] - mean) / deviation, mean, deviation)
        for mean, deviation in zip(means, deviations, strict=True)
    )

    def excess(p: float) -> float:
        clipped = np.minimum(SLOPES[spec](np.exp(-GRID)), SLOPES[spec](p))
        return float((wrong * clipped).mean() / (right * clipped).mean() * right.mean() / wrong.mean() - ratio)

    low, high = 1e-7, 1 - 1e-7
    if excess(low) < 0:
        return low
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("spec", SLOPES)
@pytest.mark.parametrize("ratio", [1.0, 1.2, 3.0, 1e9])
def test_the_threshold_is_that_of_the_published_formulas(spec: str, ratio: float) -> None:
    given = costs()
    margin = clipping_margin(losses.get(spec), torch.from_numpy(given), torch.tensor(ratio, dtype=torch.float64))
    assert float(margin.sigmoid()) == pytest.approx(published_threshold(spec, given, ratio), rel=1e-6)
    narrow = clipping_margin(losses.get(spec), torch.from_numpy(given).float(), torch.tensor(ratio))
    assert float(narrow.sigmoid()) == pytest.approx(float(margin.sigmoid()), abs=2e-3)


@pytest.mark.parametrize("given", [torch.zeros(8), torch.full((8,), 3.0), torch.arange(8.0)], ids=["learned", "equal", "spread"])
def test_the_threshold_is_a_margin_for_any_costs(given: torch.Tensor) -> None:
    margin = clipping_margin(losses.get("ce"), given.clamp(min=1e-7), torch.tensor(1.5))
    assert -17 < float(margin) < 17


def step(method: methods.Method, state: methods.State, scores: torch.Tensor, labels: torch.Tensor, loss: str = "ce") -> methods.Pull:
    number = len(labels)
    batch = methods.Batch(
        torch.arange(number), labels, scores, lambda each: each, number, torch.tensor(0.1), torch.tensor(0.0), torch.Generator()
    )
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), state, batch, (scores,))
    return pull


def test_examples_are_clipped_with_the_threshold_of_the_last_full_queue() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (32,), generator=generator)
    data = Dataset(torch.zeros(32, 2), labels, classes=tuple("abcd"))
    method = methods.get("ogc(epsilon=5, every=2, queue=64)")
    state = method.start(data, 0)
    batches = [3 * torch.randn(32, 4, generator=generator) for _ in range(3)]
    queue: list[torch.Tensor] = []
    threshold = 1e-7
    for number, scores in enumerate(batches, 1):
        pull = step(method, state, scores, labels)
        queue.append(torch.nn.functional.cross_entropy(scores, labels, reduction="none"))
        leaf = scores.clone().requires_grad_()
        p = leaf.softmax(1).gather(1, labels[:, None])[:, 0]
        values = torch.where(p > threshold, -p.log(), 1 - p / threshold - np.log(threshold))
        torch.testing.assert_close(pull.value, values.detach())
        torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0], rtol=1e-4, atol=1e-6)
        method.refresh(losses.get("ce"), state, torch.tensor(0.1))
        if number == 2:
            threshold = float(clipping_margin(losses.get("ce"), torch.cat(queue).clamp(1e-7, -np.log(1e-7)), torch.tensor(1.5)).sigmoid())
            assert 0.001 < threshold < 0.999
    assert int(state["seen"]) == 96


def test_a_batch_larger_than_the_queue_leaves_its_last_costs() -> None:
    labels = torch.zeros(10, dtype=torch.int64)
    data = Dataset(torch.zeros(10, 2), labels, classes=("a", "b"))
    method = methods.get("ogc(queue=4)")
    state = method.start(data, 0)
    scores = torch.arange(20.0).view(10, 2) * torch.tensor([-0.1, 0.1])
    step(method, state, scores, labels)
    torch.testing.assert_close(state["costs"].sort().values, torch.nn.functional.cross_entropy(scores, labels, reduction="none")[-4:])


@pytest.mark.parametrize("loss", ["nce", "ce(weight=(1, 2))", "imae(normalise='batch')"])
def test_a_loss_without_a_slope_in_p_is_refused(loss: str) -> None:
    data = Dataset(torch.zeros(2, 2), torch.tensor([0, 1]), classes=("a", "b"))
    with refused("ogc", loss.partition("(")[0]):
        methods.get("ogc").check(losses.get(loss), data)
