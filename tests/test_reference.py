"""The reference losses, checked: p-space against mpmath, gradients against differences, and both against the papers' numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import printed_numbers
import reference
from reference import DIGITS, LOSSES, exact_emphasis_at, exact_gjs, exact_gjs_gradient, exact_gradient, exact_value, exact_value_at

Hyper = dict[str, Any]

IDENTITY = tuple(map(tuple, np.eye(4).tolist()))
SOME = ((0.7, 0.1, 0.2, 0.0), (0.0, 0.9, 0.05, 0.05), (0.3, 0.0, 0.6, 0.1), (0.1, 0.1, 0.1, 0.7))
EXAMPLES: list[tuple[str, Hyper]] = [
    ("ce", {}),
    ("focal", {"q": 0.5}),
    ("focal", {"q": 2.0}),
    ("focal_detached", {"q": 0.5}),
    ("focal_detached", {"q": 2.0}),
    ("mae", {}),
    ("dft", {}),
    ("rce", {"A": -4.0}),
    ("sce", {"alpha": 0.1, "beta": 1.0, "A": -4.0}),
    ("gce", {"q": 0.7}),
    ("power", {"q": 10.0}),
    ("truncated_gce", {"q": 0.7, "kappa": 0.3}),
    ("aul", {"a": 5.5, "q": 3.0}),
    ("aul", {"a": 1.1, "q": 0.1}),
    ("agce", {"a": 0.6, "q": 0.6}),
    ("agce", {"a": 3.0, "q": 4.0}),
    ("ael", {"q": 2.5}),
    ("vce", {"a": 4.0}),
    ("vce", {"a": 0.1}),
    ("tce", {"q": 4}),
    ("imae", {"T": 8.0, "saturation": 1e-3}),
    ("imae", {"T": 16.0, "saturation": 0.0}),
    ("gr", {"beta": 8.0, "lam": 0.5, "g": "exp", "saturation": 5e-9}),
    ("gr", {"beta": 3.0, "lam": 0.0, "g": "exp", "saturation": 1e-3}),
    ("gr", {"beta": 3.0, "lam": 0.5, "g": "identity", "saturation": 1e-3}),
    ("gr", {"beta": 3.0, "lam": 0.0, "g": "identity", "saturation": 1e-3}),
    ("js", {"pi": 0.3}),
    ("js", {"pi": 0.9}),
    ("phuber_ce", {"tau": 3.0}),
    ("eps_softmax", {"m": 1e4}),
    ("eps_softmax", {"m": 0.5}),
    ("nce", {}),
    ("nfl", {"q": 0.5}),
    ("nfl", {"q": 2.0}),
    ("anl_ce", {"alpha": 5.0, "beta": 2.0, "p_min": 1e-7}),
    ("anl_ce", {"alpha": 0.0, "beta": 1.0, "p_min": 0.02}),
    ("anl_fl", {"alpha": 5.0, "beta": 2.0, "q": 0.5, "p_min": 1e-7}),
    ("anl_fl", {"alpha": 0.0, "beta": 1.0, "q": 2.0, "p_min": 0.02}),
    ("mse", {}),
    ("amse", {"a": 30.0}),
    ("amse", {"a": 1.5}),
    ("deft", {}),
    ("ls", {"alpha": 0.1}),
    ("gls", {"alpha": -0.6}),
    ("cr", {"beta": 2.0, "prior": None}),
    ("cr", {"beta": 0.7, "prior": [0.1, 0.2, 0.3, 0.4]}),
    ("logit_clip", {"inner": ("nce", {}), "tau": 1.5}),
    ("logit_clip", {"inner": ("gce", {"q": 0.7}), "tau": 1.5}),
    ("logit_clip", {"inner": ("gce", {"q": 0.7}), "tau": 100.0}),
    ("forward", {"inner": ("ce", {}), "matrix": SOME}),
    ("forward", {"inner": ("gce", {"q": 0.7}), "matrix": SOME}),
    ("backward", {"inner": ("ce", {}), "matrix": SOME}),
    ("backward", {"inner": ("nce", {}), "matrix": SOME}),
    ("scaled", {"inner": ("mae", {}), "tau": 2.0, "expected": -5.1}),
    ("scaled", {"inner": ("imae", {"T": 8.0, "saturation": 1e-3}), "tau": 2.0, "expected": -5.1}),
    ("shifted", {"inner": ("js", {"pi": 0.5}), "tau": 2.0, "expected": -5.1}),
    ("shifted", {"inner": ("gce", {"q": 0.7}), "tau": 2.0, "expected": -5.1}),
]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(EXAMPLES)]
each_example = pytest.mark.parametrize(("name", "hyper"), EXAMPLES, ids=IDS)


def _first(name: str, hyper: Hyper) -> bool:
    """Whether this is the first example of its loss."""
    return next(other for known, other in EXAMPLES if known == name) is hyper


def slow_unless_first(examples: list[tuple[str, Hyper]]) -> list[Any]:
    """Parameters of a costly test: the first example of every loss, and with --slow the others too."""
    return [
        pytest.param(name, hyper, id=f"{name}-{i}", marks=[] if _first(name, hyper) else [pytest.mark.slow])
        for i, (name, hyper) in enumerate(examples)
    ]


# DEFT detaches its exponent, so its gradient is not the derivative of its value.
DIFFERENTIATED = [(name, hyper) for name, hyper in EXAMPLES if name != "deft"]
MARGIN_EXAMPLES = [(name, hyper) for name, hyper in EXAMPLES if LOSSES[name].is_margin]
CLOSED_EXAMPLES = [
    (name, hyper)
    for name, hyper in DIFFERENTIATED
    if not {name, hyper.get("inner", ("",))[0]} & {"imae", "focal_detached"} and not (name == "gr" and hyper["g"] == "exp")
]

RANDOM = np.random.default_rng(20190328)
MODERATE = RANDOM.normal(scale=2.0, size=(6, 4))
MODERATE_LABELS = np.array([0, 1, 2, 3, int(MODERATE[4].argmax()), int(MODERATE[5].argmin())])
# Learned, wrong, tied at the top, tied at the bottom, all equal, mixed: rows at which p-space has no precision left.
SATURATED = [
    ([200.0, -150.0, 7.0, 0.0], 0),
    ([200.0, -150.0, 7.0, 0.0], 1),
    ([125.0, 125.0, -50.0, 3.0], 0),
    ([125.0, 125.0, -50.0, 3.0], 2),
    ([0.0, 0.0, 250.0, 0.0], 0),
    ([0.0, 0.0, 250.0, 0.0], 2),
    ([-2.5, -2.5, -2.5, -2.5], 3),
    ([-30.0, 25.0, 24.0, -200.0], 2),
]


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """Every operation on an mpf rounds to the working digits, which are 15 by default."""
    with mp.workdps(DIGITS):
        yield


def relative_error(got: mpf, expected: mpf) -> mpf:
    return abs(got - expected) / abs(expected) if expected else abs(got)


def differences(name: str, row: list[float], label: int, digits: int, **hyper: Any) -> list[mpf]:
    """Central differences with a step of a third of the digits: as many digits right as two thirds of them."""
    slopes = []
    with mp.workdps(digits):
        step = mpf(10) ** -(digits // 3)
        for j in range(len(row)):
            ahead, behind = (exact_value(name, [*row[:j], row[j] + sign * step, *row[j + 1 :]], label, **hyper) for sign in (1, -1))
            slopes.append((ahead - behind) / (2 * step))
    return slopes


def test_every_loss_has_an_example_with_all_its_hyper_parameters() -> None:
    assert {name for name, _ in EXAMPLES} == set(LOSSES)
    assert all(set(hyper) == set(LOSSES[name].hyper) for name, hyper in EXAMPLES)


@each_example
def test_p_space_agrees_with_mpmath(name: str, hyper: Hyper) -> None:
    values = reference.value(name, MODERATE, MODERATE_LABELS, **hyper)
    gradients = reference.gradient(name, MODERATE, MODERATE_LABELS, **hyper)
    for row, label, got, slopes in zip(MODERATE.tolist(), MODERATE_LABELS.tolist(), values, gradients, strict=True):
        assert got == pytest.approx(float(exact_value(name, row, label, **hyper)), rel=1e-11, abs=1e-13)
        expected = np.array(exact_gradient(name, row, label, **hyper), dtype=np.float64)
        np.testing.assert_allclose(slopes, expected, rtol=1e-11, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize(("name", "hyper"), DIFFERENTIATED)
def test_exact_gradient_is_the_derivative_of_the_exact_value(name: str, hyper: Hyper) -> None:
    for row, label in zip(MODERATE[:4].tolist(), MODERATE_LABELS[:4].tolist(), strict=True):
        expected = differences(name, row, label, DIGITS, **hyper)
        for got, slope in zip(exact_gradient(name, row, label, **hyper), expected, strict=True):
            assert abs(got - slope) <= mpf(10) ** -34 * max(1, *map(abs, expected)), (row, label)


@pytest.mark.parametrize(("name", "hyper"), slow_unless_first(CLOSED_EXAMPLES))
def test_saturated_rows_keep_thirty_digits(name: str, hyper: Hyper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient at 60 digits against differences of the value at 600, element by element; the value likewise."""
    for row, label in SATURATED:
        if name == "eps_softmax" and row.count(max(row)) > 1:
            continue  # at a tie the arg max changes with any step, so there is no derivative to compare with
        got_value, got = exact_value(name, row, label, **hyper), exact_gradient(name, row, label, **hyper)
        with monkeypatch.context() as patch:
            patch.setattr(reference, "DIGITS", 600)
            value = exact_value(name, row, label, **hyper)
            slopes = differences(name, row, label, 600, **hyper)
        assert relative_error(got_value, value) < 1e-30 or abs(value) < mpf(10) ** -350, (row, label)
        for element, slope in zip(got, slopes, strict=True):
            if abs(slope) > mpf(10) ** -350:
                assert relative_error(element, slope) < 1e-30, (row, label)
            else:
                assert abs(element) < mpf(10) ** -340, (row, label)


