"""Curricula, the papers' printed numbers, identities between losses, and normalisation over whole batches."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

import noisewise
import printed_numbers
import reference
from noisewise import curriculum, papers
from noisewise.curriculum import (
    Normalised,
    Scaled,
    Scheduled,
    Shifted,
    advance,
    expected_margin,
    focus,
    measured_margin,
    simulated_margins,
    spread,
)
from noisewise.losses import CE, GCE, GR, IMAE, MAE, NCE, TCE, Accumulation, Focal, before_batch_normalisation
from noisewise.train._processes import join
from refused import refused
from registry import batch
from two_processes import in_two_processes


def spec_of(name: str, hyper: dict[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in hyper.items())})"


@pytest.mark.parametrize(("name", "hyper", "printed"), printed_numbers.UNIFORM_VARIANCES)
def test_the_spreads_printed_in_the_imae_paper(name, hyper, printed):
    variance = spread(spec_of(name, hyper), norm="l1")
    assert round(variance, 3) == round(printed, 3)
    assert math.isclose(variance, float(printed_numbers.uniform_variance(name, **hyper)), rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(4 * spread(spec_of(name, hyper)), variance)


@pytest.mark.parametrize(("name", "hyper", "printed"), printed_numbers.FOCI)
def test_the_foci_printed_in_the_gr_paper(name, hyper, printed):
    assert abs(focus(spec_of(name, hyper)) - printed) < 1e-6


@pytest.mark.parametrize(("classes", "printed", "simulated", "used"), printed_numbers.EXPECTED_MARGINS)
def test_the_margins_training_starts_from(classes, printed, simulated, used):
    assert round(expected_margin(classes), 3) == printed
    drawn = simulated_margins(classes, samples=40_000)
    error = float(drawn.std()) / math.sqrt(len(drawn))
    assert abs(float(drawn.mean()) - simulated) < 5 * error + 1e-3
    assert abs(printed + used) < 0.12  # what the curriculum paper measured and used


def test_simulated_margins_have_the_given_deviation_and_follow_their_seed():
    first, again, other = (simulated_margins(10, std=2.0, samples=20_000, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    scores = np.random.default_rng(0).normal(0, 2, (20_000, 10))
    expected = scores[:, 0] - np.log(np.exp(scores[:, 1:]).sum(1))
    assert abs(float(first.mean()) - expected.mean()) < 5 * expected.std() * math.sqrt(2 / 20_000)


def test_with_two_classes_margins_start_at_zero():
    drawn = simulated_margins(2, samples=40_000)
    assert expected_margin(2) == 0.0 and abs(float(drawn.mean())) < 5 * float(drawn.std()) / 200


def test_nce_stays_below_the_corrected_bound_but_not_below_the_printed_bound():
    scores, target = batch(4000, 10, std=3)
    norms = noisewise.emphasis(NCE(), scores, target, norm="l1").numpy()
    assert (norms <= printed_numbers.nce_bound(scores.numpy(), target.numpy()) * (1 + 1e-12)).all()
    assert (norms > printed_numbers.printed_nce_bound(scores.numpy(), target.numpy()) * (1 + 1e-9)).any()


IDENTITIES = [
    (IMAE(T=8), GR(beta=8, lam=1), 1),
    (IMAE(T=3, saturation=0), GR(beta=3, lam=1, saturation=0), 1),
    (GCE(q=1), MAE(), 0.5),
    (TCE(q=1), MAE(), 0.5),
    (Focal(q=0), CE(), 1),
    (GR(beta=2, lam=0, g="identity"), CE(), 1),
    (GR(beta=4, lam=1, g="identity"), MAE(), 1),
    (GR(beta=2, lam=0.7, g="identity"), GCE(q=0.7), 1),
    (noisewise.get("sce(alpha=0.3, beta=0.7, A=-1)"), noisewise.get("0.3*ce + 0.35*mae"), 1),
    (noisewise.get("rce(A=-4)"), MAE(), 2),
    (noisewise.get("ls(alpha=0.1)"), CE(label_smoothing=0.1), 1),
    (noisewise.get("gls(alpha=0.0)"), CE(), 1),
    (noisewise.get("cr(beta=0.0)"), CE(), 1),
    (noisewise.get("focal_detached(q=0.0)"), CE(), 1),
]


@pytest.mark.parametrize(("first", "second", "factor"), IDENTITIES, ids=[repr(first) for first, _, _ in IDENTITIES])
def test_identities_between_losses(first, second, factor):
    scores, target = batch(40, 6, std=4)
    grads = [torch.func.grad(lambda s, loss=loss: loss(s, target))(scores) for loss in (first, second)]
    torch.testing.assert_close(grads[0], factor * grads[1], rtol=1e-10, atol=1e-13)
    first.reduction = second.reduction = "none"
    rows = [loss(scores, target) for loss in (first, second)]
    difference = rows[0] - factor * rows[1]
    torch.testing.assert_close(difference, difference[0].expand_as(difference), rtol=1e-9, atol=1e-11)  # equal up to a constant
    first.reduction = second.reduction = "mean"


def test_limits_of_families():
    scores, target = batch(40, 6)
    torch.testing.assert_close(GCE(q=1e-9)(scores, target), CE()(scores, target), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(TCE(q=4000)(scores, target), CE()(scores, target), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(noisewise.get("js(pi=1e-8)")(scores, target), CE()(scores, target), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(noisewise.get("js(pi=0.9999999)")(scores, target), 0.5 * MAE()(scores, target), rtol=0.1, atol=0.1)
    torch.testing.assert_close(noisewise.get("phuber_ce(tau=1e12)")(scores, target), CE()(scores, target))
    torch.testing.assert_close(noisewise.get("logit_clip(ce, tau=1e6)")(scores, target), CE()(scores, target))
    torch.testing.assert_close(GR(beta=0, lam=1, saturation=0).emphasis(scores), torch.full_like(scores, 0.5))


@pytest.mark.parametrize("kind", [Scaled, Shifted])
def test_a_moved_curriculum_starts_at_minus_tau(kind):
    loss = kind(GCE(q=0.7), tau=2.0, classes=100)
    start = torch.tensor(expected_margin(100), dtype=torch.float64)
    torch.testing.assert_close(loss.emphasis(start), GCE(q=0.7).emphasis(torch.tensor(-2.0, dtype=torch.float64)))


def test_scaling_leaves_the_middle_and_shifting_moves_it():
    zero = torch.zeros((), dtype=torch.float64)
    assert Scaled(MAE(), tau=2, classes=100).emphasis(zero) == MAE().emphasis(zero)
    assert abs(focus(Shifted(MAE(), tau=2, classes=100)) - 1 / (1 + math.exp(abs(expected_margin(100)) - 2))) < 1e-6


def test_curricula_know_the_number_of_classes_from_the_scores():
    for classes in (10, 100):
        scores, target = batch(20, classes)
        torch.testing.assert_close(Scaled(MAE(), 2.0)(scores, target), Scaled(MAE(), 2.0, classes=classes)(scores, target))
    for curriculum_of in (Scaled, Shifted):  # the parameter takes precedence over the scores
        moved = curriculum_of(MAE(), 2.0, classes=100)
        torch.testing.assert_close(moved(*batch(20, 10)), moved.value(noisewise.margin(*batch(20, 10))).mean())
    with refused("classes"):
        Scaled(MAE(), 2.0).emphasis(torch.zeros(3))


def test_scaling_repairs_the_emphasis_of_mae_with_many_classes():
    scores = torch.randn(4000, 100, dtype=torch.float64)
    target = torch.randint(100, (4000,))
    plain = noisewise.emphasis(MAE(), scores, target).mean()
    repaired = noisewise.emphasis(Scaled(MAE(), 2.0), scores, target).mean()
    assert plain < 0.03 and repaired > 0.15


def test_a_measured_start_replaces_the_formula():
    model = torch.nn.Sequential(torch.nn.Linear(8, 100), torch.nn.BatchNorm1d(100))
    batches = [(torch.randn(64, 8), torch.randint(100, (64,))) for _ in range(3)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = measured_margin(model, batches)
    assert abs(expected - expected_margin(100)) < 0.5
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert Scaled(MAE(), 2.0, expected=expected).factor() == 2.0 / abs(expected)
    uneven = [(torch.zeros(1, 2), torch.tensor([0])), (torch.tensor([[3.0, 0.0]]).expand(3, 2), torch.tensor([0, 0, 0]))]
    assert measured_margin(torch.nn.Identity(), uneven) == pytest.approx((0 + 3 * 3) / 4)
    with refused("example"):
        measured_margin(model, [])
    with refused("0 to 99"):
        measured_margin(model, [(inputs, labels + 100) for inputs, labels in batches])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("spec", ["mae", "gce(q=0.7)", "imae(T=8)", "gr(beta=12, lam=0.5)", "aul(a=2, q=3)"])
def test_unit_maximum_and_unit_area(spec):
    loss = noisewise.get(spec)
    d = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    assert abs(float(Normalised(loss, by="maximum").emphasis(d).max()) - 1) < 1e-6
    unit_area = Normalised(loss, by="integral")
    area, _ = quad(lambda p: float(unit_area.emphasis(torch.tensor(math.log(p / (1 - p)), dtype=torch.float64))), 0, 1, epsabs=1e-10)
    assert abs(area - 1) < 1e-8
    torch.testing.assert_close(Normalised(loss, by="none").emphasis(d), loss.emphasis(d))


@pytest.mark.parametrize("how", ["maximum", "integral"])
def test_the_normalise_setting_is_the_normalised_curriculum(how):
    scores, target = batch()
    torch.testing.assert_close(IMAE(T=8, normalise=how)(scores, target), Normalised(IMAE(T=8), by=how)(scores, target))
    torch.testing.assert_close(
        GR(beta=3, g="identity", normalise=how)(scores, target), Normalised(GR(beta=3, g="identity"), by=how)(scores, target)
    )


def published_batch_normalised_step(scores: np.ndarray, labels: np.ndarray, T: float, least: float = 0.0) -> np.ndarray:
    """The gradient the IMAE authors' code hands to backward, in float64; its `least` is 1e-8."""
    p = reference.softmax(scores)
    own = p[np.arange(len(labels)), labels]
    weight = np.exp(T * own * (1 - own))
    hot = np.eye(scores.shape[1])[labels]
    return (p - hot) / (2 * (1 - own) + least)[:, None] * (weight / weight.sum())[:, None]


