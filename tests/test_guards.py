"""What every loss must satisfy: run over the registry and the examples of each loss."""

import copy
import io
import math
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import noisewise
from noisewise.losses import registry
from noisewise.potential import Potential
from refused import refused
from registry import DIFFERENTIATED, EVERY, FIRST, MARGIN, SEPARATE, SHIFTABLE, SPECS, SUMS, batch, build
from waiting import LIMIT

DRAWN = st.integers(0, 2**31 - 1)


def seeded(loss, scores, target):
    """Call a loss with a fixed seed: peer loss draws from torch's random state."""
    torch.manual_seed(1)
    return loss(scores, target)


@pytest.mark.parametrize("spec", DIFFERENTIATED)
def test_first_and_second_derivatives_agree_with_finite_differences(spec):
    loss = build(spec, reduction="sum")
    scores, target = batch(2, 4)
    scores.requires_grad_()
    assert gradcheck(lambda s: seeded(loss, s, target), scores)
    assert gradgradcheck(lambda s: seeded(loss, s, target), scores)


@pytest.mark.parametrize("spec", [spec for spec in SEPARATE if spec in DIFFERENTIATED])
def test_the_gradient_for_class_probabilities_agrees_with_finite_differences(spec):
    loss = build(spec, reduction="sum")
    scores, _ = batch(3, 4)
    target = torch.rand(3, 4, dtype=torch.float64).softmax(1)
    assert gradcheck(lambda s: loss(s, target), scores.requires_grad_())


