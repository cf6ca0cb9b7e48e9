"""Precision: every loss against the independent implementations of tests/reference.py, in every type and for many classes."""

import math

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.nn.functional import pad

import noisewise
import printed_numbers
import reference
from noisewise.losses import GJS, Loss
from noisewise.noise import Noise
from refused import refused, warned
from registry import EVERY, MARGIN, SEPARATE, SUMS, build, slow_unless_first

# Peer loss draws at random (tests/test_peer.py); sums are linear (tests/test_contract.py).
COMPARED = [spec for spec in EVERY if spec not in SUMS and not spec.startswith("peer(")]
AT_MARGINS = [spec for spec in MARGIN if spec not in SUMS and not build(spec).adapts]
# A difference of costs can be small: the error of the value is measured against the costs, not against their difference.
DIFFERENCES = ("backward(", "gls(", "cr(", "ls(", "anl_")
# Curricula that take E[Δ] from the number of classes do not work with two classes, where it is 0.
MOVED = ("scaled(mae, 2.0)", "shifted(mae, 2.0)")

EXTREMES = [
    ([1e4, -1e4], 0),
    ([1e4, -1e4], 1),
    ([0.0, 0.0, 0.0], 1),
    ([50.0, 0.0, -50.0], 0),
    ([50.0, 0.0, -50.0], 2),
    ([9999.5, 1e4, -1e4, 3.0], 0),
    ([-17.0, 0.0, 0.0], 0),
    ([1e4, 9988.0, 9987.0, 0.0], 0),
    ([0.3, -2.0, 4.0, 1.0, -0.5], 2),
    ([0.3, -2.0, 4.0, 1.0, -0.5], 1),
    ([-95.0, 3.0, 4.0, 1.0, -0.5], 0),
    ([1e-3, 0.0, -1e-3, 12.0], 3),
]


def matrix(noise: Noise, classes: int) -> tuple[tuple[float, ...], ...]:
    """The transition matrix of symmetric noise, by its definition."""
    assert noise.name == "symmetric"
    return tuple(tuple(1 - noise.rate if i == j else noise.rate / (classes - 1) for j in range(classes)) for i in range(classes))


def transcription(loss: Loss, classes: int) -> tuple[str, dict[str, object], float]:
    """The name and hyper-parameters of a loss in reference.py, and the number its emphasis is divided by."""
    if loss.name == "normalised":
        name, hyper, _ = transcription(loss.loss, classes)
        return name, hyper, loss._scale
    if loss.name == "scheduled":
        return transcription(loss.loss, classes)
    if loss.name in ("scaled", "shifted"):
        expected = loss.expected if loss.expected is not None else printed_numbers.expected_margin(classes)
        return loss.name, {"inner": transcription(loss.loss, classes)[:2], "tau": loss.tau, "expected": expected}, 1.0
    if loss.name == "logit_clip":
        return loss.name, {"inner": transcription(loss.loss, classes)[:2], "tau": loss.tau}, 1.0
    if loss.name in ("forward", "backward"):
        return loss.name, {"inner": transcription(loss.loss, classes)[:2], "matrix": matrix(loss.noise, classes)}, 1.0
    if loss.adapts:  # before its first update
        return "scaled", {"inner": ("gce", {"q": float(loss.q)}), "tau": float(loss.scale(classes)), "expected": -1.0}, 1.0
    name = "js" if loss.name == "gjs" else loss.name
    return name, {key: getattr(loss, key) for key in reference.LOSSES[name].hyper}, getattr(loss, "_scale", 1.0)


def ours(loss: Loss, row: list[float], label: int, dtype: torch.dtype) -> tuple[float, np.ndarray]:
    scores = torch.tensor([row], dtype=dtype, requires_grad=True)
    value = loss(scores, torch.tensor([label]))
    value.backward()
    return float(value.detach()), scores.grad[0].double().numpy()


def costs(row: list[float], label: int) -> float:
    """The size of the terms a difference is made of: what the label costs plus what the classes cost on average."""
    each = [float(reference.exact_value("ce", row, other)) for other in range(len(row))]
    return each[label] + sum(each) / len(each) + 1


def slope_before_clipping(loss: Loss, row: list[float], label: int) -> float:
    """The largest slope of clipped scores before the part along the scores, which can be all of it, is removed."""
    shrink = min(1.0, loss.tau / max(math.hypot(*row), loss.tau))
    name, hyper, scale = transcription(loss.loss, len(row))
    slopes = reference.exact_gradient(name, [shrink * score for score in row], label, **hyper)
    return max(abs(float(slope)) for slope in slopes) * shrink / scale