def test_batch_normalisation_is_the_authors_step():
    scores, target = batch(32, 10)
    loss = IMAE(T=8, saturation=0, normalise="batch")
    grad = torch.func.grad(lambda s: loss(s, target))(scores)
    ours = grad.numpy() / 2  # their weights sum to one as ‖∂L/∂s‖₁, ours as −dL/dΔ
    np.testing.assert_allclose(ours, published_batch_normalised_step(scores.numpy(), target.numpy(), 8.0), rtol=1e-10)


@pytest.mark.parametrize(("saturation", "factor"), [(5e-9, "1.001"), (1e-3, "1.09")])
def test_with_saturation_batch_normalisation_is_the_authors_step_times_the_factor_in_the_recipe(saturation, factor):
    scores, _ = batch(20_000, 10, std=8)
    target = scores.argmax(1)
    loss = IMAE(T=8, saturation=saturation, normalise="batch")
    ours = torch.func.grad(lambda s: loss(s, target))(scores).numpy() / 2
    theirs = published_batch_normalised_step(scores.numpy(), target.numpy(), 8.0, 2 * saturation)
    ratio = np.abs(ours).sum() / np.abs(theirs).sum()
    np.testing.assert_allclose(ours, ratio * theirs, rtol=1e-6, atol=1e-12)
    assert f"{ratio:.{len(factor) - 2}f}" == factor
    assert any(f"{factor} at" in sentence for sentence in papers.get("imae/table6").chosen)


