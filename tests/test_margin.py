"""The margin, its gradient, and the emphasis of any criterion."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import noisewise
from noisewise import emphasis, margin, margins
from noisewise.losses import CE
from refused import refused
from registry import batch


def test_the_margin_is_the_log_odds_of_the_label():
    scores, target = batch(50, 9)
    p = scores.softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(margin(scores, target), (p / (1 - p)).log())


def test_the_gradient_is_one_for_the_label_and_minus_the_softmax_of_the_others():
    scores, target = batch(50, 9)
    grad = torch.func.grad(lambda s: margin(s, target).sum())(scores)
    others = scores.scatter(1, target[:, None], -torch.inf).softmax(1)
    torch.testing.assert_close(grad, F.one_hot(target, 9) - others)
    torch.testing.assert_close(grad.abs().sum(1), torch.full((50,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (2, 5, 2, 2)])
def test_margins_of_every_shape_are_differentiable_twice(shape):
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    target = torch.randint(5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    assert gradcheck(lambda s: margin(s, target), scores) and gradgradcheck(lambda s: margin(s, target), scores)
    assert gradcheck(margins, scores) and gradgradcheck(margins, scores)


def test_margins_returns_the_margin_of_every_class():
    scores, _ = batch(20, 6, std=5)
    every = margins(scores)
    for label in range(6):
        torch.testing.assert_close(every[:, label], margin(scores, torch.full((20,), label)))


def test_tied_scores_have_finite_margins():
    scores = torch.tensor([[3.0, 3.0, 3.0], [1e4, 1e4, -1e4]], requires_grad=True)
    margins(scores).sum().backward()
    assert torch.isfinite(scores.grad).all()
    torch.testing.assert_close(margins(scores.detach())[0], -torch.log(torch.tensor([2.0, 2.0, 2.0])))


def test_a_nan_in_a_row_does_not_change_the_margins_of_other_rows():
    scores = torch.tensor([[float("nan"), 0.0, 0.0], [0.0, 900.0, -3.0]], dtype=torch.float64)
    values = margin(scores, torch.tensor([0, 0]))
    assert values[0].isnan() and values[1] == -900


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_give_float32_margins_and_half_precision_gradients(dtype):
    scores = torch.randn(4, 5).to(dtype).requires_grad_()
    values = margin(scores, torch.tensor([0, 1, 2, 3]))
    values.sum().backward()
    assert values.dtype == torch.float32 and scores.grad.dtype == dtype


def test_vmap_of_the_margin_equals_a_loop():
    scores, target = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
    torch.testing.assert_close(
        torch.func.vmap(margin)(scores, target), torch.stack([margin(s, y) for s, y in zip(scores, target, strict=True)])
    )
    shared = torch.func.vmap(margin, in_dims=(None, 0))(scores[0], target)
    torch.testing.assert_close(shared, torch.stack([margin(scores[0], y) for y in target]))


@pytest.mark.parametrize(
    "criterion",
    [
        torch.nn.CrossEntropyLoss(),
        torch.nn.CrossEntropyLoss(reduction="sum"),
        torch.nn.CrossEntropyLoss(reduction="none"),
        F.cross_entropy,
        lambda s, y: F.cross_entropy(s, y, reduction="none"),
        CE(),
    ],
)
def test_the_emphasis_of_any_cross_entropy_is_one_minus_p(criterion):
    scores, target = batch(12, 5)
    p = scores.softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(emphasis(criterion, scores, target), 1 - p)
    torch.testing.assert_close(emphasis(criterion, scores, target, norm="l1"), 2 * (1 - p))


def test_emphasis_does_not_change_the_criterion_or_the_scores():
    scores, target = batch(12, 5)
    scores.requires_grad_()
    criterion = torch.nn.CrossEntropyLoss()
    with torch.no_grad():
        values = emphasis(criterion, scores, target)
    assert criterion.reduction == "mean" and scores.grad is None and not values.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_are_widened_before_an_emphasis_is_taken(dtype):
    scores, target = batch(50, 9, dtype=dtype)
    p = scores.double().softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(emphasis(CE(), scores, target), (1 - p).float())


def test_the_emphasis_of_a_name_is_refused_with_the_right_call():
    with refused("'loss'", "emphasis", "noisewise.get('ce')", "'gce'"):
        emphasis("gce", torch.zeros(2, 3), torch.tensor([0, 1]))


def test_class_weights_weigh_the_emphasis():
    scores, target = batch(12, 5)
    weight = torch.rand(5, dtype=torch.float64)
    plain, weighted = emphasis(CE(), scores, target), emphasis(torch.nn.CrossEntropyLoss(weight=weight), scores, target)
    torch.testing.assert_close(weighted, plain * weight[target])


def test_every_shape_of_batch_has_an_emphasis_per_example():
    scores, target = torch.randn(2, 5, 3), torch.randint(5, (2, 3))
    assert emphasis(noisewise.get("ce"), scores, target).shape == (2, 3)
    assert emphasis(noisewise.get("nce"), scores[0, :, 0], target[0, 0]).shape == ()