@pytest.mark.parametrize(("name", "hyper"), slow_unless_first(EXAMPLES))
def test_scores_of_ten_thousand_give_finite_results(name: str, hyper: Hyper) -> None:
    for label in range(4):
        row = [1e4, -1e4, 5.0, 0.0]
        assert mp.isfinite(exact_value(name, row, label, **hyper))
        assert all(mp.isfinite(slope) for slope in exact_gradient(name, row, label, **hyper))


@pytest.mark.parametrize(("name", "hyper"), MARGIN_EXAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(MARGIN_EXAMPLES)])
def test_margin_forms_equal_row_forms(name: str, hyper: Hyper) -> None:
    """The value at the row's margin is the row's value; the emphasis is minus the label's slope and half the L1 norm."""
    for row, label in zip(MODERATE.tolist(), MODERATE_LABELS.tolist(), strict=True):
        with mp.workdps(DIGITS):
            margin = mpf(row[label]) - mp.log(mp.fsum(mp.exp(score) for j, score in enumerate(row) if j != label))
        emphasis, slopes = exact_emphasis_at(name, margin, **hyper), exact_gradient(name, row, label, **hyper)
        assert relative_error(exact_value_at(name, margin, **hyper), exact_value(name, row, label, **hyper)) < 1e-50
        assert relative_error(-slopes[label], emphasis) < 1e-50
        with mp.workdps(DIGITS):
            assert relative_error(mp.fsum(map(abs, slopes)) / 2, emphasis) < 1e-50
        assert emphasis >= 0