def test_batch_normalisation_ignores_ignored_examples():
    scores, target = batch(12, 5)
    ignored = target.clone()
    ignored[::3] = -100
    kept = ignored >= 0
    loss = noisewise.get("normalised(gce(q=0.7), by=batch)")
    torch.testing.assert_close(loss(scores, ignored), loss(scores[kept], target[kept]))


def test_a_loss_with_label_smoothing_has_no_form_before_batch_normalisation():
    spec = "0.5*imae(T=8, normalise='batch')"
    factor, bare = before_batch_normalisation(noisewise.get(spec))
    assert factor == 0.5 and repr(bare) == repr(IMAE(T=8)) and before_batch_normalisation(noisewise.get(spec, label_smoothing=0.1)) is None


def test_batch_normalisation_of_ignored_examples_gives_zero_loss_and_gradient():
    scores = batch(4, 5)[0].requires_grad_()
    value = IMAE(normalise="batch")(scores, torch.full((4,), -100))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value == 0 and (gradient == 0).all()


def test_a_loss_normalised_over_the_batch_can_be_a_term_of_a_sum():
    scores, target = batch(12, 5)
    both = noisewise.get("0.5*imae(normalise='batch') + ce")
    expected = 0.5 * IMAE(normalise="batch")(scores, target) + CE()(scores, target)
    torch.testing.assert_close(both(scores, target), expected)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_accumulated_parts_give_the_gradient_of_the_whole_batch(factor):
    layer = torch.nn.Linear(6, 5).double()
    inputs, labels = torch.randn(24, 6, dtype=torch.float64), torch.randint(5, (24,))
    loss = factor * GR(beta=12, lam=0.5, normalise="batch")
    whole = torch.autograd.grad(loss(layer(inputs), labels), list(layer.parameters()))
    with Accumulation(loss) as accumulation:
        for part in range(4):
            rows = slice(6 * part, 6 * part + 6)
            (loss(layer(inputs[rows]), labels[rows]) / 4).backward()
    mean = accumulation.divide(layer.parameters())
    with torch.no_grad():
        torch.testing.assert_close(mean, noisewise.emphasis(GR(beta=12, lam=0.5), layer(inputs), labels).mean())
    for parameter, expected in zip(layer.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected)
    torch.testing.assert_close(torch.autograd.grad(loss(layer(inputs), labels), list(layer.parameters()))[0], whole[0])


