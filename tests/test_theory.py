"""The bounds of theory, compared with closed forms, with minima found over all predictions, and with what the papers print."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import exp, mp, mpf
from scipy.integrate import quad

import noisewise
from noisewise import curriculum, draw, losses, papers, theory
from noisewise.noise import matrix_of
from noisewise.noise import registry as noises
from reference import exact_emphasis_at, exact_value_at
from refused import refused

CLOSED: dict[str, float] = {
    "mae": 1,
    "rce": 1,
    "ce": 0,
    "gce(q=0.4)": 0,
    "imae(T=8, saturation=0)": 0,
    "aul(a=2, q=2)": 1 / 2,  # ((a − 1) / a)^(q − 1)
    "aul(a=1.1, q=5)": (1 / 11) ** 4,
    "aul(a=3, q=0.7)": 1,
    "agce(a=0.1, q=0.1)": 11**-0.9,  # (a / (a + 1))^(1 − q)
    "agce(a=3, q=4)": 1,
    "ael(q=0.5)": float(np.exp(-2)),
    "tce(q=3)": 1 / 3,
    "normalised(aul(a=2, q=2))": 1 / 2,
}


@pytest.mark.parametrize(("spec", "ratio"), CLOSED.items())
def test_the_asymmetry_ratio_of_losses_with_a_closed_form(spec: str, ratio: float) -> None:
    assert theory.asymmetry_ratio(spec) == pytest.approx(ratio, abs=1e-8)


@pytest.mark.parametrize(("name", "hyper"), [("aul", {"a": 2.0, "q": 3.0}), ("agce", {"a": 0.6, "q": 0.6}), ("tce", {"q": 2})])
def test_no_pair_of_gains_is_below_the_asymmetry_ratio(name: str, hyper: dict[str, Any]) -> None:
    """The exact values of the reference, at random gains and near the corner where the smallest ratio is."""

    def value(p: float) -> mpf:
        return exact_value_at(name, mp.log(p / (1 - p)), **hyper)

    rng = np.random.default_rng(0)
    gains = [(u * (1 - v), v) for u, v in rng.uniform(0.001, 0.999, (40, 2))] + [(0.9998, 1e-4)]
    tiny = mpf("1e-12")
    ratios = [(value(u) - value(u + v)) / (value(tiny) - value(tiny + v)) for u, v in gains]
    ratio = theory.asymmetry_ratio(losses.get(name, **hyper))
    assert ratio is not None and ratio - 1e-6 < min(ratios) < ratio + 2e-3


def test_a_loss_that_is_steepest_between_0_and_1() -> None:
    """Its smallest ratio is at a pair of gains, not at a single p: found here by brute force."""
    loss = losses.get("shifted(mae, tau=1.5, expected=-3)")  # its steepness has a maximum at a margin of −3
    assert isinstance(loss, losses.MarginLoss)
    u = torch.linspace(1e-6, 1 - 1e-6, 2001, dtype=torch.float64)
    value = loss.value(u.logit()).numpy()
    pairs = [(i, j) for i, j in itertools.product(range(0, 2001, 20), range(20, 2001, 20)) if i + j <= 2000]
    least = min((value[i] - value[i + j]) / (value[0] - value[j]) for i, j in pairs)
    ratio = theory.asymmetry_ratio(loss)
    assert ratio is not None and ratio == pytest.approx(least, abs=0.01)


def _best(spec: str, noise: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The prediction, on a fine grid over three classes, with the smallest mean loss under noisy labels."""
    loss = losses.get(spec)
    grid = np.array([(i, j, 120 - i - j) for i in range(121) for j in range(121 - i)]) / 120
    value = loss.value(torch.from_numpy(grid).logit().clamp(-600, 600)).numpy()  # type: ignore[operator]
    return grid[(value @ noise).argmin()]