def test_a_loss_that_is_not_a_function_of_the_margin_has_no_margin_form() -> None:
    with pytest.raises(ValueError) as caught:
        exact_emphasis_at("nce", 1.0)
    assert "nce" in str(caught.value)


@pytest.mark.parametrize("saturation", [1e-3, 5e-9])
@pytest.mark.parametrize("margin", [-1e4, -7.25, 1e-9, 0.5, 18.0, 25.0, 1e4])
def test_potentials_match_their_elementary_cases(margin: float, saturation: float) -> None:
    """Detached focal at q = 0 and q = 1, and IMAE at T = 0, integrate in closed form."""
    with mp.workdps(2 * DIGITS):
        d, e = mpf(margin), mpf(saturation)
        log_p, half = -mp.log1p(mp.exp(-d)), mp.log(2)
        v = 1 / (1 + mp.exp(d))
        faded = -(d - mp.log((1 + e + e * mp.exp(d)) / (1 + 2 * e))) / (2 * (1 + e))
        expected = {("focal_detached", 0.0): -log_p - half, ("focal_detached", 1.0): -log_p - half - v + mpf(1) / 2}
    for (name, q), closed in expected.items():
        assert relative_error(exact_value_at(name, margin, q=q), closed) < 1e-45
    assert relative_error(exact_value_at("imae", margin, T=0.0, saturation=saturation), faded) < 1e-45