@pytest.mark.parametrize("spec", slow_unless_first(COMPARED))
def test_value_and_gradient_are_exact_to_the_precision_of_float32(spec):
    compare_with_exact(spec, torch.float32)


@pytest.mark.parametrize("spec", slow_unless_first(COMPARED))
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_value_and_gradient_are_exact_to_half_precision(spec, dtype):
    compare_with_exact(spec, dtype)


def compare_with_exact(spec: str, dtype: torch.dtype) -> None:
    tolerance = 1e-6 if dtype == torch.float32 else 1.01 * torch.finfo(dtype).eps
    tiny = torch.finfo(dtype).tiny
    for row, label in EXTREMES:
        row = torch.tensor(row, dtype=dtype).double().tolist()
        if spec in MOVED and len(row) == 2:
            continue
        loss = build(spec)
        name, hyper, scale = transcription(loss, len(row))
        value, gradient = ours(loss, row, label, dtype)
        exact = reference.exact_value(name, row, label, **hyper) / scale
        slopes = [float(slope / scale) for slope in reference.exact_gradient(name, row, label, **hyper)]
        margin = abs(float(noisewise.margin(torch.tensor([row], dtype=torch.float64), torch.tensor([label]))))
        allowed = tolerance * (1 + margin) if dtype == torch.float32 else tolerance
        size = costs(row, label) if spec.startswith(DIFFERENCES) else abs(float(exact))
        if abs(float(exact)) < torch.finfo(dtype).max:
            assert abs(value - float(exact)) <= allowed * size + tiny, (row, label, value, float(exact))
        largest = slope_before_clipping(loss, row, label) if loss.name == "logit_clip" else max(abs(slope) for slope in slopes)
        error = np.abs(gradient - slopes).max()
        assert error <= allowed * largest + tiny, (row, label, gradient, slopes)


@pytest.mark.parametrize("spec", slow_unless_first(AT_MARGINS))
def test_float64_is_exact_for_probabilities_from_1e_minus_300_to_one_minus_that(spec):
    loss = build(spec, classes=10)
    name, hyper, scale = transcription(loss, 10)
    for margin in (-690.7, -300.0, -41.0, -8.0, -1.0, -1e-6, 0.0, 1e-3, 0.1, 2.0, 12.0, 36.0, 200.0, 690.7):
        d = torch.tensor(margin, dtype=torch.float64)
        with mp.workdps(40):
            exact_value = reference.exact_value_at(name, mpf(margin), **hyper) / scale
            exact_emphasis = reference.exact_emphasis_at(name, mpf(margin), **hyper) / scale
            # A margin rounded to float64 is known to |Δ|·2⁻⁵³ only: an exponential of it cannot be known better.
            allowed = 2e-13 * (1 + abs(margin) / 10)
            assert abs(mpf(float(loss.value(d))) - exact_value) <= allowed * abs(exact_value) + mpf(10) ** -305, margin
            assert abs(mpf(float(loss.emphasis(d))) - exact_emphasis) <= allowed * abs(exact_emphasis) + mpf(10) ** -305, margin


@pytest.mark.parametrize("spec", COMPARED)
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_any_number_of_classes_agrees_with_p_space(spec, classes):
    compare_with_p_space(spec, classes)


@pytest.mark.parametrize("spec", ["ce", "imae(T=8.0)", "gce(q=0.7)", "nce", "mse", "agce(a=1e-5, q=0.5)", "anl_ce(alpha=5.0, beta=5.0)"])
def test_a_hundred_thousand_classes_agree_with_p_space(spec):
    compare_with_p_space(spec, 100_000)


def compare_with_p_space(spec: str, classes: int) -> None:
    if spec in MOVED and classes == 2:
        with refused("two classes", "expected"):
            build(spec)(torch.zeros(1, 2), torch.tensor([0]))
        return
    number = 3 if classes > 1000 else 8
    random = np.random.default_rng(classes + 1)  # with this seed no smoothed target happens to equal a prediction
    scores = random.normal(0, 2, (number, classes)).astype(np.float32).astype(np.float64)
    labels = random.integers(0, classes, number)
    scores[0, labels[0]] += 10.0  # one example that is learned
    loss = build(spec, reduction="none")
    name, hyper, scale = transcription(loss, classes)
    value = reference.value(name, scores, labels, **hyper) / scale
    gradient = reference.gradient(name, scores, labels, **hyper) / scale
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-6)):
        given = torch.tensor(scores, dtype=dtype, requires_grad=True)
        actual = loss(given, torch.tensor(labels))
        actual.sum().backward()
        margin = noisewise.margin(given.detach(), torch.tensor(labels)).abs().double().numpy()
        allowed = tolerance * (1 + margin)
        between = -np.log(reference.softmax(scores)).mean(1) if spec.startswith(DIFFERENCES) else 0.0
        assert (np.abs(actual.detach().numpy() - value) <= allowed * (np.abs(value) + between)).all()
        error = np.abs(given.grad.double().numpy() - gradient).max(1)
        size = np.abs(gradient).max(1)
        assert (error <= allowed * size + torch.finfo(dtype).tiny).all(), (error, size)