@pytest.mark.parametrize("spec", ["mae", "aul(a=2, q=2)", "agce(a=0.1, q=0.5)", "tce(q=2)"])
def test_below_the_tolerated_rate_the_best_prediction_is_the_true_class_and_above_it_is_not(spec: str) -> None:
    rate = theory.tolerated_rate(spec, 3)
    assert rate is not None
    for eta, right in ((rate - 0.02, True), (rate + 0.02, False)):
        transition = matrix_of(noises.get(f"symmetric({eta})"), 3)
        assert transition is not None
        assert theory.tolerates(spec, transition) == right
        assert (_best(spec, transition[0]).argmax() == 0 and _best(spec, transition[0])[0] == 1) == right


def test_symmetric_losses_tolerate_noise_below_the_bound_of_the_papers() -> None:
    for classes in (2, 3, 10, 100):
        assert theory.tolerated_rate("mae", classes) == (classes - 1) / classes
    assert (
        theory.tolerated_rate("nce", 10) is None and theory.asymmetry_ratio("mse") is None and theory.impact_ratio("nce", 0.1, 0.2) is None
    )
    assert theory.tolerates("nce", np.eye(2)) is None


def test_the_noise_ratio_is_of_the_worst_class() -> None:
    assert theory.noise_ratio(np.eye(4)) == 0
    assert theory.noise_ratio([[0.2, 0.5, 0.3], [0, 1, 0], [0.1, 0.1, 0.8]]) == pytest.approx(2.5)
    with refused("transition", "square"):
        theory.noise_ratio([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])


def test_impact_ratios_follow_the_formulas_and_ignore_a_factor() -> None:
    for p, other in ((0.5, 0.99), (0.01, 0.3), (0.999, 0.5)):
        exact = exp(8 * (mpf(p) * (1 - mpf(p)) - mpf(other) * (1 - mpf(other))))
        assert theory.impact_ratio("imae(T=8, saturation=0)", p, other) == pytest.approx(float(exact), rel=1e-7)
        margins = [mp.log(mpf(q) / (1 - mpf(q))) for q in (p, other)]
        gce = exact_emphasis_at("gce", margins[0], q=mpf("0.7")) / exact_emphasis_at("gce", margins[1], q=mpf("0.7"))
        assert theory.impact_ratio("gce(q=0.7)", p, other) == pytest.approx(float(gce), rel=1e-7)
        assert theory.impact_ratio("0.01*gce(q=0.7)", p, other) == theory.impact_ratio("gce(q=0.7)", p, other)
    with refused("p", 1):
        theory.impact_ratio("ce", 1, 0.5)