@pytest.mark.parametrize("margin", [-12.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_potentials_match_another_quadrature(margin: float) -> None:
    for name, hyper in (
        ("imae", {"T": 16.0, "saturation": 5e-9}),
        ("gr", {"beta": 12.0, "lam": 0.5, "g": "exp", "saturation": 1e-3}),
        ("gr", {"beta": 12.0, "lam": 2.0, "g": "exp", "saturation": 0.0}),
        ("focal_detached", {"q": 0.5}),
    ):
        with mp.workdps(DIGITS):
            points = mp.linspace(0, mpf(margin), 9)
            expected = -mp.quad(lambda t, name=name, hyper=hyper: exact_emphasis_at(name, t, **hyper), points, method="tanh-sinh")
        assert relative_error(exact_value_at(name, margin, **hyper), expected) < 1e-50


@pytest.mark.parametrize(("name", "hyper"), [each for each in DIFFERENTIATED if "matrix" not in each[1]])
def test_p_space_gradient_with_a_hundred_thousand_classes(name: str, hyper: Hyper) -> None:
    """Along a random direction, against a float64 central difference."""
    classes = 100_000
    random = np.random.default_rng(7)
    scores, direction = random.normal(size=(2, classes)), random.normal(size=(2, classes))
    scores[:, 5] += 11.0  # a label that holds a fair share of the probability
    direction[:, 5] = 1.0
    labels = np.array([5, 5])
    if hyper.get("prior") is not None:
        hyper = {**hyper, "prior": random.dirichlet(np.ones(classes)).tolist()}
    if "p_min" in hyper:
        hyper = {**hyper, "p_min": 1e-7}
    step = 1e-4
    ahead, behind = (reference.value(name, scores + sign * step * direction, labels, **hyper) for sign in (1, -1))
    got = (reference.gradient(name, scores, labels, **hyper) * direction).sum(axis=1)
    np.testing.assert_allclose(got, (ahead - behind) / (2 * step), rtol=2e-5, atol=1e-10)


SAME: list[tuple[str, tuple[str, Hyper], tuple[str, Hyper], float]] = [
    ("IMAE is GR at λ = 1", ("imae", {"T": 5.0, "saturation": 1e-3}), ("gr", {"beta": 5.0, "lam": 1.0, "g": "exp", "saturation": 1e-3}), 1),
    ("GR (2, 0, identity) is CE", ("gr", {"beta": 2.0, "lam": 0.0, "g": "identity", "saturation": 0.0}), ("ce", {}), 1),
    ("GR (4, 1, identity) is MAE", ("gr", {"beta": 4.0, "lam": 1.0, "g": "identity", "saturation": 0.0}), ("mae", {}), 1),
    ("GR (2, q, identity) is GCE", ("gr", {"beta": 2.0, "lam": 0.7, "g": "identity", "saturation": 0.0}), ("gce", {"q": 0.7}), 1),
    ("GCE at 1 is half of MAE", ("gce", {"q": 1.0}), ("mae", {}), 0.5),
    ("DFT is half of MAE", ("dft", {}), ("mae", {}), 0.5),
    ("TCE at 1 is half of MAE", ("tce", {"q": 1}), ("mae", {}), 0.5),
    ("RCE at A = −2 is MAE", ("rce", {"A": -2.0}), ("mae", {}), 1),
    ("AUL at q = 1 is half of MAE", ("aul", {"a": 3.0, "q": 1.0}), ("mae", {}), 0.5),
    ("AGCE at q = 1 is half of MAE", ("agce", {"a": 3.0, "q": 1.0}), ("mae", {}), 0.5),
    ("focal at 0 is CE", ("focal", {"q": 0.0}), ("ce", {}), 1),
    ("SCE without RCE is a multiple of CE", ("sce", {"alpha": 3.0, "beta": 0.0, "A": -4.0}), ("ce", {}), 3),
    ("SCE without CE is a multiple of MAE", ("sce", {"alpha": 0.0, "beta": 1.0, "A": -4.0}), ("mae", {}), 2),
    ("untruncated GCE", ("truncated_gce", {"q": 0.7, "kappa": 1e-9}), ("gce", {"q": 0.7}), 1),
    ("PHuber with a threshold below p is CE", ("phuber_ce", {"tau": 1e9}), ("ce", {}), 1),
    ("ε-softmax at m = 0 is CE", ("eps_softmax", {"m": 0.0}), ("ce", {}), 1),
    ("NFL at 0 is NCE", ("nfl", {"q": 0.0}), ("nce", {}), 1),
    ("ANL without its negative part is NCE", ("anl_ce", {"alpha": 2.0, "beta": 0.0, "p_min": 1e-7}), ("nce", {}), 2),
    (
        "ANL-FL at 0 is ANL-CE",
        ("anl_fl", {"alpha": 2.0, "beta": 3.0, "q": 0.0, "p_min": 0.02}),
        ("anl_ce", {"alpha": 2.0, "beta": 3.0, "p_min": 0.02}),
        1,
    ),
    ("AMSE of four classes at a = 1 is a quarter of MSE", ("amse", {"a": 1.0}), ("mse", {}), 0.25),
    ("no smoothing is CE", ("ls", {"alpha": 0.0}), ("ce", {}), 1),
    ("smoothing is CE with a uniform prior's confidence", ("gls", {"alpha": -0.5}), ("cr", {"beta": 0.5 / 1.5, "prior": None}), 1.5),
    (
        "forward correction without noise is the inner loss",
        ("forward", {"inner": ("gce", {"q": 0.7}), "matrix": IDENTITY}),
        ("gce", {"q": 0.7}),
        1,
    ),
    ("backward correction without noise is the inner loss", ("backward", {"inner": ("nce", {}), "matrix": IDENTITY}), ("nce", {}), 1),
    ("no regulariser is CE", ("cr", {"beta": 0.0, "prior": None}), ("ce", {}), 1),
    ("a loose clip is no clip", ("logit_clip", {"inner": ("nfl", {"q": 2.0}), "tau": 1e3}), ("nfl", {"q": 2.0}), 1),
    ("scaling by 1", ("scaled", {"inner": ("js", {"pi": 0.3}), "tau": 5.1, "expected": -5.1}), ("js", {"pi": 0.3}), 1),
    ("shifting by 0", ("shifted", {"inner": ("gce", {"q": 0.7}), "tau": 5.1, "expected": -5.1}), ("gce", {"q": 0.7}), 1),
]


@pytest.mark.parametrize(("first", "second", "factor"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_identity(first: tuple[str, Hyper], second: tuple[str, Hyper], factor: float) -> None:
    for row, label in zip(MODERATE.tolist(), MODERATE_LABELS.tolist(), strict=True):
        with mp.workdps(DIGITS):
            expected = factor * exact_value(second[0], row, label, **second[1])
            slopes = [factor * slope for slope in exact_gradient(second[0], row, label, **second[1])]
        assert relative_error(exact_value(first[0], row, label, **first[1]), expected) < 1e-15
        for got, slope in zip(exact_gradient(first[0], row, label, **first[1]), slopes, strict=True):
            assert relative_error(got, slope) < 1e-14


@pytest.mark.parametrize(
    ("name", "hyper", "limit", "factor"),
    [
        ("gce", {"q": 1e-25}, "ce", 1),
        ("agce", {"a": 1e-25, "q": 1.0}, "mae", 0.5),
        ("tce", {"q": 4000}, "ce", 1),
        ("js", {"pi": 1e-25}, "ce", 1),
    ],
)
def test_limit(name: str, hyper: Hyper, limit: str, factor: float) -> None:
    for margin in (-4.0, 0.0, 4.0):
        assert relative_error(exact_value_at(name, margin, **hyper), factor * exact_value_at(limit, margin)) < 1e-20
        assert relative_error(exact_emphasis_at(name, margin, **hyper), factor * exact_emphasis_at(limit, margin)) < 1e-20


def test_js_nears_half_of_mae_as_the_label_takes_all_weight() -> None:
    """Slowly: the gap shrinks as 1/log(1 − π)."""
    gaps = [relative_error(exact_emphasis_at("js", 1.0, pi=pi), exact_emphasis_at("gce", 1.0, q=1.0)) for pi in (0.9, 1 - 1e-6, 1 - 1e-15)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


def test_detached_focal_rescales_the_gradient_of_cross_entropy() -> None:
    p = reference.softmax(MODERATE)[np.arange(6), MODERATE_LABELS]
    expected = (1 - p)[:, None] ** 1.5 * reference.gradient("ce", MODERATE, MODERATE_LABELS)
    np.testing.assert_allclose(reference.gradient("focal_detached", MODERATE, MODERATE_LABELS, q=1.5), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "hyper", "total"),
    [("nce", {}, 1), ("nfl", {"q": 2.0}, 1), ("mae", {}, 6), ("anl_ce", {"alpha": 0.0, "beta": 1.0, "p_min": 0.02}, 3)],
)
def test_symmetric_losses_sum_to_a_constant_over_the_labels(name: str, hyper: Hyper, total: float) -> None:
    for row in MODERATE.tolist():
        with mp.workdps(DIGITS):
            assert relative_error(mp.fsum(exact_value(name, row, label, **hyper) for label in range(4)), mpf(total)) < 1e-50


def test_active_negative_loss_is_zero_if_every_other_class_is_clamped() -> None:
    assert exact_value("anl_ce", [50.0, 0.0, 0.0], 0, alpha=0.0, beta=1.0, p_min=1e-7) == 0
    assert exact_gradient("anl_fl", [50.0, 0.0, 0.0], 0, alpha=0.0, beta=1.0, q=0.5, p_min=1e-7) == [0, 0, 0]


def test_the_gradient_of_clipped_scores_is_orthogonal_to_the_scores() -> None:
    for row, label in zip(MODERATE.tolist(), MODERATE_LABELS.tolist(), strict=True):
        slopes = exact_gradient("logit_clip", row, label, inner=("ce", {}), tau=1.0)
        with mp.workdps(DIGITS):
            assert abs(mp.fsum(mpf(score) * slope for score, slope in zip(row, slopes, strict=True))) < 1e-50


@pytest.mark.parametrize("copies", [1, 3])
def test_gjs_of_equal_views_is_js(copies: int) -> None:
    for row, label in [*zip(MODERATE.tolist(), MODERATE_LABELS.tolist(), strict=True), *SATURATED]:
        assert relative_error(exact_gjs([row] * copies, label, 0.3), exact_value("js", row, label, pi=0.3)) < 1e-50
        for got in exact_gjs_gradient([row] * copies, label, 0.3):
            for slope, expected in zip(got, exact_gradient("js", row, label, pi=0.3), strict=True):
                with mp.workdps(DIGITS):
                    assert relative_error(copies * slope, expected) < 1e-50


def test_gjs_is_the_weighted_entropy_gap() -> None:
    """H(m) − Σ weights·H as Englesson & Azizpour define it, with plain probabilities."""
    views, label, pi = MODERATE[:3], 2, 0.4
    p = reference.softmax(views)
    mixture = 0.2 * p.sum(axis=0) + pi * (np.arange(4) == label)
    gap = -(mixture * np.log(mixture)).sum() + 0.2 * (p * np.log(p)).sum()
    assert float(exact_gjs(views.tolist(), label, pi)) == pytest.approx(gap / (-0.6 * np.log(0.6)), rel=1e-13)


def test_gjs_gradient_is_the_derivative_of_its_value() -> None:
    views, label, step = MODERATE[:2].tolist(), 1, mpf(10) ** -20
    gradient = exact_gjs_gradient(views, label, 0.4)
    for k in range(2):
        for j in range(4):
            with mp.workdps(DIGITS):
                moved = [
                    [[s + sign * step * ((a, b) == (k, j)) for b, s in enumerate(view)] for a, view in enumerate(views)] for sign in (1, -1)
                ]
                slope = (exact_gjs(moved[0], label, 0.4) - exact_gjs(moved[1], label, 0.4)) / (2 * step)
            assert relative_error(gradient[k][j], slope) < 1e-34


@pytest.mark.parametrize(("name", "hyper", "printed"), printed_numbers.UNIFORM_VARIANCES)
def test_uniform_variances_are_the_printed_ones(name: str, hyper: Hyper, printed: float) -> None:
    tolerance = 5e-4 if name == "imae" else 1e-12
    assert abs(printed_numbers.uniform_variance(name, **hyper) - printed) <= tolerance


@pytest.mark.parametrize(("name", "hyper", "focus"), printed_numbers.FOCI)
def test_emphasis_peaks_at_its_focus(name: str, hyper: Hyper, focus: float) -> None:
    grid = np.arange(1, 500) / 500
    emphases = [exact_emphasis_at(name, float(margin), **hyper) for margin in np.log(grid / (1 - grid))]
    assert abs(grid[int(np.argmax(emphases))] - focus) <= 0.002 + 1e-12


@pytest.mark.parametrize(("classes", "approximate", "simulated", "used"), printed_numbers.EXPECTED_MARGINS)
def test_expected_margins_at_initialisation(classes: int, approximate: float, simulated: float, used: float) -> None:
    scores = np.random.default_rng(1).normal(size=(4_000_000 // classes, classes))
    margins = scores[:, 0] - np.log(np.exp(scores[:, 1:]).sum(axis=1))
    assert printed_numbers.expected_margin(classes) == pytest.approx(approximate, abs=5e-4)
    assert margins.mean() == pytest.approx(simulated, abs=4 * margins.std() / np.sqrt(len(margins)) + 5e-4)
    assert used == pytest.approx(-simulated, rel=0.05)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("spread", [1.0, 3.0, 8.0])
def test_nce_gradient_stays_below_the_corrected_bound(classes: int, spread: float) -> None:
    random = np.random.default_rng(classes)
    scores, labels = random.normal(scale=spread, size=(2000, classes)), random.integers(classes, size=2000)
    norms = np.abs(reference.gradient("nce", scores, labels)).sum(axis=1)
    assert (norms <= printed_numbers.nce_bound(scores, labels) * (1 + 1e-9) + 1e-14).all()


def test_nce_gradient_exceeds_the_printed_bound() -> None:
    """Two classes, p_y = 0.94: ‖∂L/∂s‖₁ is 1.26 times 2γ(1+ε)·w_CE."""
    scores, labels = np.array([[np.log(0.94 / 0.06), 0.0]]), np.array([0])
    ratio = np.abs(reference.gradient("nce", scores, labels)).sum() / printed_numbers.printed_nce_bound(scores, labels)[0]
    assert ratio == pytest.approx(1.261, abs=1e-3)