@pytest.mark.parametrize("spec", ["eps_softmax(m=1.0)", "mse", "amse(a=2.5)", "deft", "nce", "nfl(q=2.0)", "anl_ce(alpha=5.0, beta=5.0)"])
@pytest.mark.parametrize("chosen", ["winner", "loser"])
def test_the_gradient_of_a_thousand_classes_of_nearly_equal_scores_is_exact(spec: str, chosen: str) -> None:
    random = np.random.default_rng(0)
    scores = random.normal(0, 0.1, (16, 1000)).astype(np.float32)
    labels = scores.argmax(1) if chosen == "winner" else scores.argmin(1)
    loss = build(spec, reduction="sum")
    name, hyper, _ = transcription(loss, 1000)
    exact = reference.gradient(name, scores.astype(np.float64), labels, **hyper)
    given = torch.from_numpy(scores).requires_grad_()
    loss(given, torch.from_numpy(labels)).backward()
    assert (np.abs(given.grad.numpy() - exact).max(1) <= 2e-6 * np.abs(exact).max(1)).all()


@pytest.mark.parametrize(
    "spec", ["nce", "nfl(q=2.0)", "nfl(q=0.5)", "anl_ce(alpha=5.0, beta=5.0)", "mse", "amse(a=2.5)", "forward('symmetric(0.4)')"]
)
@pytest.mark.parametrize("margin", [-30.0, -8.0, 8.0, 30.0])
def test_the_gradient_of_two_classes_is_exact_far_from_the_boundary(spec: str, margin: float) -> None:
    loss = build(spec)
    name, hyper, _ = transcription(loss, 2)
    _, gradient = ours(loss, [margin, 0.0], 0, torch.float32)
    exact = [float(slope) for slope in reference.exact_gradient(name, [margin, 0.0], 0, **hyper)]
    np.testing.assert_allclose(gradient, exact, rtol=1e-6 * (1 + abs(margin)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pi", [1e-5, 1e-3, 0.999, 1 - 1e-6])
def test_the_divergence_is_exact_for_a_label_of_nearly_no_or_nearly_all_weight(pi, dtype):
    d = torch.tensor([-80.0, -20.0, -5.0, -1.0, -0.01, 0.0, 0.01, 1.0, 5.0, 12.0, 30.0], dtype=dtype)
    exact = torch.tensor([float(reference.exact_value_at("js", each, pi=pi)) for each in d.tolist()], dtype=torch.float64)
    torch.testing.assert_close(noisewise.get(f"js(pi={pi!r})").value(d).double(), exact, rtol=50 * torch.finfo(dtype).eps, atol=0.0)


def test_views_of_an_example_agree_with_the_generalised_divergence():
    views = [[0.3, -2.0, 4.0, 1.0], [1.0, 0.5, 2.0, -1.0], [-3.0, 0.0, 1.0, 5.0]]
    for pi in (0.1, 0.5, 0.9):
        for label in range(4):
            scores = [torch.tensor([view], dtype=torch.float64, requires_grad=True) for view in views]
            value = GJS(pi=pi)(scores, torch.tensor([label]))
            value.backward()
            assert math.isclose(float(value.detach()), float(reference.exact_gjs(views, label, pi)), rel_tol=1e-12)
            for view, slopes in zip(scores, reference.exact_gjs_gradient(views, label, pi), strict=True):
                np.testing.assert_allclose(view.grad[0].numpy(), [float(slope) for slope in slopes], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_views_with_class_probabilities_class_weights_and_smoothing_give_the_expected_divergence(label_smoothing):
    views = torch.tensor([[0.3, -2.0, 4.0, 1.0], [1.0, 0.5, 2.0, -1.0]], dtype=torch.float64)
    weight, target = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([[0.1, 0.6, 0.3, 0.0]], dtype=torch.float64)
    cost = torch.tensor([float(reference.exact_gjs(views.tolist(), label, 0.4)) for label in range(4)], dtype=torch.float64)
    loss = GJS(pi=0.4, reduction="sum", weight=weight, label_smoothing=label_smoothing)
    for given, share in ((target, target[0]), (torch.tensor([2]), torch.eye(4, dtype=torch.float64)[2])):
        smooth = (1 - label_smoothing) * share + label_smoothing / 4
        torch.testing.assert_close(loss(list(views.unsqueeze(1)), given), (smooth * weight * cost).sum())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_views_in_half_precision_are_widened_before_any_arithmetic(dtype):
    torch.manual_seed(0)
    views, target = [(3 * torch.randn(64, 10)).to(dtype) for _ in range(2)], torch.randint(10, (64,))
    loss = GJS(reduction="none")
    exact = loss([view.double() for view in views], target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss(views, target).double(), exact, rtol=1e-6, atol=1e-6)
    assert loss(views, target).dtype == dtype
    assert ((loss(views, target).double() - exact).abs() <= 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-6).all()
    soft = torch.rand(64, 10).softmax(1)
    assert loss(views, soft).dtype == loss(views[0], soft).dtype == torch.float32


@pytest.mark.parametrize("spec", ["ce", "gce(q=0.7)", "imae(T=8.0)", "nce", "0.3*nce + 0.7*mae"])
def test_a_scaled_loss_keeps_the_gradient_of_many_classes_in_float16(spec):
    """Without a scale, the gradients of a thousand classes underflow float16, for torch's cross-entropy too."""
    torch.manual_seed(0)
    scores, target = torch.randn(512, 1000).half(), torch.randint(1000, (512,))
    exact = scores.double().requires_grad_()
    noisewise.get(spec)(exact, target).backward()
    scores.requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        (2.0**15 * noisewise.get(spec)(scores, target)).backward()
    error = scores.grad.double() / 2.0**15 - exact.grad
    assert error.abs().sum() < 0.005 * exact.grad.abs().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margins_are_exact_where_softmax_saturates(dtype):
    for row, _ in EXTREMES:
        row = torch.tensor(row, dtype=dtype).double().tolist()
        every = noisewise.margins(torch.tensor([row], dtype=dtype))[0]
        for label in range(len(row)):
            with mp.workdps(50):
                others = mp.log(mp.fsum(mp.exp(mpf(score)) for other, score in enumerate(row) if other != label))
                exact = float(mpf(row[label]) - others)
            single = noisewise.margin(torch.tensor([row], dtype=dtype), torch.tensor([label]))
            for margin in (float(single), float(every[label])):
                assert abs(margin - exact) <= 4 * torch.finfo(dtype).eps * (1 + abs(exact)), (row, label)


def test_published_p_space_formulas_fail_where_ours_do_not():
    scores = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    (scores.softmax(1)[:, 0] ** 0.7).sum().backward()  # GCE as published, without a clamp
    assert not torch.isfinite(scores.grad).all(), "p-space became exact: margins are no longer needed"
    scores.grad = None
    noisewise.get("gce(q=0.7)")(scores, torch.tensor([0, 0])).backward()
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("spec", ["mse", "binary(mse)"])
@pytest.mark.parametrize("score", [3.0, 8.0, 10.0, 15.0])
def test_the_loss_of_a_learned_class_is_the_same_for_probabilities_and_labels(spec: str, score: float) -> None:
    scores = torch.tensor([[score]] if spec.startswith("binary") else [[score, 0.0, 1.0]])
    exact = build(spec)(scores.double(), torch.ones_like(scores).double() if spec.startswith("binary") else torch.tensor([0]))
    actual = build(spec)(scores, torch.eye(scores.shape[1])[:1])
    assert actual.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize(("a", "q"), [(1.1, 40.0), (1.001, 13.0), (1.0001, 10.0), (2.0, 3.0)])
@pytest.mark.parametrize("score", [-30.0, -1.0, 0.0, 3.0, 12.0])
def test_a_steep_aul_stays_finite_in_float32(a: float, q: float, score: float) -> None:
    scores, label = torch.tensor([[score, 0.0]]), torch.tensor([0])
    p = 1 / (1 + mp.exp(-mpf(score)))
    exact = ((mpf(a) - p) ** mpf(q) - (mpf(a) - 1) ** mpf(q)) / mpf(q)
    assert noisewise.get(f"aul(a={a}, q={q})")(scores, label).item() == pytest.approx(float(exact), rel=1e-4, abs=1e-37)


def test_clipped_scores_have_second_derivatives_at_zero_and_ignore_masked_classes() -> None:
    loss, label = noisewise.get("logit_clip(ce, tau=1.5)"), torch.tensor([0])
    zero = torch.zeros(1, 3, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.functional.hessian(lambda s: loss(s, label), zero),
        torch.autograd.functional.hessian(lambda s: noisewise.get("ce")(s, label), zero),
    )
    for size in (1.0, 1e20):
        scores = size * torch.tensor([[1.0, 2.0]])
        masked = torch.cat([scores, torch.tensor([[-torch.inf]])], 1).requires_grad_()
        value = loss(masked, label)
        value.backward()
        torch.testing.assert_close(value, loss(scores, label))
        assert masked.grad is not None and masked.grad.isfinite().all()


@pytest.mark.parametrize("several", [True, False], ids=["in all views", "in one view"])
def test_a_class_masked_in_views_is_ignored(several: bool) -> None:
    full = [torch.tensor([[1.0, 0.0, 0.3]], dtype=torch.float64), torch.tensor([[0.0, 1.0, -0.2]], dtype=torch.float64)]
    gone = torch.tensor([[False, False, True]])
    views = [view.masked_fill(gone & (several or place == 0), -torch.inf).requires_grad_() for place, view in enumerate(full)]
    low = [view.masked_fill(gone & (several or place == 0), -700.0).requires_grad_() for place, view in enumerate(full)]
    masked, expected = (GJS()(given, torch.tensor([0])) for given in (views, low))
    torch.testing.assert_close(masked, expected)
    for gradient, slope in zip(torch.autograd.grad(masked, views), torch.autograd.grad(expected, low), strict=True):
        torch.testing.assert_close(gradient, slope)


def test_views_of_an_example_accept_probabilities_and_smoothing() -> None:
    views, target = [torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1.0, 0.0, 0.5])], torch.tensor([0.2, 0.7, 0.1])
    rows = [view.unsqueeze(0) for view in views]
    torch.testing.assert_close(GJS()(views, target), GJS()(rows, target.unsqueeze(0)))
    smooth = GJS(label_smoothing=0.1)
    torch.testing.assert_close(smooth(views, torch.tensor(1)), smooth(rows, torch.tensor([1])))


@pytest.mark.parametrize("spec", ["anl_ce(p_min=0.2)", "anl_fl(p_min=0.2)"])
def test_the_loss_is_finite_if_every_class_is_clamped(spec: str) -> None:
    with warned("p_min=0.2", "10 classes"):
        assert noisewise.get(spec)(torch.zeros(1, 10), torch.tensor([3])).isfinite()


@pytest.mark.parametrize("name", ["anl_ce", "anl_fl"])
def test_a_p_min_with_singular_gradients_gives_one_warning_per_number_of_classes(name: str) -> None:
    loss, label = noisewise.get(f"0.5*{name}(p_min=0.2) + ce"), torch.tensor([0])
    for classes in (5, 8):
        with warned(f"{name}(", "p_min=0.2", f" {classes} classes"):
            loss(torch.randn(1, classes), label)
        loss(torch.randn(1, classes), label)  # a second warning would be an error here
    loss(torch.randn(1, 4), label)
    noisewise.get(f"{name}(p_min=0.2, beta=0)")(torch.randn(1, 5), label)


def test_a_singular_p_min_compiles_as_one_graph() -> None:
    scores = torch.randn(2, 5)
    compiled = torch.compile(noisewise.get("anl_ce(p_min=0.2)"), backend="eager", fullgraph=True)
    assert compiled(scores, torch.tensor([0, 1])).isfinite()


@pytest.mark.parametrize("spec", ["cr(beta=0)", "cr(beta=0, prior=(0.5, 0.25, 0.25))", "gls(alpha=0)", "ls(alpha=0)"])
@pytest.mark.parametrize("target", [torch.tensor([1]), torch.tensor([[0.25, 0.75, 0.0]])], ids=["label", "probabilities"])
def test_without_a_regulariser_the_loss_is_cross_entropy_even_with_a_masked_class(spec: str, target: Tensor) -> None:
    scores = torch.tensor([[1.0, 0.5, -torch.inf]], requires_grad=True)
    expected, actual = (noisewise.get(each)(scores, target) for each in ("ce", spec))
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(actual, scores)[0], torch.autograd.grad(expected, scores)[0])


