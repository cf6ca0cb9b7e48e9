"""Every loss is a drop-in for `nn.CrossEntropyLoss`: CE is compared with torch itself, the others with CE's behaviour."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise.kernels import loss_and_gradient
from noisewise.losses import CE, GCE, IMAE, MAE
from refused import refused
from registry import BINARY, EVERY, SEPARATE, SPECS, batch, build, slow_unless_first

SHAPES = [(7,), (5, 7), (3, 7, 4), (2, 7, 3, 2)]
WEIGHT = torch.linspace(0.2, 2, 7, dtype=torch.float64)


def target_for(shape: tuple[int, ...], kind: str) -> torch.Tensor:
    if kind == "probabilities":
        return torch.rand(shape, dtype=torch.float64).softmax(1 if len(shape) > 1 else 0)
    labels = torch.randint(7, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if kind == "some ignored" and labels.dim():
        labels.view(-1)[::2] = -100
    return labels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["labels", "some ignored", "probabilities"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_ce_is_torch_cross_entropy(shape, kind, reduction, weighted, label_smoothing):
    settings = {"reduction": reduction, "weight": WEIGHT if weighted else None, "label_smoothing": label_smoothing}
    target = target_for(shape, kind)
    results = []
    for call in (CE(**settings), torch.nn.CrossEntropyLoss(**settings)):
        torch.manual_seed(3)
        scores = (3 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
        value = call(scores, target)
        (value * torch.arange(1, value.numel() + 1, dtype=value.dtype).view(value.shape)).sum().backward()
        results.append((value.detach(), scores.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_ce_is_torch_cross_entropy_in_its_type(dtype, reduction):
    scores, target = batch(64, 11, dtype=dtype)
    ours, theirs = CE(reduction=reduction)(scores, target), F.cross_entropy(scores, target, reduction=reduction)
    exact = F.cross_entropy(scores.double(), target, reduction=reduction)
    assert ours.dtype == theirs.dtype
    assert ((ours - exact).abs() <= 2 * torch.finfo(dtype).eps * (1 + exact)).all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_of_any_type_give_the_type_torch_gives(dtype, kind, autocast):
    scores, target = batch(8, 5, dtype=dtype)[0], torch.rand(8, 5).softmax(1).to(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert CE()(scores, target).dtype == F.cross_entropy(scores, target).dtype
        assert CE()(scores, target.argmax(1)).dtype == F.cross_entropy(scores, target.argmax(1)).dtype


@pytest.mark.parametrize("ignore_index", [3, 0, -1, 255])
def test_any_ignore_index_is_honoured(ignore_index):
    scores, target = batch(30, 7)
    target[::3] = ignore_index
    expected = F.cross_entropy(scores, target, ignore_index=ignore_index)
    torch.testing.assert_close(CE(ignore_index=ignore_index)(scores, target), expected)


def test_integer_types_other_than_int64_are_labels_too():
    scores, target = batch()
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.int8, torch.int16, torch.int32):
        assert CE()(scores, target.to(dtype)) == CE()(scores, target)
        assert torch.equal(noisewise.margin(scores, target.to(dtype)), noisewise.margin(scores, target))


def test_a_non_contiguous_batch_is_the_same_batch():
    scores, target = batch(6, 7)
    stored = scores.t().contiguous().t()
    assert not stored.is_contiguous()
    torch.testing.assert_close(IMAE()(stored, target), IMAE()(scores, target))


def test_masked_classes_with_score_minus_infinity_are_ignored():
    scores, target = batch(5, 7)
    target %= 5
    masked = scores.clone()
    masked[:, 5:] = -math.inf
    masked.requires_grad_()
    for loss in (CE(), GCE(), IMAE(), MAE()):
        masked.grad = None
        value = loss(masked, target)
        value.backward()
        torch.testing.assert_close(value, loss(scores[:, :5], target))
        assert torch.isfinite(masked.grad).all() and (masked.grad[:, 5:] == 0).all()
    soft = torch.zeros(5, 7, dtype=torch.float64)
    soft[:, :5] = 0.2
    torch.testing.assert_close(CE()(masked, soft), CE()(scores[:, :5], soft[:, :5]))


@pytest.mark.parametrize("spec", ["ce", "focal(q=0)", "focal(q=2)"])
def test_a_row_with_only_its_label_unmasked_has_zero_loss_and_gradient(spec):
    scores = torch.tensor([[-math.inf, 2.0, -math.inf]], requires_grad=True)
    value = build(spec)(scores, torch.tensor([1]))
    value.backward()
    assert value == 0 and (scores.grad == 0).all()


@pytest.mark.parametrize("spec", SEPARATE)
def test_dimensions_are_examples(spec):
    torch.manual_seed(0)
    scores, target = torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.randint(5, (2, 3, 4))
    target[0, 0] = -100
    flat = scores.permute(0, 2, 3, 1).reshape(-1, 5), target.reshape(-1)
    weight = torch.rand(5, dtype=torch.float64)
    loss = build(spec, weight=weight, label_smoothing=0.1)
    torch.testing.assert_close(loss(scores, target), loss(*flat))
    rows = build(spec, reduction="none")
    torch.testing.assert_close(rows(scores, target).reshape(-1), rows(*flat))


def test_a_class_prior_applies_at_every_position():
    scores, target = torch.randn(2, 5, 3, dtype=torch.float64), torch.randint(5, (2, 3))
    loss = noisewise.get("cr(beta=0.5, prior=(0.1, 0.2, 0.3, 0.4, 0.0))")
    torch.testing.assert_close(loss(scores, target), loss(scores.movedim(1, -1).reshape(-1, 5), target.reshape(-1)))


@pytest.mark.parametrize("spec", SEPARATE)
def test_one_hot_probabilities_equal_labels(spec):
    scores, target = batch()
    one_hot = F.one_hot(target, scores.shape[1]).double()
    for settings in ({}, {"label_smoothing": 0.2}, {"reduction": "none"}):
        loss = build(spec, **settings)
        torch.testing.assert_close(loss(scores, one_hot), loss(scores, target), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("spec", SEPARATE)
def test_probabilities_give_the_expected_loss(spec):
    scores, _ = batch(4, 5)
    target = torch.rand(4, 5, dtype=torch.float64).softmax(1)
    loss = build(spec, reduction="none")
    every = torch.stack([loss(scores, torch.full((4,), label)) for label in range(5)], 1)
    torch.testing.assert_close(loss(scores, target), (target * every).sum(1), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("spec", SEPARATE)
def test_a_sample_weight_of_two_counts_twice(spec):
    scores, target = batch(4, 5)
    count = torch.tensor([1, 2, 0, 3])
    weight = torch.rand(5, dtype=torch.float64)
    for settings in ({}, {"weight": weight}, {"reduction": "sum"}, {"label_smoothing": 0.1, "weight": weight}):
        loss = build(spec, **settings)
        repeated = loss(scores.repeat_interleave(count, 0), target.repeat_interleave(count))
        torch.testing.assert_close(loss(scores, target, sample_weight=count.double()), repeated)


def test_a_sample_weight_may_be_given_per_example_or_per_position():
    scores, target = torch.randn(3, 5, 4), torch.randint(5, (3, 4))
    whole = torch.tensor([1.0, 0.5, 2.0])
    torch.testing.assert_close(MAE()(scores, target, sample_weight=whole), MAE()(scores, target, sample_weight=whole[:, None].expand(3, 4)))


@pytest.mark.parametrize("spec", EVERY)
def test_a_batch_of_ignored_examples_has_zero_loss_and_zero_gradient(spec):
    scores = torch.randn(4, 5, requires_grad=True)
    for settings in ({}, {"weight": torch.ones(5)}):
        value = build(spec, **settings)(scores, torch.full((4,), -100))
        (gradient,) = torch.autograd.grad(value, scores)
        assert value == 0 and (gradient == 0).all()
    assert build(spec)(scores, torch.zeros(4, dtype=torch.int64), sample_weight=torch.zeros(4)) == 0


@pytest.mark.parametrize("spec", SEPARATE)
def test_ignored_examples_change_nothing_for_the_others(spec):
    scores, target = batch(6, 5)
    kept = torch.tensor([0, 2, 5])
    ignored = target.clone()
    ignored[[1, 3, 4]] = -100
    torch.testing.assert_close(build(spec)(scores, ignored), build(spec)(scores[kept], target[kept]))


@pytest.mark.parametrize("spec", EVERY)
def test_nan_scores_are_not_hidden(spec):
    scores, target = batch(4, 5)
    scores[1, 2] = math.nan
    scores.requires_grad_()
    value = build(spec)(scores, target)
    value.backward()
    assert torch.isnan(value) and torch.isnan(scores.grad[1]).any()


def test_an_empty_batch_has_a_sum_but_no_mean():
    scores, target = torch.randn(0, 5), torch.empty(0, dtype=torch.int64)
    assert CE(reduction="sum")(scores, target) == 0
    assert CE(reduction="none")(scores, target).shape == (0,)
    with refused("CE", "(0, 5)"):
        CE()(scores, target)


S, Y = torch.randn(4, 5), torch.randint(5, (4,))
BAD_CALLS = {
    "the scores are integers": (lambda: CE()(Y, Y), "scores", "torch.int64"),
    "the scores are a list": (lambda: CE()([[1.0, 2.0]], Y), "scores", "list"),
    "there is one class only": (lambda: CE()(torch.randn(4, 1), Y), "scores", "(4, 1)"),
    "the scores are a number": (lambda: CE()(torch.tensor(1.0), Y), "scores", "()"),
    "the target is a list": (lambda: CE()(S, [1, 2]), "target", "list"),
    "the target is boolean": (lambda: CE()(S, Y > 2), "target", "torch.bool"),
    "the target has another length": (lambda: CE()(S, Y[:3]), "target", "(4,)", "(3,)"),
    "the target is floats of the labels' shape": (lambda: CE()(S, Y.float()), "probabilities", "(4, 5)", "(4,)"),
    "a label is too large": (lambda: CE()(S, Y.clone().fill_(5)), "0 to 4", "ignore_index", -100, 5),
    "a label is negative": (lambda: CE()(S, Y.clone().fill_(-1)), "0 to 4", "ignore_index", -100, -1),
    "the class weights are too few": (lambda: CE(weight=torch.ones(4))(S, Y), "weight", 5, "(4,)"),
    "the sample weights are too few": (lambda: CE()(S, Y, sample_weight=torch.ones(3)), "sample_weight", "(4,)", "(3,)"),
    "probabilities with an ignore_index": (lambda: CE(ignore_index=2)(S, S.softmax(1)), "ignore_index", "probabilities", 2),
    "a margin of labels out of range": (lambda: noisewise.margin(S, Y.clone().fill_(7)), "0 to 4", 7),
    "an unknown norm": (lambda: noisewise.emphasis(CE(), S, Y, norm="l2"), "norm", "margin", "l1", "l2"),
    "peer loss on probabilities": (lambda: noisewise.get("peer(ce)")(S, S.softmax(1)), "class indices"),
    "batch normalisation on probabilities": (lambda: IMAE(normalise="batch")(S, S.softmax(1)), "class indices"),
    "a prior of another length": (lambda: noisewise.get("cr(prior=(0.5, 0.5))")(S, Y), "prior", 5),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_is_refused(call):
    function, *mentions = BAD_CALLS[call]
    with refused(*mentions):
        function()


def test_a_bad_hyper_parameter_is_refused_in_the_sentence_of_scikit_learn():
    with refused() as caught:
        noisewise.get("gce(q=-1)")
    assert str(caught.value) == "The 'q' parameter of GCE must be in (0, 1]. Got -1 instead."


BAD_SETTINGS = {
    "gce(q=0)": ("'q'", "GCE", "(0, 1]", 0),
    "gce(q=True)": ("'q'", "GCE", "(0, 1]", True),
    "gce(q='a')": ("'q'", "GCE", "(0, 1]", "'a'"),
    "aul(a=1)": ("'a'", "AUL", "(1, inf)", 1),
    "tce(q=1.5)": ("'q'", "TCE", "[1, inf)", 1.5),
    "rce(A=4)": ("'A'", "RCE", "(-inf, 0)", 4),
    "gr(g='tanh')": ("'g'", "GR", "'exp', 'identity'", "'tanh'"),
    "imae(normalise=mean)": ("normalise", "IMAE", "'none', 'maximum', 'integral', 'batch'", "'mean'"),
    "ce(reduction=avg)": ("reduction", "CE", "'mean', 'sum', 'none'", "'avg'"),
    "ce(label_smoothing=2)": ("label_smoothing", "CE", "[0, 1]", 2),
    "ce(ignore_index=1.5)": ("ignore_index", "integer", 1.5),
    "ce(weight='heavy')": ("weight", "'heavy'"),
    "scaled(nce, 2)": ("loss", "nce"),
    "cr(prior=(0.5, 0.6))": ("prior", "CR", (0.5, 0.6)),
    "scaled(mae, 2, expected=0)": ("expected", 0),
    "scheduled(ce, 'q', 0, 1)": ("parameter", "ce", "'q'"),
    "scheduled(gce, 'q', 0.5, 2)": ("'q'", "GCE", "(0, 1]", 2.0),
    "logit_clip(ce(reduction='sum'))": ("ce(reduction='sum')",),
    "imae(T=3000)": ("emphasis", "finite", "Δ = -"),
    "imae(T=3000, normalise='maximum')": ("maximum", "emphasis"),
    "gr(beta=0, g='identity', normalise='integral')": ("integral", "emphasis"),
    "normalised(-1*mae)": ("maximum", "emphasis"),
    "scaled(imae(normalise='batch'), 2)": ("batch",),
}


@pytest.mark.parametrize("spec", BAD_SETTINGS)
def test_a_bad_setting_is_refused(spec):
    with refused(*BAD_SETTINGS[spec]):
        noisewise.get(spec)


# The defaults are the papers' recommendations, and −4 for A, where most published code has −9.21.
DEFAULTS = """
    ael(q=2.5) agce(a=0.6,q=0.6) amse(a=30.0) anl_ce(alpha=5.0,beta=5.0,p_min=1e-07) anl_fl(alpha=5.0,beta=5.0,q=0.5,p_min=1e-07)
    aul(a=2.0,q=3.0) cr(beta=2.0,prior=None) eps_softmax(m=100000.0) focal(q=2.0) focal_detached(q=2.0) gce(q=0.7) gjs(pi=0.5)
    gls(alpha=-0.4) gr(beta=8.0,lam=0.5,g='exp',saturation=0.001,normalise='none') imae(T=8.0,saturation=0.001,normalise='none')
    js(pi=0.5) ls(alpha=0.1) nfl(q=0.5) phuber_ce(tau=10.0) power(q=10.0) rce(A=-4.0) sce(alpha=0.1,beta=1.0,A=-4.0)
    tce(q=3) truncated_gce(q=0.7,kappa=0.5) vce(a=4.0)