@pytest.mark.parametrize("alpha", [0, 0.2, 0.5, 0.9])
def test_the_squared_error_with_a_weight_of_its_regulariser(alpha: float) -> None:
    scores = 3 * torch.randn(50, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.arange(50) % 6
    p = torch.softmax(scores, 1).numpy()
    formula = 2 * (1 - p[np.arange(50), labels.numpy()]) + 2 * alpha * ((p**2).sum(1) - 1)
    ours = [float(theory.squared_error(alpha)(row[None], label[None])) for row, label in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(ours, formula, atol=1e-12)
    if alpha == 0.5:
        one_hot = np.eye(6)[labels.numpy()]
        np.testing.assert_allclose(ours, ((p - one_hot) ** 2).sum(1), atol=1e-12)


def test_the_printed_mean_margins_have_k_in_place_of_k_minus_1() -> None:
    """Curriculum, under table 9: 5.097 for 100 classes and 2.717 for 10; the formula gives 5.086 and 2.602."""

    def formula(others: int) -> float:
        return -np.log(others) - 1 / 2 + (np.e - 1) / (2 * others)

    for classes, printed in ((100, 5.097), (10, 2.717)):
        assert round(-formula(classes), 3) == printed
        assert curriculum.expected_margin(classes) == pytest.approx(formula(classes - 1)) and round(-formula(classes - 1), 3) != printed
    simulated = float(curriculum.simulated_margins(10, samples=200_000).mean())
    assert abs(simulated - formula(9)) < 0.02 < abs(simulated - formula(10))


def test_the_printed_condition_of_aul_has_its_cases_exchanged() -> None:
    """Curriculum, appendix A.3: I(q ≤ 1) (a / (a − 1))^(q − 1) + I(q > 1) ≤ 1 / r, where q ≤ 1 and q > 1 should change places."""
    for a, q in ((2.0, 2.0), (1.1, 5.0), (3.0, 0.7), (1.5, 0.5)):
        power = (a / (a - 1)) ** (q - 1)
        printed, exchanged = (power, 1.0) if q <= 1 else (1.0, power)
        inverse = 1 / theory.asymmetry_ratio(f"aul(a={a}, q={q})")  # type: ignore[operator]
        assert inverse == pytest.approx(exchanged, rel=1e-4) and inverse != pytest.approx(printed, rel=1e-2)
    for a, q in ((0.1, 0.1), (3.0, 4.0)):  # AGCE's is right as it is printed
        printed_of_agce = ((a + 1) / a) ** (1 - q) if q <= 1 else 1.0
        assert 1 / theory.asymmetry_ratio(f"agce(a={a}, q={q})") == pytest.approx(printed_of_agce, rel=1e-6)  # type: ignore[operator]


def test_the_printed_alpha_fits_losses_that_are_not_normalised() -> None:
    """Curriculum, table 2, on CIFAR-10: divided by the maximum of the plain weight, α_t is close to that of CE; as printed it is not."""
    printed = {
        cell.words: (cell.value, cell.settings["loss"])
        for cell in papers.get("curriculum/table2").cells
        if cell.metric == "alpha" and cell.settings is not None and cell.settings["data"] == "cifar10" and cell.value is not None
    }
    ce = printed["CE"][0]
    as_printed, divided = [], []
    for name in ("SCE", "GCE", "AUL", "AGCE"):
        alpha, spec = printed[name]
        inner = losses.get(spec).loss
        height = float(inner.emphasis(torch.linspace(-40, 40, 80_001, dtype=torch.float64)).max())
        as_printed.append(alpha / ce)  # type: ignore[operator]
        divided.append(alpha / ce / height)  # type: ignore[operator]
    assert (round(min(as_printed), 2), round(max(as_printed), 2)) == (0.1, 0.52)
    assert (round(min(divided), 2), round(max(divided), 2)) == (0.78, 1.21)


def test_imae_is_neither_symmetric_nor_bounded() -> None:
    """The poster says that it is both, the paper that it is neither."""
    scores = torch.tensor([[0.0] * 4, [3.0, 0, 0, 0], [12.0, 6, 0, -6], [40.0, 0, 0, 0]], dtype=torch.float64)

    def sums(spec: str) -> torch.Tensor:
        return theory.sum_over_labels(spec, scores)

    for spec in ("mae", "nce", "rce"):
        assert float(sums(spec).max() - sums(spec).min()) < 1e-9
    assert float(sums("imae(T=8, saturation=0)").max() - sums("imae(T=8, saturation=0)").min()) > 20
    loss = noisewise.get("imae(T=8, saturation=0)")
    assert [float(loss.value(torch.tensor(-d, dtype=torch.float64))) / d for d in (1e3, 1e5)] == pytest.approx([0.5, 0.5], abs=0.01)


def test_the_impact_ratio_of_mae_beside_its_variance() -> None:
    """IMAE, section 4.1: σ = 0.09 with the weight 4 p (1 − p), by integration; the ratio of two of its weights does not depend on the 4."""
    mean, square = (quad(lambda p, n=n: (4 * p * (1 - p)) ** n, 0, 1)[0] for n in (1, 2))
    assert round(square - mean**2, 2) == 0.09
    assert theory.impact_ratio("mae", 0.5, 0.1) == pytest.approx(0.25 / 0.09)


def test_the_figure_of_bounds(tmp_path: Path) -> None:
    words = draw.bounds(["ce", "aul(a=2, q=2)"], tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "ce: asymmetry ratio 0<" in words and "aul(a=2, q=2): asymmetry ratio 0.5<" in words and "mathdefault" not in words
    with refused("nce"):
        draw.bounds(["nce"], tmp_path / "y.svg")