@pytest.mark.parametrize("q", [5e-324, 1e-300, 1e-40, 1e-20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", ["gce(q={})", "truncated_gce(q={}, kappa=1e-12)", "gr(beta=2, lam={}, g='identity')"])
def test_a_tiny_exponent_is_cross_entropy(spec: str, dtype: torch.dtype, q: float) -> None:
    scores, label = torch.tensor([[2.0, 0.0, -3.0], [-20.0, 1.0, 0.0]], dtype=dtype, requires_grad=True), torch.tensor([0, 0])
    expected, actual = (noisewise.get(each)(scores, label) for each in ("ce", spec.format(q)))
    torch.testing.assert_close(actual, expected, rtol=4 * torch.finfo(dtype).eps, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(actual, scores)[0], torch.autograd.grad(expected, scores)[0])


# These depend on the number of classes; peer loss is random (tests/test_peer.py).
OF_ALL_CLASSES = (
    "amse(",
    "5*nce + amse(",
    "cr(",
    "gls(",
    "ls(",
    "forward('symmetric",
    "backward('symmetric",
    "scaled(mae, 2.0)",
    "shifted(mae, 2.0)",
    "peer(",
)


WITHOUT_A_CLASS = [
    *((spec, label) for spec in EVERY if not spec.startswith(OF_ALL_CLASSES) for label in range(3)),
    *((spec, "probabilities") for spec in SEPARATE if not spec.startswith(OF_ALL_CLASSES)),
]


@pytest.mark.parametrize(("spec", "label"), WITHOUT_A_CLASS)
def test_a_masked_class_is_ignored(spec: str, label: int | str) -> None:
    """Value, gradient and second derivatives equal those without the class. Its class probability is 0."""
    scores = torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64)
    few, many = scores.clone().requires_grad_(), torch.cat([scores, torch.full((1, 1), -torch.inf)], 1).requires_grad_()
    shares = torch.tensor([[0.5, 0.2, 0.3]], dtype=torch.float64)
    targets = [shares, pad(shares, (0, 1))] if isinstance(label, str) else [torch.tensor([label])] * 2
    without, masked = (build(spec)(given, target) for given, target in zip((few, many), targets, strict=True))
    torch.testing.assert_close(masked, without)
    (expected,), (actual,) = torch.autograd.grad(without, few, create_graph=True), torch.autograd.grad(masked, many, create_graph=True)
    torch.testing.assert_close(actual, pad(expected, (0, 1)))
    if not expected.requires_grad:  # linear, like unhinged losses
        return
    turned = torch.tensor([[0.3, -1.0, 0.4]], dtype=torch.float64)
    (bend,) = torch.autograd.grad((expected * turned).sum(), few)
    (same,) = torch.autograd.grad((actual * pad(turned, (0, 1))).sum(), many)
    torch.testing.assert_close(same, pad(bend, (0, 1)))


def test_a_masked_class_with_its_own_label_or_a_prior_of_zero_is_ignored() -> None:
    few, many = (torch.tensor([[1.0, 0.5, -torch.inf][:number]], requires_grad=True) for number in (2, 3))
    shares = torch.tensor([[0.7, 0.3]])
    for small, large in (
        ("forward([[0.9, 0.1], [0.1, 0.9]])", "forward([[0.9, 0.1, 0], [0.1, 0.9, 0], [0, 0, 1]])"),
        ("cr(beta=0.5, prior=(0.4, 0.6))", "cr(beta=0.5, prior=(0.4, 0.6, 0))"),
    ):
        without, masked = noisewise.get(small)(few, shares), noisewise.get(large)(many, pad(shares, (0, 1)))
        torch.testing.assert_close(masked, without)
        torch.testing.assert_close(torch.autograd.grad(masked, many)[0], pad(torch.autograd.grad(without, few)[0], (0, 1)))


@pytest.mark.parametrize("spec", [spec for spec in SEPARATE if not spec.startswith("peer(")])
def test_the_derivative_by_a_class_probability_is_the_loss_of_that_class(spec: str) -> None:
    """Even where the probability is 0: otherwise a learned label could never leave its initial class."""
    scores, chosen = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64), torch.eye(3, dtype=torch.float64)[[0]].requires_grad_()
    (slope,) = torch.autograd.grad(build(spec)(scores, chosen), chosen)
    torch.testing.assert_close(slope[0], torch.stack([build(spec)(scores, torch.tensor([label])) for label in range(3)]))