@pytest.mark.parametrize("spec", MARGIN)
def test_emphasis_is_minus_the_slope_of_the_value(spec):
    loss = build(spec, classes=7)
    d = torch.linspace(-30.03, 30.01, 401, dtype=torch.float64)
    step = 1e-5
    slope = (loss.value(d + step) - loss.value(d - step)) / (2 * step)
    torch.testing.assert_close(loss.emphasis(d), -slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("spec", MARGIN)
def test_value_is_minus_the_integral_of_the_emphasis(spec):
    loss = build(spec, classes=7)
    d = torch.linspace(-60, 60, 241, dtype=torch.float64)
    potential = Potential(loss.emphasis)
    zero = loss.value(torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(potential(d), loss.value(d) - zero, rtol=1e-9, atol=1e-8)


def test_beyond_its_table_a_potential_continues_with_the_slope_at_its_end():
    d = torch.tensor([-1e6, 1e6], dtype=torch.float64)
    expected = torch.tensor([5e6, -3e6], dtype=torch.float64) - 2 * math.log(2)
    torch.testing.assert_close(Potential(lambda d: 3 + 2 * (-d).sigmoid())(d), expected)


def test_beyond_its_table_a_potential_is_as_exact_as_its_type():
    d = torch.tensor([-1e12, -4e4, 4e4, 1e12], dtype=torch.float64)
    exact = -0.1 * d - 0.3 * (torch.nn.functional.logsigmoid(d) + math.log(2))
    torch.testing.assert_close(Potential(lambda d: 0.1 + 0.3 * (-d).sigmoid())(d), exact, rtol=1e-15, atol=0.0)


@pytest.mark.parametrize(
    ("emphasis", "mentions"),
    [
        (lambda d: d.float().sigmoid(), ("torch.float32", "(2, 3)")),
        (lambda d: d.sigmoid().sum(), ("torch.float64", "()")),
        (lambda d: 1.0, ("float",)),
        (lambda d: d.float().sigmoid().double(), ("smooth", "Δ = ")),
    ],
    ids=["single precision", "scalar", "no tensor", "rounded"],
)
def test_an_emphasis_that_cannot_be_integrated_is_refused(emphasis, mentions):
    with refused(*mentions):
        Potential(emphasis)


@pytest.mark.parametrize("spec", MARGIN)
@pytest.mark.parametrize("norm", ["margin", "l1"])
def test_emphasis_by_differentiation_equals_the_closed_form(spec, norm):
    loss = build(spec, classes=7)
    scores, target = batch(50, 7, std=4)
    closed = loss.emphasis(noisewise.margin(scores, target)) * {"margin": 1, "l1": 2}[norm]
    torch.testing.assert_close(noisewise.emphasis(loss, scores, target, norm=norm), closed, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("spec", SHIFTABLE)
@settings(max_examples=4)
@given(seed=DRAWN, shift=st.floats(-1e3, 1e3))
def test_a_shift_of_all_scores_changes_nothing(spec, seed, shift):
    loss = build(spec, reduction="none")
    scores, target = batch(seed=seed)
    torch.testing.assert_close(seeded(loss, scores + shift, target), seeded(loss, scores, target), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("spec", EVERY)
@settings(max_examples=4)
@given(seed=DRAWN)
def test_permuting_the_classes_permutes_the_gradient(spec, seed):
    loss = build(spec)
    scores, target = batch(seed=seed)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    grads = []
    for s, y in ((scores, target), (scores[:, order], order.argsort()[target])):
        s = s.clone().requires_grad_()
        seeded(loss, s, y).backward()
        grads.append(s.grad)
    torch.testing.assert_close(grads[0][:, order], grads[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spec", MARGIN)
@settings(max_examples=8)
@given(margin=st.floats(-1e5, 1e5))
def test_emphasis_is_never_negative(spec, margin):
    loss = build(spec, classes=10)
    for dtype in (torch.float32, torch.float64):
        assert float(loss.emphasis(torch.tensor(margin, dtype=dtype))) >= 0


@pytest.mark.parametrize("spec", EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_value_and_gradient_are_finite_for_extreme_scores(spec, dtype):
    loss = build(spec)
    for std in (0.0, 1.0, 50.0, 1e4):
        scores, target = batch(64, 9, std=1.0, seed=3)
        scores = (scores.clamp(-1, 1) * std).to(dtype).requires_grad_()
        value = loss(scores, target)
        value.backward()
        assert value.dtype == scores.grad.dtype == dtype
        assert torch.isfinite(scores.grad).all(), (spec, dtype, std)
        if float(loss(scores.detach().double(), target).abs()) < torch.finfo(dtype).max:  # gr(beta=4, lam=0) tops float16
            assert torch.isfinite(value), (spec, dtype, std)


@pytest.mark.parametrize("spec", SEPARATE)
@settings(max_examples=5)
@given(seed=DRAWN)
def test_a_batch_is_the_mean_of_its_singles(spec, seed):
    loss = build(spec)
    scores, target = batch(seed=seed)
    singles = torch.stack([loss(s, y) for s, y in zip(scores, target, strict=True)])
    torch.testing.assert_close(loss(scores, target), singles.mean(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS + SUMS)
def test_the_repr_of_a_loss_is_its_spec(spec):
    for settings_ in ({}, {"reduction": "sum", "ignore_index": 3}, {"weight": (0.5, 1.0, 2.0), "label_smoothing": 0.1}):
        loss = noisewise.get(spec, **settings_)
        again = noisewise.get(repr(loss))
        assert repr(again) == repr(loss)
        assert again.reduction == loss.reduction and again.ignore_index == loss.ignore_index


@pytest.mark.parametrize("spec", EVERY)
def test_pickle_deepcopy_and_state_dict_restore_the_loss(spec):
    loss = build(spec, weight=torch.tensor([1.0, 2, 3, 1, 1, 1, 1]))
    scores, target = batch()
    expected = seeded(loss, scores, target)
    saved = io.BytesIO()
    torch.save(loss.state_dict(), saved)
    saved.seek(0)
    fresh = build(spec, weight=torch.zeros(7))
    fresh.load_state_dict(torch.load(saved))
    for other in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), fresh):
        assert repr(other) == repr(loss)
        assert torch.equal(seeded(other, scores, target), expected)


# The backend aot_eager also traces the backward pass and takes twice as long: by default it runs for one loss of each kind.
KINDS = {"gce(q=0.7)", "imae(T=8.0)", "nce", "0.3*nce + 0.7*mae", "forward('symmetric(0.4)')"}
BACKENDS = [
    *((spec, "aot_eager" if spec in KINDS else "eager") for spec in EVERY if spec in FIRST),
    *(pytest.param(spec, "aot_eager", marks=pytest.mark.slow) for spec in EVERY if spec not in KINDS),
]


@pytest.mark.parametrize(("spec", "backend"), BACKENDS)
def test_a_loss_compiles_to_one_graph(spec, backend):
    torch._dynamo.reset()
    loss = build(spec)
    scores, target = batch(dtype=torch.float32)
    target[0] = -100
    results = []
    for call in (loss, torch.compile(loss, fullgraph=True, backend=backend)):
        s = scores.clone().requires_grad_()
        value = seeded(call, s, target)
        value.backward()
        results.append((value.detach(), s.grad))
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)


def test_the_number_of_classes_of_a_compiled_correction_may_change():
    torch._dynamo.reset()
    loss = noisewise.get("forward('symmetric(0.4)', loss=gce(q=0.7))")
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for classes in (5, 7):
        scores, target = torch.randn(8, classes), torch.randint(classes, (8,))
        torch.testing.assert_close(compiled(scores, target), loss(scores, target))


@pytest.mark.slow
def test_a_loss_compiles_to_machine_code():
    """In a separate process: the compiler warns about its own imports, and depends on what was imported before."""
    script = """
        import torch
        from registry import batch, build
        for spec in ("imae(T=8)",):  # each takes ten seconds; the test above traces all others
            loss, (scores, target) = build(spec), batch(dtype=torch.float32)
            results = []
            for call in (loss, torch.compile(loss, fullgraph=True)):
                s = scores.clone().requires_grad_()
                value = call(s, target)
                value.backward()
                results.append((value.detach(), s.grad))
            for eager, compiled in zip(*results, strict=True):
                torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.parametrize(
    "spec",  # what they look up is made when first needed
    ["imae(T=8)", "gr(beta=8, lam=0.5)", "forward('symmetric(0.4)')", "forward('pair(0.3)', loss=gce(q=0.7))"],
)
def test_a_loss_can_be_compiled_before_its_first_call(spec):
    loss, (scores, target) = build(spec), batch()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores, target), loss(scores, target))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")  # by torch's own jvp
@pytest.mark.parametrize("spec", SEPARATE)
def test_forward_mode_derivatives_equal_reverse_mode_derivatives(spec):
    loss = build(spec)
    scores, target = batch(3, 4)
    backwards = torch.autograd.functional.hessian(lambda s: loss(s, target), scores)
    for outer, inner in ((torch.func.jacfwd, torch.func.jacrev), (torch.func.jacfwd, torch.func.jacfwd)):
        torch.testing.assert_close(outer(inner(lambda s: loss(s, target)))(scores), backwards, rtol=1e-6, atol=1e-9)
    far = 1e4 * scores.float()
    along = torch.ones_like(far).cumsum(1)
    slope = torch.func.jvp(lambda s: loss(s, target), (far,), (along,))[1]
    torch.testing.assert_close(slope, (torch.func.grad(lambda s: loss(s, target))(far) * along).sum(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", SEPARATE)
def test_vmap_of_grad_gives_the_gradient_of_each_example(spec):
    loss = build(spec, reduction="sum")
    scores, target = batch()
    each = torch.func.vmap(torch.func.grad(lambda s, y: loss(s, y)))(scores, target)
    whole = torch.func.grad(lambda s: loss(s, target))(scores)
    torch.testing.assert_close(each, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spec", EVERY)
def test_every_loss_works_under_autocast_and_a_gradient_scaler(spec):
    layer = torch.nn.Linear(5, 7)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    inputs, target = torch.randn(6, 5), torch.randint(7, (6,))
    loss = build(spec)
    with torch.autocast("cpu", dtype=torch.float16):
        scores = layer(inputs)
        value = seeded(loss, scores, target)
    assert scores.dtype == torch.float16 and value.dtype == torch.float32
    scaler.scale(value).backward()
    scaler.unscale_(optimiser)
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
    exact = layer.weight.detach().clone().requires_grad_()
    wide = torch.nn.functional.linear(inputs, exact, layer.bias.detach())
    seeded(loss, wide, target).backward()
    torch.testing.assert_close(layer.weight.grad, exact.grad, rtol=0.05, atol=0.05 * float(exact.grad.abs().max()) + 1e-6)


@pytest.mark.parametrize("name", list(registry))
def test_every_loss_gives_examples_that_cover_its_settings(name):
    kind = registry[name]
    hyper = [key for key, declared in kind.settings.items() if not declared.kw_only]
    assert not hyper or len(kind.examples) >= 1, f"{name} has hyper-parameters {hyper} but no examples"
    for spec in kind.examples:
        assert isinstance(noisewise.get(spec), kind)
