"""The estimate of the noise rate from the margins, compared with scikit-learn's mixture."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from noisewise.dynamics import split_estimate
from noisewise.dynamics._estimate import _grouped
from refused import refused


def draw(rng, number, rate, low, high):
    noisy = rng.random(number) < rate
    return np.where(noisy, rng.normal(*low, size=number), rng.normal(*high, size=number)), noisy


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [
        (0.4, (-3, 1), (3, 1)),
        (0.2, (-2, 1.5), (2.5, 0.8)),
        (0.6, (-1, 0.5), (4, 3)),
        (0.05, (-600, 40), (800, 90)),
        (0.5, (0, 1), (2.2, 1)),
    ],
)
def test_the_mixture_equals_that_of_scikit_learn(rate, low, high):
    values, _ = draw(np.random.default_rng(2), 5000, rate, low, high)
    estimate = split_estimate(values)
    theirs = GaussianMixture(2, tol=1e-10, max_iter=5000, reg_covar=0, random_state=0).fit(values[:, None])
    order = theirs.means_[:, 0].argsort()
    assert estimate.means == pytest.approx(tuple(theirs.means_[order, 0]), rel=1e-3, abs=1e-3)
    assert estimate.deviations == pytest.approx(tuple(theirs.covariances_[order, 0, 0] ** 0.5), rel=1e-3)
    assert estimate.rate == pytest.approx(theirs.weights_[order][0], abs=1e-3)
    between = (values > estimate.means[0]) & (values < estimate.means[1])  # beyond the means ours stays monotone
    expected = theirs.predict_proba(values[between, None])[:, order[0]]
    np.testing.assert_allclose(estimate.noisy[between], expected, atol=2e-3)


def test_the_estimated_rate_and_the_noisy_examples_are_nearly_right():
    values, noisy = draw(np.random.default_rng(3), 20_000, 0.3, (-3, 1.2), (3, 1.5))
    estimate = split_estimate(values)
    assert abs(estimate.rate - noisy.mean()) < 0.01
    assert ((estimate.noisy > 0.5) == noisy).mean() > 0.98
    assert estimate.separation > 3


def test_a_group_of_one_outlier_has_a_positive_deviation():
    values = np.append(np.random.default_rng(0).normal(size=500), -50.0)
    estimate = split_estimate(values)
    assert estimate.means[0] == pytest.approx(-50) and estimate.deviations[0] == pytest.approx(1e-3 * values.std())


def test_the_text_of_an_estimate_warns_if_there_is_only_one_group():
    values, _ = draw(np.random.default_rng(3), 5000, 0.3, (-3, 1.2), (3, 1.5))
    assert "not clearly separated" not in str(split_estimate(values))
    assert "not clearly separated" in str(split_estimate(np.random.default_rng(4).normal(size=5000)))


@settings(max_examples=40)
@given(
    rate=st.floats(0.05, 0.95),
    low=st.floats(0.1, 5),
    high=st.floats(0.1, 5),
    gap=st.floats(0.0, 10),
    size=st.integers(2, 300),
    seed=st.integers(0, 9),
)
def test_the_probability_never_rises_with_the_margin(rate, low, high, gap, size, seed):
    values, _ = draw(np.random.default_rng(seed), size, rate, (0, low), (gap, high))
    estimate = split_estimate(values)
    assert (np.diff(estimate.noisy[values.argsort()]) <= 1e-12).all()
    assert 0 <= estimate.rate <= 1
    assert estimate.means[0] <= estimate.means[1]


def test_the_estimate_ignores_infinite_values_and_does_not_depend_on_order_or_unit():
    values, _ = draw(np.random.default_rng(5), 3000, 0.4, (-2, 1), (2, 1))
    estimate = split_estimate(values)
    with_gaps = split_estimate(np.concatenate([values, [np.nan, -np.inf, np.inf]]))
    np.testing.assert_array_equal(with_gaps.noisy[:-3], estimate.noisy)
    assert math.isnan(with_gaps.noisy[-3])
    assert with_gaps.noisy[-2] == estimate.noisy.max()
    assert with_gaps.noisy[-1] == estimate.noisy.min()
    np.testing.assert_allclose(split_estimate(values[::-1]).noisy[::-1], estimate.noisy, atol=1e-12)
    np.testing.assert_allclose(split_estimate(1e5 + 10 * values).noisy, estimate.noisy, atol=1e-6)


def test_a_million_values_are_grouped_before_the_fit_without_changing_the_result():
    values, noisy = draw(np.random.default_rng(6), 1_000_000, 0.35, (-3, 1), (2, 1.5))
    assert len(_grouped(np.sort(values))[0]) < 10_000
    estimate = split_estimate(values)
    for side, component in ((noisy, 0), (~noisy, 1)):
        assert abs(estimate.means[component] - values[side].mean()) < 0.02
        assert abs(estimate.deviations[component] - values[side].std()) < 0.02
    assert abs(estimate.rate - noisy.mean()) < 0.003


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [math.nan, 1.0], [[1.0, 2.0]]])
def test_values_that_cannot_be_split_are_refused(values):
    with refused("two"):
        split_estimate(values)