"""


@pytest.mark.parametrize("spec", DEFAULTS.split())
def test_defaults_do_not_change(spec):
    """A script that says `gce` means the default: changing it would silently change results."""
    assert repr(noisewise.get(spec.partition("(")[0])).replace(", ", ",") == spec


def test_a_setting_is_checked_when_it_is_changed_later():
    loss = GCE(q=0.5)
    with refused("'q'", 2):
        loss.q = 2
    assert loss.q == 0.5


def test_a_changed_setting_changes_the_loss():
    loss = IMAE(T=2)
    scores, target = batch()
    before = loss(scores, target)
    loss.T = 8
    torch.testing.assert_close(loss(scores, target), IMAE(T=8)(scores, target))
    assert before != loss(scores, target)


def test_the_losses_of_a_sum_must_agree_on_the_contract():
    both = CE(reduction="sum") + MAE(reduction="sum")
    scores, target = batch()
    torch.testing.assert_close(both(scores, target), CE(reduction="sum")(scores, target) + MAE(reduction="sum")(scores, target))
    with refused("ce(reduction='sum')", "mae"):
        CE(reduction="sum") + MAE()


@pytest.mark.parametrize(("first", "second"), list(itertools.product(["ce", "nce", "imae(T=4)"], repeat=2)))
def test_sums_and_multiples_are_linear(first, second):
    scores, target = batch()
    weight = torch.rand(7, dtype=torch.float64)
    a, b = (noisewise.get(spec, weight=weight, label_smoothing=0.1) for spec in (first, second))
    combined = 0.3 * a + 2 * b
    torch.testing.assert_close(combined(scores, target), 0.3 * a(scores, target) + 2 * b(scores, target))
    nested = 0.5 * combined + a
    torch.testing.assert_close(nested(scores, target), 1.15 * a(scores, target) + b(scores, target))


def test_a_model_may_contain_its_loss():
    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.loss = torch.nn.Linear(3, 5), IMAE(weight=torch.ones(5))

        def forward(self, inputs, target):
            return self.loss(self.layer(inputs), target)

    model = WithLoss().to(torch.float64)
    assert model.loss.weight.dtype == torch.float64
    assert list(model.state_dict()) == ["layer.weight", "layer.bias", "loss.weight"]
    assert torch.isfinite(model(torch.randn(4, 3, dtype=torch.float64), torch.randint(5, (4,))))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int16, torch.int64])
def test_margins_accept_labels_of_every_integer_type(dtype):
    scores, labels = torch.randn(2, 200), torch.tensor([156, 3])  # as uint8, the default −100 of ignore_index is 156
    torch.testing.assert_close(loss_and_gradient("ce", scores, labels.to(dtype)).margin, noisewise.margin(scores, labels))


@pytest.mark.parametrize("spec", [*slow_unless_first(SPECS), "normalised(mae)", "cr(prior=(0.1, 0.2, 0.3, 0.4))"])
def test_every_loss_works_on_the_meta_device(spec):
    with torch.device("meta"):
        loss = noisewise.get(spec)
    scores = torch.empty(3, 4, device="meta")
    target = scores if spec in BINARY else torch.empty(3, dtype=torch.long, device="meta")
    assert loss(scores, target).shape == torch.nn.CrossEntropyLoss()(scores, torch.empty(3, dtype=torch.long, device="meta")).shape
