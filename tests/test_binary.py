"""The binary and multi-label form is a drop-in for `nn.BCEWithLogitsLoss`, and agrees with two classes."""

import functools

import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise.losses import CE, Binary
from refused import refused
from registry import SEPARATE, build

INNER = [spec for spec in SEPARATE if spec not in ("scaled(mae, 2.0)", "shifted(mae, 2.0)") and not build(spec).adapts]


def labels(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    return 3 * torch.randn(*shape, dtype=torch.float64), torch.randint(2, shape)


def along_labels(factors: torch.Tensor | None, dims: int) -> torch.Tensor | None:
    return None if factors is None else factors.view(1, 4, *[1] * (dims - 2))


@pytest.mark.parametrize("shape", [(6,), (6, 4), (2, 4, 3)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_ce_is_torch_binary_cross_entropy(shape, reduction, weighted):
    scores, target = labels(*shape)
    several = len(shape) > 1
    weight = torch.rand(4, dtype=torch.float64) if weighted and several else None
    positive = torch.rand(4, dtype=torch.float64) if weighted and several else None
    spread = functools.partial(along_labels, dims=len(shape))
    for share in (target.double(), torch.rand(shape, dtype=torch.float64)):
        expected = F.binary_cross_entropy_with_logits(scores, share, spread(weight), reduction=reduction, pos_weight=spread(positive))
        ours = Binary("ce", pos_weight=positive, weight=weight, reduction=reduction)
        torch.testing.assert_close(ours(scores, share), expected)


@pytest.mark.parametrize("spec", INNER)
def test_binary_is_two_classes_with_scores_zero_and_s(spec):
    scores, target = labels(6, 4)
    pair = torch.stack([torch.zeros(24, dtype=torch.float64), scores.reshape(-1)], 1)
    for settings in ({}, {"reduction": "none"}, {"label_smoothing": 0.2}):
        ours = noisewise.get(f"binary({spec})", **settings)(scores, target)
        expected = noisewise.get(spec, **settings)(pair, target.reshape(-1))
        torch.testing.assert_close(ours.reshape(expected.shape), expected, rtol=1e-9, atol=1e-11)


def test_a_curriculum_with_two_classes_needs_the_expected_margin():
    scores, target = labels(3, 4)
    with refused("two classes", "expected"):
        Binary("scaled(mae, 2)")(scores, target)


def test_missing_labels_are_ignored():
    scores, target = labels(6, 4)
    target[0] = -100
    target[3, 2] = -100
    kept = target >= 0
    expected = Binary("imae")(scores[kept], target[kept])
    torch.testing.assert_close(Binary("imae")(scores, target), expected)
    assert Binary("imae")(scores, torch.full_like(target, -100)) == 0


def test_sample_weights_count_examples():
    scores, target = labels(3, 4)
    count = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    repeated = Binary("gce")(scores[[0, 0, 2]], target[[0, 0, 2]])
    torch.testing.assert_close(Binary("gce")(scores, target, sample_weight=count), repeated)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_and_keeps_its_type(dtype):
    scores = torch.tensor([[1e4, -1e4, 0.0]], dtype=dtype, requires_grad=True)
    for spec in ("ce", "imae", "gce", "nce", "mse"):
        scores.grad = None
        value = Binary(spec)(scores, torch.tensor([[0, 1, 1]]))
        value.backward()
        assert value.dtype == dtype and torch.isfinite(value) and torch.isfinite(scores.grad).all()


def test_targets_of_a_wider_type_widen_the_result_as_torch_does():
    scores, target = torch.full((600, 1), 300.0, dtype=torch.float16), torch.zeros(600, 1)
    value = Binary("ce", reduction="sum")(scores, target)
    expected = F.binary_cross_entropy_with_logits(scores, target, reduction="sum")
    assert (value.dtype, value.item()) == (expected.dtype, expected.item()) == (torch.float32, 180_000.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_under_autocast_the_loss_has_the_same_type_as_in_torch(dtype):
    scores, target = labels(6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = F.binary_cross_entropy_with_logits(scores.to(dtype), target.to(dtype))
        assert Binary("ce")(scores.to(dtype), target).dtype == expected.dtype


def test_bad_calls_are_refused():
    scores, target = labels(3, 4)
    with refused("target", "(2, 4)"):
        Binary("ce")(scores, target[:2])
    with refused("scores", "torch.int64"):
        Binary("ce")(target, target)
    with refused("pos_weight", 4, (1.0, 2.0)):
        Binary("ce", pos_weight=(1.0, 2.0))(scores, target)
    with refused("batch", "(0, 4)"):
        Binary("ce")(scores[:0], target[:0])
    with refused("target", "0", "1"):
        Binary("ce")(scores, target + 1)
    with refused("batch", "peer(ce"):
        Binary("peer(ce)")


def test_binary_ce_of_one_column_is_ce_of_two_classes():
    scores, target = labels(8, 2)
    difference = scores[:, 1] - scores[:, 0]
    torch.testing.assert_close(Binary("ce")(difference, target[:, 0]), CE()(scores, target[:, 0]))


@pytest.mark.parametrize(
    "spec", ["0.5*binary(ce)", "binary(ce) + binary(mae)", "binary(binary(ce))", "logit_clip(binary(ce))", "peer(binary(ce))"]
)
def test_binary_cannot_be_inside_another_loss(spec):
    with refused("binary(ce, pos_weight=None)"):
        noisewise.get(spec)


def test_a_sum_can_be_inside_binary():
    scores, target = labels(6, 4)
    inside, outside = noisewise.get("binary(0.5*ce + mae)"), 0.5 * Binary("ce")(scores, target) + Binary("mae")(scores, target)
    torch.testing.assert_close(inside(scores, target), outside)
