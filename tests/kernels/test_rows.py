"""Every loss with a kernel equals the torch path in float64: value, gradient, weights and reductions, in eager mode and compiled."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import noisewise
from noisewise.curriculum import advance
from noisewise.kernels import _switch, _tuning, fused, linear_loss, loss_and_gradient
from noisewise.kernels._write import covered
from noisewise.losses import Loss, MarginLoss
from noisewise.methods import LossPull
from refused import refused
from registry import EVERY, build, slow_unless_first

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, inside the interpreter: log 0 and inf − inf are meant

COVERED = [spec for spec in EVERY if covered(build(spec)) and not build(spec).adapts]
KINDS = ["gce(q=0.7)", "imae(T=8.0)", "0.3*nce + 0.7*mae"]  # a formula, a table, one more row statistic
NORMALISED = ["imae(T=8, normalise='batch')", "0.5*gr(beta=12, lam=0.5, normalise='batch')", "normalised(gce(q=0.7), by='batch')"]
EXTREME = torch.tensor(
    [
        [0.3, -2.0, 4.0, 1.0],
        [0.0, 0.0, 0.0, 0.0],
        [50.0, 0.0, -50.0, 3.0],
        [50.0, 0.0, -50.0, 3.0],
        [9999.5, 1e4, -1e4, 3.0],
        [1e4, 9988.0, 9987.0, 0.0],
        [-95.0, 3.0, 4.0, 1.0],
        [1e-3, 0.0, -1e-3, 12.0],
        [1e4, -1e4, -1e4, -1e4],
    ]
)
LABELS = torch.tensor([2, 1, 0, 2, 0, 0, 0, 3, 1])


def both(loss: Loss, scores: Tensor, target: Tensor, device: str, sample_weight: Tensor | None = None) -> tuple[Tensor, ...]:
    """Value and gradient from a kernel, and from the torch path in float64."""
    results = []
    for call, leaf in ((fused, scores.to(device)), (None, scores.double())):
        leaf = leaf.detach().requires_grad_()
        there = copy.deepcopy(loss).to(leaf.device)
        weight = None if sample_weight is None else sample_weight.to(leaf.device)
        if call is None:
            value = there(leaf, target.to(leaf.device), sample_weight=weight)
        else:
            value = call(there, leaf, target.to(leaf.device), weight)
            assert value is not None, f"{loss!r} has no kernel"
        value.sum().backward()
        results += [value.detach().double().cpu(), leaf.grad.double().cpu()]
    return tuple(results)


def sizes(loss: Loss, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """How large the margins are, and the terms of which a loss of every class is a difference."""
    margin = noisewise.margin(scores.double(), target).abs()
    if all(isinstance(part, MarginLoss) for part in loss.modules() if isinstance(part, Loss)):
        return margin, torch.zeros_like(margin)
    costs = -scores.double().log_softmax(1)
    own = costs.gather(1, target.unsqueeze(1)).squeeze(1)
    return margin, (1 + abs(getattr(loss, "alpha", 0.0)) + abs(getattr(loss, "beta", 0.0))) * (own + costs.mean(1) + 1)


def close(actual: Tensor, exact: Tensor, allowed: Tensor, size: Tensor | float = 0.0) -> None:
    error = (actual - exact).abs()
    assert (error <= allowed * (exact.abs() + size) + 1.2e-38).all(), (actual, exact)


@pytest.mark.parametrize("spec", slow_unless_first(COVERED))
def test_value_and_gradient_are_as_exact_as_those_of_torch(spec, device):
    loss = build(spec, reduction="none")
    value, gradient, exact, slopes = both(loss, EXTREME, LABELS, device)
    margin, terms = sizes(loss, EXTREME, LABELS)
    allowed = 1e-6 * (1 + margin)
    close(value, exact, allowed, terms)
    largest = slopes.abs().amax(1, keepdim=True) + (terms > 0).unsqueeze(1) * (1 + abs(getattr(loss, "alpha", 0.0)))
    close(gradient, slopes, allowed.unsqueeze(1), largest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", KINDS)
def test_half_precision_results_are_rounded_once(spec, dtype, device):
    scores = EXTREME[:8].to(dtype)
    value, gradient, exact, slopes = both(build(spec, reduction="none"), scores, LABELS[:8], device)
    eps, tiny = 1.01 * torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    assert ((value - exact).abs() <= eps * exact.abs() + tiny).all()
    assert ((gradient - slopes).abs() <= eps * slopes.abs().amax(1, keepdim=True) + tiny).all()


@pytest.mark.parametrize(("spec", "classes"), [*((spec, 37) for spec in (*KINDS, "ce", "gls(alpha=-0.4)")), (KINDS[0], 2), (KINDS[0], 64)])
def test_rows_too_long_for_the_chip_give_the_same(spec, classes, device, monkeypatch):
    monkeypatch.setattr(_tuning, "LONGEST_ON_CHIP", 1)
    monkeypatch.setattr(_tuning, "LONG_BYTES", 64)
    scores, target = 3 * torch.randn(4, classes) + 1e3 * torch.randn(4, 1), torch.randint(classes, (4,))
    scores[0, target[0]] -= 60
    target[1] = -100
    value, gradient, exact, slopes = both(build(spec), scores, target, device)
    torch.testing.assert_close(value, exact, rtol=1e-4, atol=1e-4)  # float32 scores near 1000 are exact to 6e-5 only
    torch.testing.assert_close(gradient, slopes, rtol=1e-3, atol=1e-5 * float(slopes.abs().max()))


@pytest.mark.usefixtures("costly_if_interpreted")
@pytest.mark.parametrize(
    ("spec", "longest", "dtype"),
    [
        ("imae(T=8.0)", 1, torch.float32),
        ("imae(T=8.0)", 1024, torch.bfloat16),
        ("nce", 1, torch.bfloat16),
        ("nce", 1024, torch.float32),
    ],
)
def test_rows_may_have_any_alignment(spec, longest, dtype, device, monkeypatch):
    """A row is read from the 16-byte boundary before it: its neighbours must be neither used nor overwritten."""
    monkeypatch.setattr(_tuning, "LONGEST_ON_CHIP", longest)
    monkeypatch.setattr(_tuning, "LONG_BYTES", 32)
    monkeypatch.setattr(_tuning, "SHORT", 1)
    target = torch.tensor([0, 18, -100, 7, 18])
    for shift, width in ((0, 19), (3, 23), (1, 24)):
        scores = torch.full((5, width), 50.0).to(dtype)
        scores[:, shift : shift + 19] = torch.randn(5, 19).to(dtype)
        given = scores.to(device)
        rows = given[:, shift : shift + 19]
        loss = build(spec, reduction="sum")
        leaf = rows.cpu().double().requires_grad_()
        exact = loss(leaf, target)
        exact.backward()
        tolerance = 1e-5 if dtype == torch.float32 else 0.02
        for in_place in (False, True):
            actual = loss_and_gradient(loss, rows, target.to(device), in_place=in_place)
            torch.testing.assert_close(actual.value.cpu().double(), exact.detach(), rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(actual.gradient.cpu().double(), leaf.grad, rtol=tolerance, atol=tolerance)
        outside = torch.cat([given[:, :shift], given[:, shift + 19 :]], 1)
        assert (outside == 50).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spec", NORMALISED)
def test_losses_normalised_over_the_batch_equal_those_of_torch(spec, weighted, reduction, device):
    scores, target = 2 * torch.randn(9, 5), torch.randint(5, (9,))
    target[2] = -100
    loss = build(spec, reduction=reduction, weight=torch.rand(5) + 0.1 if weighted else None).to(device)
    before, weight = repr(loss), torch.rand(9).to(device) if weighted else None
    given, labels = scores.to(device), target.to(device)
    actual = loss_and_gradient(loss, given, labels, sample_weight=weight)
    with _switch.off():
        expected = loss_and_gradient(loss, given, labels, sample_weight=weight)
    assert repr(loss) == before
    for name in ("value", "gradient", "margin", "emphasis"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weights", [(False, False), (True, True)])
def test_reductions_weights_and_ignored_labels_equal_those_of_torch(reduction, weights, device):
    scores, target = 2 * torch.randn(9, 5), torch.randint(5, (9,))
    target[2] = 3
    loss = build("gce(q=0.7)", reduction=reduction, ignore_index=3, weight=torch.rand(5) + 0.1 if weights[0] else None)
    results = both(loss, scores, target, device, torch.rand(9) if weights[1] else None)
    torch.testing.assert_close(results[0], results[2], rtol=2e-6, atol=1e-7)
    torch.testing.assert_close(results[1], results[3], rtol=2e-6, atol=1e-7)


def test_cross_entropy_with_label_smoothing_equals_that_of_torch(device):
    scores, target = torch.randn(6, 5, device=device), torch.randint(5, (6,), device=device)
    actual = fused(build("ce", label_smoothing=0.2), scores, target)
    torch.testing.assert_close(actual, F.cross_entropy(scores, target, label_smoothing=0.2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_label_smoothing_and_class_weights_equals_that_of_torch(reduction, device):
    scores, weight = torch.randn(6, 5, device=device), torch.rand(5, device=device)
    target = torch.tensor([0, 1, -100, 3, 4, 1], device=device)
    given = {"weight": weight, "label_smoothing": 0.2, "reduction": reduction}
    torch.testing.assert_close(build("ce", **given)(scores, target), F.cross_entropy(scores, target, **given))
    hidden, layer = torch.randn(6, 3, device=device), torch.randn(5, 3, device=device)
    actual = linear_loss(hidden, layer, target, loss=build("ce", **given))
    torch.testing.assert_close(actual, F.cross_entropy(hidden @ layer.T, target, **given))


def test_torch_is_used_for_label_smoothing_of_other_losses(device):
    assert fused(build("mae", label_smoothing=0.2), torch.randn(6, 5, device=device), torch.zeros(6, dtype=torch.int64)) is None


def test_ignored_rows_have_no_effect_even_if_they_are_nan(device):
    scores = torch.randn(4, 5, device=device)
    scores[1] = torch.nan
    target = torch.tensor([0, -100, 2, -100], device=device)
    scores.requires_grad_()
    value = fused(build("mae"), scores, target)
    value.backward()
    kept = torch.tensor([0, 2], device=device)
    torch.testing.assert_close(value, build("mae")(scores[kept], target[kept]))
    assert not scores.grad[1].any() and not scores.grad[3].any() and scores.grad[kept].all()
    assert fused(build("mae"), scores, torch.full_like(target, -100)) == 0


@pytest.mark.parametrize("classes", [5, 200])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_ignore_index_may_need_more_than_32_bits(weighted, classes, device):
    scores, weight = torch.randn(4, classes, device=device), torch.rand(classes, device=device) if weighted else None
    for ignore_index in (2**32 + 1, -(2**63)):
        target = torch.tensor([0, ignore_index, 2, ignore_index], device=device)
        actual = fused(build("ce", ignore_index=ignore_index, weight=weight), scores, target)
        torch.testing.assert_close(actual, F.cross_entropy(scores[::2], target[::2], weight=weight))


def test_results_have_the_types_of_torch_under_any_default_type(device):
    scores, target, before = torch.randn(4, 5, device=device), torch.randint(5, (4,), device=device), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        actual = loss_and_gradient("gce(q=0.7)", scores, target)
        with _switch.off():
            plain = loss_and_gradient("gce(q=0.7)", scores, target)
    finally:
        torch.set_default_dtype(before)
    for name in ("value", "gradient", "margin", "emphasis"):
        torch.testing.assert_close(getattr(actual, name), getattr(plain, name))  # types too


def test_label_smoothing_of_a_loss_normalised_over_the_batch_is_refused(device):
    scores, target = torch.randn(4, 5, device=device), torch.randint(5, (4,), device=device)
    with refused("label smoothing"):
        loss_and_gradient(build("imae(T=8, normalise='batch')", label_smoothing=0.1), scores, target)


def test_an_empty_batch_sums_to_zero(device):
    scores = torch.empty(0, 5, device=device, requires_grad=True)
    value = fused(build("mae", reduction="sum"), scores, torch.empty(0, dtype=torch.int64, device=device))
    value.backward()
    assert value == 0 and scores.grad.shape == (0, 5)


@pytest.mark.parametrize("label", [7, -1, 2**32 + 1])
def test_a_label_out_of_range_makes_only_its_row_nan(label, device):
    scores = torch.randn(3, 5, device=device, requires_grad=True)
    value = fused(build("ce", reduction="none"), scores, torch.tensor([0, label, 2], device=device))
    value.sum().backward()
    assert value.isnan().tolist() == [False, True, False]
    assert scores.grad.isnan().any(1).tolist() == [False, True, False]


def test_a_nan_score_gives_a_nan_loss(device):
    scores = torch.randn(2, 5, device=device)
    scores[0, 3] = torch.nan
    for spec in (*KINDS, "phuber_ce(tau=10.0)"):
        actual = fused(build(spec, reduction="none"), scores, torch.tensor([0, 1], device=device))
        assert actual.isnan().tolist() == [True, False]


def test_masked_classes_get_no_gradient(device):
    scores = torch.tensor([[1.0, -torch.inf, 2.0], [3.0, -torch.inf, -torch.inf]])
    for spec in ("gce(q=0.7)", "imae(T=8.0)"):
        value, gradient, exact, slopes = both(build(spec, reduction="none"), scores, torch.tensor([0, 0]), device)
        torch.testing.assert_close(value, exact, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(gradient, slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layout", ["transposed", "every other row", "part of a row", "positions last", "one example"])
def test_scores_may_have_any_layout(layout, device):
    scores, target = torch.randn(8, 6, device=device), torch.randint(3, (8,), device=device)
    scores, target = {
        "transposed": lambda: (scores[:6].T.contiguous().T, target[:6]),
        "every other row": lambda: (scores[::2], target[::2]),
        "part of a row": lambda: (scores[:, 1:5], target),
        "positions last": lambda: (scores.view(2, 4, 6).movedim(2, 1).contiguous(), target.view(2, 4)),
        "one example": lambda: (scores[0], target[0]),
    }[layout]()
    loss, results = build("gce(q=0.7)"), []
    for call in (fused, lambda *given: loss(*given)):
        leaf = scores.detach().requires_grad_()
        value = call(loss, leaf, target) if call is fused else loss(leaf, target)
        value.backward()
        results.append((value.detach(), leaf.grad))
    for kernel, plain in zip(*results, strict=True):
        torch.testing.assert_close(kernel, plain)


def test_the_incoming_gradient_scales_the_gradient(device):
    loss, target = build("gce(q=0.7)"), torch.randint(5, (7,))
    scores, above = torch.randn(7, 5), torch.randn(7)
    for dtype in (torch.float32, torch.float16):
        leaf = scores.to(device, dtype).requires_grad_()
        value = fused(loss, leaf, target.to(device)) * 3
        first, again = (torch.autograd.grad(value, leaf, retain_graph=True)[0] for _ in range(2))
        exact = torch.autograd.grad(loss(leaf.double(), target.to(device)) * 3, leaf)[0]
        for actual in (first, again):
            torch.testing.assert_close(actual, exact)
            assert not actual.requires_grad
    each = build("gce(q=0.7)", reduction="none")
    leaf = scores.to(device).requires_grad_()
    actual = torch.autograd.grad(fused(each, leaf, target.to(device)), leaf, above.to(device))[0]
    torch.testing.assert_close(actual, torch.autograd.grad(each(leaf, target.to(device)), leaf, above.to(device))[0])


@pytest.mark.usefixtures("costly_if_interpreted")
def test_a_scaled_loss_in_float16_keeps_gradients_that_would_underflow(device):
    scores = torch.zeros(64, 512, device=device, dtype=torch.float16).requires_grad_()
    with torch.autocast(device, dtype=torch.float16):
        value = fused(build("mae"), scores, torch.zeros(64, dtype=torch.int64, device=device))
    assert value.dtype == torch.float32
    (65536 * value).backward()
    expected = 65536 * 2 / 512 / 512 / 64  # without the factor, 1.2e-7: float16 has two bits left there
    torch.testing.assert_close(scores.grad[:, 1:], torch.full_like(scores[:, 1:], expected), rtol=2e-3, atol=0)


def test_second_derivatives_equal_those_of_torch(device):
    scores, target = torch.randn(5, 4, device=device), torch.tensor([0, 3, -100, 2, 1], device=device)
    weight, each = torch.rand(4, device=device), torch.rand(5, device=device)
    for reduction in ("mean", "none"):
        loss = build("gce(q=0.7)", reduction=reduction, weight=weight)
        curvatures = []
        for by_kernel in (True, False):
            leaf = scores.detach().requires_grad_()
            value = fused(loss, leaf, target, each) if by_kernel else loss(leaf, target, sample_weight=each)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
            curvatures.append(torch.autograd.grad(gradient.square().sum(), leaf)[0])
        torch.testing.assert_close(*curvatures)


def test_scores_without_gradients_give_a_loss_without_gradients(device):
    scores, target = torch.randn(5, 4, device=device), torch.randint(4, (5,), device=device)
    value = fused(build("mae"), scores, target)
    assert not value.requires_grad
    torch.testing.assert_close(value, build("mae")(scores, target))


def test_torch_is_used_if_a_weight_requires_a_gradient(device):
    scores, target = torch.randn(5, 4, device=device), torch.randint(4, (5,), device=device)
    assert fused(build("mae"), scores, target, torch.ones(5, device=device, requires_grad=True)) is None


@pytest.mark.usefixtures("costly_if_interpreted")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler
def test_a_kernel_compiles_to_one_graph_and_notices_a_changed_hyper_parameter(device):
    torch._dynamo.reset()
    scores, target = torch.randn(6, 5, device=device), torch.tensor([0, -100, 2, 4, 1, 1], device=device)
    quick = torch.compile(lambda loss, leaf: fused(loss, leaf, target), fullgraph=True, backend="aot_eager")
    loss = build("0.5*gce(q=0.7) + 0.5*imae(T=4)")
    for q in (0.7, 0.5, 0.3):
        loss.terms[0].q = q
        results = []
        for call in (lambda loss, leaf: loss(leaf, target), quick):
            leaf = scores.detach().requires_grad_()
            value = call(loss, leaf)
            value.backward()
            results.append((value.detach(), leaf.grad))
        for plain, compiled in zip(*results, strict=True):
            torch.testing.assert_close(compiled, plain)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_operator_passes_the_checks_of_torch(reduction, device):
    from noisewise.kernels._operator import rows

    scores = torch.randn(4, 5, device=device, requires_grad=True)
    target = torch.tensor([0, 4, -100, 2], device=device)
    torch.library.opcheck(rows, (scores, target, "gce(q={})", [0.7], None, None, None, -100, reduction, False))


class Plain(MarginLoss):
    def __init__(self, sharpness: float) -> None:
        self.sharpness = sharpness
        super().__init__()

    def emphasis(self, d: Tensor) -> Tensor:
        return torch.sigmoid(self.sharpness * d) * torch.sigmoid(-d)


class Unheard(MarginLoss):
    def value(self, d: Tensor) -> Tensor:
        return torch.erf(-d / 3) + 0.5 * torch.special.ndtr(-d)


class Jumping(MarginLoss):
    def value(self, d: Tensor) -> Tensor:
        return torch.special.ndtr(-1e4 * d)


def test_a_custom_loss_is_translated_and_follows_its_attributes(device):
    loss = Plain(2.0)
    scores, target = torch.randn(6, 5), torch.randint(5, (6,))
    for sharpness in (2.0, 3.0):  # a plain attribute
        loss.sharpness = sharpness
        loss._settle()
        value, gradient, exact, slopes = both(loss, scores, target, device)
        torch.testing.assert_close(value, exact, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, slopes, rtol=1e-6, atol=1e-7)


def test_a_custom_loss_with_unknown_operations_is_tabulated(device):
    scores, target = 4 * torch.randn(20, 5), torch.randint(5, (20,))
    value, gradient, exact, slopes = both(Unheard(reduction="none"), scores, target, device)
    torch.testing.assert_close(value, exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, slopes, rtol=2e-6, atol=2e-6)


def test_torch_is_used_for_a_loss_too_rough_for_a_table(device):
    assert fused(Jumping(), torch.randn(6, 5, device=device), torch.zeros(6, dtype=torch.int64, device=device)) is None


@pytest.mark.parametrize("spec", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
def test_one_pass_gives_margins_emphases_value_and_gradient(spec, in_place, device):
    scores, target = torch.randn(6, 5, device=device), torch.tensor([0, 4, -100, 2, 1, 1], device=device)
    loss, given = build(spec), scores.clone()
    actual = loss_and_gradient(loss, given, target, in_place=in_place)
    kept = target >= 0
    torch.testing.assert_close(actual.margin[kept], noisewise.margin(scores[kept], target[kept]))
    torch.testing.assert_close(actual.emphasis, noisewise.emphasis(loss, scores, target))
    assert actual.margin[2].isnan() and actual.emphasis[2] == 0
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target)
    value.backward()
    torch.testing.assert_close(actual.value, value.detach())
    torch.testing.assert_close(actual.gradient, leaf.grad)
    assert torch.equal(given, actual.gradient if in_place else scores)


def test_a_loss_that_adapts_reads_its_numbers_in_every_step(device, monkeypatch):
    monkeypatch.setattr("noisewise.kernels._fused._by_torch", None)
    loss, scores, target = build("auto").to(device).eval(), 4 * torch.randn(40, 10), torch.arange(40) % 10
    scores[0, 0], scores[1, 5], target[1] = 90, 90, -100
    for q in (0.0, 0.4, 1.0):
        loss.restore({"q": q, "assumed": 0.3, "size": 1 + q})
        actual = loss_and_gradient(loss, scores.to(device), target.to(device))
        leaf = scores.double().requires_grad_()
        value = copy.deepcopy(loss).cpu()(leaf, target)
        value.backward()
        torch.testing.assert_close(actual.value.cpu().double(), value.detach(), rtol=1e-5, atol=0)
        torch.testing.assert_close(actual.gradient.cpu().double(), leaf.grad, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("spec", ["scheduled(gce, 'q', 0.3, 0.9)", "scheduled(imae, 'T', 0.5, 8.0)"])
def test_a_kernel_reads_scheduled_numbers_from_memory(spec, device):
    """What a captured step has is the memory, so that must be the same before and after."""
    loss, scores, target = build(spec), 2 * torch.randn(40, 10, device=device), torch.arange(40, device=device) % 10
    pull = LossPull(loss)
    first = pull.rows(scores, target)
    memory = pull._live.numbers.data_ptr()
    advance(loss, 0.8)
    assert pull.refresh() and pull._live.numbers.data_ptr() == memory
    second = pull.rows(scores, target)
    for progress, actual in ((0, first), (0.8, second)):
        advance(loss, progress)
        leaf = scores.double().cpu().requires_grad_()
        values = copy.deepcopy(loss)
        values.reduction = "none"
        expected = values(leaf, target.cpu())
        expected.sum().backward()
        torch.testing.assert_close(actual.gradient.cpu().double(), leaf.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(actual.value.cpu().double(), expected.detach(), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(first.gradient, second.gradient)


def test_a_schedule_that_needs_other_code_is_noticed(device):
    loss, pull = (lambda loss: (loss, LossPull(loss)))(build("scheduled(tce, 'q', 2, 6)"))
    pull.rows(torch.randn(4, 3, device=device), torch.zeros(4, dtype=torch.int64, device=device))
    advance(loss, 1.0)
    assert not pull.refresh()


@pytest.mark.parametrize("classes", [3, 100, 1000])
def test_a_batch_is_counted_as_by_torch(classes, device):
    generator = torch.Generator().manual_seed(0)
    scores, target = 4 * torch.randn(70, classes, generator=generator), torch.randint(classes, (70,), generator=generator)
    target[5], scores[7], scores[8, 0] = -100, torch.nan, 8
    actual, expected = build("auto").to(device), build("auto")
    actual.note(scores.to(device), target.to(device))
    with _switch.off():
        expected.note(scores, target)
    for name in ("predictions", "labels", "margins"):
        counts, wanted = getattr(actual, name).cpu(), getattr(expected, name)
        assert counts.sum() == wanted.sum() == 69
        assert (counts - wanted).abs().sum() <= (0 if device == "cpu" else 4)  # rounding may move one from a cell to the next


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_linear_layer_with_a_loss_uses_the_kernel(reduction, device, monkeypatch):
    monkeypatch.setattr("noisewise.kernels._linear.CHUNK_BYTES", 4 * 3 * 4 * 6)
    hidden, weight, bias = (torch.randn(*shape, device=device, requires_grad=True) for shape in ((7, 4), (6, 4), (6,)))
    target = torch.tensor([0, 5, -100, 2, 1, 1, 3], device=device)
    loss = build("gce(q=0.7)", reduction=reduction, weight=torch.rand(6, device=device))
    results = []
    for value in (linear_loss(hidden, weight, target, loss=loss, bias=bias), loss(hidden @ weight.T + bias, target)):
        results.append((value.detach(), *torch.autograd.grad(2 * value.sum(), (hidden, weight, bias))))
    for actual, plain in zip(*results, strict=True):
        torch.testing.assert_close(actual, plain)


@pytest.mark.usefixtures("costly_if_interpreted")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")  # of the compiler
def test_a_compiled_step_with_a_linear_layer_gives_the_same_gradients(device):
    torch._dynamo.reset()
    hidden, weight = torch.randn(7, 4, device=device, requires_grad=True), torch.randn(6, 4, device=device, requires_grad=True)
    target, loss = torch.randint(6, (7,), device=device), build("imae(T=8)")

    def step(hidden: Tensor, weight: Tensor) -> Tensor:
        return 2 * linear_loss(torch.tanh(hidden), weight, target, loss=loss)

    gradients = [torch.autograd.grad(call(hidden, weight), (hidden, weight)) for call in (step, torch.compile(step, backend="aot_eager"))]
    for plain, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, plain)


def test_the_error_of_skipping_rows_stays_below_its_bound(device):
    hidden, weight = torch.randn(40, 4, device=device, requires_grad=True), torch.randn(6, 4, device=device, requires_grad=True)
    target, skip = torch.randint(6, (40,), device=device), 0.05
    loss = build("gce(q=0.7)", reduction="sum")
    exact = torch.autograd.grad(loss(hidden @ weight.T, target), (hidden, weight))
    actual = torch.autograd.grad(linear_loss(hidden, weight, target, loss=loss, skip=skip), (hidden, weight))
    pulls = noisewise.emphasis(loss, hidden @ weight.T, target)
    skipped = pulls < skip
    assert 0 < skipped.sum() < 40
    assert not actual[0][skipped].any()
    torch.testing.assert_close(actual[0][~skipped], exact[0][~skipped])
    assert (actual[0] - exact[0]).abs().max() <= 2 * skip * weight.abs().max()
    assert (actual[1] - exact[1]).abs().sum() <= 2 * skip * hidden[skipped].abs().sum(1).max() * skipped.sum()


def test_classes_with_negligible_gradients_are_skipped(device):
    """The examples are similar and the scores far apart, so that most classes have a negligible probability in every example."""
    hidden = (0.1 * torch.randn(40, 3, device=device) + torch.tensor([2.0, 0.0, 0.0], device=device)).requires_grad_()
    weight = (8 * torch.randn(200, 3, device=device)).requires_grad_()
    bias = torch.zeros(200, device=device, requires_grad=True)
    target, skip = torch.randint(200, (40,), device=device) % 5, 1e-3
    leaves = (hidden, weight, bias)
    for reduction, upstream in (("mean", torch.tensor(2.0)), ("none", torch.linspace(0.5, 2, 40))):
        loss = build("ce", reduction=reduction)
        given = upstream.to(device)
        exact = torch.autograd.grad(loss(hidden @ weight.T + bias, target), leaves, given)
        actual = torch.autograd.grad(linear_loss(hidden, weight, target, loss=loss, bias=bias, skip=skip), leaves, given)
        quiet = ~actual[2].bool()
        assert quiet.sum() > 20 and exact[2][quiet].any() and not actual[1][quiet].any()
        lost = 2 * skip * (2 / 40 if reduction == "mean" else 2)
        assert (actual[0] - exact[0]).abs().max() <= lost * weight.abs().max()
        assert (actual[2] - exact[2]).abs().sum() <= 40 * lost
        torch.testing.assert_close(actual[1][~quiet], exact[1][~quiet], rtol=1e-3, atol=40 * lost * float(hidden.detach().abs().max()))


def test_nan_rows_are_never_skipped(device):
    hidden = torch.randn(6, 3, device=device)
    hidden[2, 1] = torch.nan
    weight = torch.randn(9, 3, device=device, requires_grad=True)
    linear_loss(hidden, weight, torch.zeros(6, dtype=torch.int64, device=device), skip=0.1).backward()
    assert weight.grad.isnan().any()


def test_torch_is_used_for_float64_and_too_many_classes(device, monkeypatch):
    monkeypatch.setattr(_switch, "LONGEST", 8)
    target = torch.zeros(3, dtype=torch.int64, device=device)
    assert fused(build("ce"), torch.randn(3, 5, device=device, dtype=torch.float64), target) is None
    assert fused(build("ce"), torch.randn(3, 9, device=device), target) is None
    assert fused(build("ce"), torch.randn(3, 5, device=device), target) is not None


@pytest.mark.parametrize(
    "spec", ["mse", "nfl(q=0.5)", "logit_clip(ce, tau=1.5)", "cr(beta=1.0, prior=(0.5, 0.5))", "imae(normalise='batch')"]
)
def test_torch_is_used_for_losses_without_a_kernel(spec, device):
    assert fused(build(spec), torch.randn(3, 2, device=device), torch.zeros(3, dtype=torch.int64, device=device)) is None


@pytest.mark.parametrize("spec", ["gce(q=0.7)", *NORMALISED])
def test_training_with_kernels_equals_training_with_torch(spec, device, tmp_path):
    inputs = torch.randn(120, 6)
    given = {"loss": spec, "noise": "symmetric(0.2)", "epochs": 2, "device": device, "precision": "float32"}
    labels = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()
    kernels = noisewise.fit("mlp", (inputs, labels), folder=tmp_path / "kernels", **given)
    with _switch.off():
        torch_path = noisewise.fit("mlp", (inputs, labels), folder=tmp_path / "torch", **given)
    for ours, theirs in zip(kernels.metrics, torch_path.metrics, strict=True):
        for name in ("train_loss", "mean_emphasis"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