def test_accumulation_refuses_losses_that_cannot_be_accumulated():
    with refused("batch", "ce"):
        Accumulation(CE())
    with refused("accumulate=1", "0.5*imae"):
        Accumulation("0.5*imae(normalise='batch') + ce")
    with refused("loss"):
        Accumulation(IMAE(normalise="batch")).divide([])


def data_parallel_worker(result: str) -> None:
    with join(torch.device("cpu")):
        torch.manual_seed(0)
        layer = torch.nn.Linear(6, 5).double()
        parallel = torch.nn.parallel.DistributedDataParallel(layer)
        inputs, labels = torch.randn(16, 6, dtype=torch.float64), torch.randint(5, (16,))
        rank = torch.distributed.get_rank()
        half = slice(8 * rank, 8 * rank + 8)
        IMAE(T=8, normalise="batch")(parallel(inputs[half]), labels[half]).backward()
        if rank == 0:
            torch.save(layer.weight.grad, result)


def test_batch_normalisation_is_over_all_processes(tmp_path):
    in_two_processes(data_parallel_worker, str(tmp_path / "gradient.pt"))
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 5).double()
    inputs, labels = torch.randn(16, 6, dtype=torch.float64), torch.randint(5, (16,))
    IMAE(T=8, normalise="batch")(layer(inputs), labels).backward()
    torch.testing.assert_close(torch.load(tmp_path / "gradient.pt"), layer.weight.grad)


@pytest.mark.parametrize(("shape", "middle"), [("linear", 4.25), ("cosine", 4.25), ("step", 8.0)])
def test_a_schedule_moves_a_hyper_parameter(shape, middle):
    loss = Scheduled("imae", "T", 0.5, 8, shape=shape)
    scores, target = batch()
    for progress, value in ((0.0, 0.5), (0.5, middle), (1.0, 8.0)):
        advance(loss, progress)
        assert abs(loss.loss.T - value) < 1e-12
        torch.testing.assert_close(loss(scores, target), IMAE(T=value)(scores, target))


def test_a_schedule_of_an_integer_parameter_uses_integers_only():
    loss = Scheduled("tce", "q", 1, 8)
    spec = repr(loss)
    for progress, value in ((0.0, 1), (0.3, 3), (0.5, 4), (0.6, 5), (1.0, 8)):
        advance(loss, progress)
        assert loss.loss.q == value
        assert repr(loss) == spec, "progress must not change the spec"


def test_schedules_inside_a_normalisation_renew_it():
    loss = noisewise.get("normalised(scheduled(imae(saturation=0), 'T', 0, 8))")
    advance(loss, 1.0)
    torch.testing.assert_close(loss.emphasis(torch.zeros((), dtype=torch.float64)), torch.ones((), dtype=torch.float64))
    with refused("[0, 1]", 1.5):
        advance(loss, 1.5)


def test_the_spread_of_scores_without_a_target_is_refused_and_vice_versa():
    scores, target = batch()
    for half in ({"scores": scores}, {"target": target}):
        with refused("scores", "target"):
            spread("ce", **half)


def test_the_spread_of_a_batch_is_the_variance_of_its_emphasis():
    scores, target = batch(200, 10)
    p = scores.softmax(1).gather(1, target[:, None])[:, 0].numpy()
    assert math.isclose(spread("ce", scores, target, norm="l1"), np.var(2 * (1 - p)))
    assert spread("nce") is None and focus("nce") is None
    assert spread("nce", scores, target) > 0
    with refused("norm", "l2"):
        curriculum.spread("ce", norm="l2")


@pytest.mark.parametrize("expected", [-3.0, -61.0, -63.0, -70.0, -200.0, -1503.0, -20000.0])
def test_the_maximum_is_found_wherever_a_shift_puts_it(expected):
    loss = noisewise.get(f"normalised(shifted(mae, 2.0, expected={expected}), by='maximum')")
    near = torch.linspace(expected - 10, expected + 10, 20001, dtype=torch.float64)
    assert loss.emphasis(near).max().item() == pytest.approx(1, abs=1e-6)


def test_margins_that_start_above_zero_can_be_shifted_but_not_scaled():
    """The margins of a pretrained network start above zero."""
    shifted = noisewise.get("shifted(mae, 2.0, expected=3.0)")
    torch.testing.assert_close(shifted.emphasis(torch.tensor(3.0)), MAE().emphasis(torch.tensor(-2.0)))
    with refused("expected", "Scaled", 3.0):
        noisewise.get("scaled(mae, 2.0, expected=3.0)")(torch.zeros(1, 3), torch.tensor([0]))
