"""Methods with a transition matrix, against the losses with the same matrix, autograd in float64, and known noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise import losses, methods
from noisewise.noise import corrupt
from noisewise.transition import anchor_points, confident_joint, dual_t
from one_step import CLASSES, LABELS, N, assert_follows, batch, data, never_scored, pull_of, scored, scores, state_of
from refused import refused

T = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]], dtype=torch.float64)


@pytest.mark.parametrize("inner", ["ce", "gce(q=0.7)", "imae(T=8)", "0.5*ce + 0.5*mae"])
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_correction_is_the_loss_with_the_estimated_matrix(name: str, inner: str) -> None:
    method = methods.get(f"{name}_correction")
    state = state_of(method)
    state["matrix"].copy_(T)
    if name == "backward":
        state["inverse"].copy_(torch.linalg.inv(T))
    loss = losses.registry[name](T, loss=inner, reduction="none")
    assert_follows(pull_of(method, state, scores(), inner), lambda leaf: loss(leaf, LABELS), scores())


@pytest.mark.parametrize("spec", ["forward_correction", "backward_correction", "t_revision"])
@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_the_loss_is_plain_during_the_warm_up(spec: str, loss: str) -> None:
    method = methods.get(spec)
    state = state_of(method)
    before = {name: value.clone() for name, value in state.items()}
    for epoch in range(1, 11):
        method.begin_epoch(state, epoch, 20, never_scored())
    pull, plain = pull_of(method, state, scores(), loss), methods.LossPull(losses.get(loss)).rows(scores(), LABELS)
    torch.testing.assert_close(pull.gradient, plain.gradient)
    torch.testing.assert_close(pull.value, plain.value)
    assert all(torch.equal(value, before[name]) for name, value in state.items())


def confident(labels: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    joint = confident_joint(labels, probabilities)
    return joint / joint.sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ("anchor", lambda labels, p: anchor_points(p, quantile=0.97)),
        ("dual_t", lambda labels, p: dual_t(labels, p, quantile=0.97)),
        ("confident_joint", confident),
    ],
)
@pytest.mark.parametrize("name", ["forward_correction", "backward_correction", "t_revision"])
def test_the_matrix_is_estimated_once_after_the_warm_up(name: str, matrix: str, expected: Any) -> None:
    true = torch.arange(600) % 3
    labels = corrupt(true, f"matrix({tuple(map(tuple, T.tolist()))})").labels
    method = methods.get(f"{name}(matrix={matrix!r}, warm_up=3, quantile=0.97)")
    state = state_of(method, labels)
    known = (T[true] + 0.1 * torch.rand(600, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).log()
    method.begin_epoch(state, 4, 9, scored(known))
    estimate = expected(labels, known.softmax(1))
    torch.testing.assert_close(state["matrix"], estimate, atol=1e-5, rtol=0)
    assert float((state["matrix"] - T).abs().max()) < 0.35
    if name == "backward_correction":
        torch.testing.assert_close(state["inverse"] @ state["matrix"], torch.eye(3, dtype=torch.float64))
    method.begin_epoch(state, 5, 9, never_scored())


@pytest.mark.parametrize(
    ("matrix", "confidence"), [("anchor", "calibrated"), ("confident_joint", "calibrated"), ("dual_t", "overconfident")]
)
def test_estimates_recover_a_known_matrix_from_exact_posteriors(matrix: str, confidence: str) -> None:
    """100 examples of every class, with labels exactly in the proportions of T. Dual T is made for networks that are too confident."""
    true = torch.arange(3).repeat_interleave(100)
    labels = torch.cat([torch.arange(3).repeat_interleave((100 * row).round().long()) for row in T])
    known = T[true].log() if confidence == "calibrated" else 100 * F.one_hot(true, 3).double()
    method = methods.get(f"forward_correction(matrix={matrix!r}, warm_up=1)")
    state = state_of(method, labels)
    method.begin_epoch(state, 2, 9, scored(known))
    torch.testing.assert_close(state["matrix"], T, atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["forward_correction", "backward_correction", "t_revision"])
def test_a_known_matrix_is_used_from_the_start_and_kept(name: str) -> None:
    method = methods.registry[name](matrix=T)
    assert repr(methods.get(repr(method))) == repr(method)
    state = state_of(method)
    for epoch in (1, 11, 21):
        method.begin_epoch(state, epoch, 30, never_scored())
        torch.testing.assert_close(state["matrix"], T, atol=1e-6, rtol=0)
    if name == "backward_correction":
        torch.testing.assert_close(state["inverse"] @ T, torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=0)


def over_labels(method: methods.Method, state: methods.State, given: torch.Tensor) -> list[methods.Pull]:
    """The pulls of the same examples with every label."""
    return [pull_of(method, state, given, of=batch(torch.full((N,), label))) for label in range(CLASSES)]


def test_backward_correction_is_unbiased_under_the_true_matrix() -> None:
    """Σ_ỹ T_yỹ L(ỹ) = loss(y) for every true class y: values and gradients."""
    method = methods.get("backward_correction")
    state = state_of(method)
    state["inverse"].copy_(torch.linalg.inv(T))
    pulls = over_labels(method, state, scores())
    for true in range(CLASSES):
        plain = methods.LossPull(losses.get("ce")).rows(scores(), torch.full((N,), true))
        torch.testing.assert_close(sum(share * pull.value for share, pull in zip(T[true], pulls, strict=True)), plain.value)
        torch.testing.assert_close(sum(share * pull.gradient for share, pull in zip(T[true], pulls, strict=True)), plain.gradient)


def backward() -> tuple[methods.Method, methods.State]:
    method = methods.get("backward_correction")
    state = state_of(method)
    state["inverse"].copy_(torch.linalg.inv(T))
    return method, state


def test_backward_correction_clips_probabilities_like_its_authors() -> None:
    """A clipped probability has no gradient."""
    method, state = backward()
    given = 12 * scores()
    assert (given.softmax(1) < 1e-7).any()

    def objective(leaf: torch.Tensor) -> torch.Tensor:
        return -(state["inverse"][LABELS] * leaf.softmax(1).clamp(1e-7, 1).log()).sum(1)

    expected, pull = given.clone().requires_grad_(), pull_of(method, state, given)
    values = objective(expected)
    torch.testing.assert_close(pull.value, values.detach(), atol=1e-5, rtol=0)
    torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), expected)[0], atol=1e-5, rtol=0)


def test_backward_correction_does_not_make_scores_grow_without_end() -> None:
    method, state = backward()
    given = scores()
    for _ in range(1000):
        given = given - pull_of(method, state, given).gradient
    assert given.abs().max() < 30


def test_forward_correction_has_its_minimum_at_the_clean_posterior() -> None:
    """If p = P(y | x), the expected gradient over noisy labels, with probabilities p T, is 0. That of the plain loss is not."""
    method = methods.get("forward_correction")
    state = state_of(method)
    share = scores().softmax(1) @ T

    def expected() -> torch.Tensor:
        pulls = over_labels(method, state, scores())
        return sum(share[:, [label]] * pull.gradient for label, pull in enumerate(pulls))  # type: ignore[return-value]

    assert float(expected().abs().max()) > 0.1
    state["matrix"].copy_(T)
    torch.testing.assert_close(expected(), torch.zeros(N, CLASSES, dtype=torch.float64), atol=1e-12, rtol=0)


def test_no_entry_of_an_estimate_is_zero() -> None:
    """A label that seemed impossible would have an infinite loss."""
    method = methods.get("forward_correction(warm_up=1)")
    state = state_of(method)
    method.begin_epoch(state, 2, 9, scored(1000 * torch.eye(3)[LABELS]))
    assert 5e-7 < float(state["matrix"].min()) < 2e-6
    torch.testing.assert_close(state["matrix"].sum(1), torch.ones(3, dtype=torch.float64))
    assert bool(pull_of(method, state, -1e4 * F.one_hot(LABELS, 3).double()).value.isfinite().all())  # type: ignore[union-attr]


@pytest.mark.parametrize("spec", ["forward_correction", "backward_correction", "t_revision(rate=1)"])
def test_extreme_scores_give_finite_gradients_in_float32(spec: str) -> None:
    method = methods.get(spec)
    state = {name: value.float() if value.is_floating_point() else value for name, value in state_of(method).items()}
    extreme = 1e4 * torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).repeat(4, 1)[:N]
    for epoch in (1, 11, 21):
        method.begin_epoch(state, epoch, 30, scored(extreme))
        pull = pull_of(method, state, extreme)
        assert pull.value is not None and bool(pull.gradient.isfinite().all()) and bool(pull.value.isfinite().all())
    assert not any(value.isnan().any() for value in state.values())


def beta(leaf: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    p, rows = leaf.softmax(1), torch.arange(N)
    return p[rows, LABELS] / (p @ matrix)[rows, LABELS]


def revising(epoch: int, spec: str = "t_revision(warm_up=1, fixed=2, rate=3)") -> tuple[methods.Method, methods.State]:
    method = methods.get(spec)
    state = state_of(method)
    state["matrix"].copy_(T)
    method.begin_epoch(state, epoch, 9, never_scored())
    return method, state


def test_t_revision_learns_the_slack_and_takes_its_weight_as_a_constant() -> None:
    method, state = revising(4)
    state["slack"].copy_(0.05 * torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    slack = state["slack"].clone().requires_grad_()
    mean = (beta(scores(), T + slack) * F.cross_entropy(scores(), LABELS, reduction="none")).mean()
    (slope,) = torch.autograd.grad(mean, slack)
    fixed = (T + slack).detach()
    pull = pull_of(method, state, scores())
    assert_follows(pull, lambda leaf: beta(scores(), fixed) * F.cross_entropy(leaf, LABELS, reduction="none"), scores())
    torch.testing.assert_close(state["slack"], slack.detach() - 3 * 0.1 * slope)


def test_revising_the_matrix_unlearns_no_label() -> None:
    """β · loss is also small for a label with a small probability, which must not pull the network there."""
    method, state = revising(4, "t_revision(warm_up=1, fixed=2)")
    given = torch.tensor([[0.0, 3.0, 0.0]], dtype=torch.float64).expand(N, -1)
    pull = pull_of(method, state, given, of=batch(torch.zeros(N, dtype=torch.int64)))
    assert (pull.gradient[:, 0] < 0).all()


def test_t_revision_first_takes_weight_and_matrix_as_constants() -> None:
    method, state = revising(3)
    pull = pull_of(method, state, scores(), "gce(q=0.7)")
    loss = losses.get("gce(q=0.7)", reduction="none")
    assert_follows(pull, lambda leaf: beta(scores(), T) * loss(leaf, LABELS), scores())
    assert not state["slack"].any()


def test_weights_of_t_revision_give_the_clean_loss_on_average() -> None:
    """If p is the true posterior, Σ_ỹ P(ỹ | x) β(ỹ) l(ỹ) = Σ_y P(y | x) l(y)."""
    method, state = revising(3)
    p = scores().softmax(1)
    total = torch.zeros(N, dtype=torch.float64)
    for label in range(CLASSES):
        value = pull_of(method, state, scores(), of=batch(torch.full((N,), label))).value
        assert value is not None
        total += (p @ T)[:, label] * value
    torch.testing.assert_close(total, -(p * p.log()).sum(1))


@pytest.mark.parametrize(
    ("method", "loss", "mentions"),
    [
        ("forward_correction(matrix='ancor')", "ce", ("'matrix'", "'anchor'", "ancor")),
        ("forward_correction(quantile=0)", "ce", ("'quantile'", "(0, 1]")),
        ("forward_correction(warm_up=0)", "ce", ("'warm_up'", "[1, inf)")),
        ("forward_correction", "nce", ("forward_correction", "margin", "nce")),
        ("forward_correction", "ce(label_smoothing=0.1)", ("forward_correction", "label_smoothing")),
        ("backward_correction", "ce(weight=(1.0, 2.0, 3.0))", ("backward_correction", "weight")),
        ("t_revision", "imae(T=8, normalise='batch')", ("t_revision", "normalise='batch'")),
        ("forward_correction(matrix=((0.9, 0.1), (0.1, 0.9)))", "ce", ("'values'", "3 classes")),
        ("backward_correction(matrix=((0.5, 0.5, 0), (0.5, 0.5, 0), (0, 0, 1)))", "ce", ("backward_correction", "inverse")),
        ("forward_correction(matrix=((1, 0, 0), (0, 1, 0), (0, 1, 0)))", "ce", ("forward_correction", "'2'", "never")),
        ("t_revision(matrix='instance(0.2)')", "ce", ("'matrix'", "depends only on the class", "instance")),
    ],
)
def test_bad_requests_are_refused_before_any_work(method: str, loss: str, mentions: tuple[str, ...], tmp_path: Path) -> None:
    examples = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    with refused(*mentions):
        noisewise.fit("linear", examples, loss=loss, method=method, epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_the_confident_joint_needs_every_class() -> None:
    method = methods.get("forward_correction(matrix='confident_joint')")
    with refused("confident_joint", "'c'"):
        method.check(losses.get("ce"), data(torch.tensor([0, 1, 1])))
    methods.get("forward_correction(matrix='anchor')").check(losses.get("ce"), data(torch.tensor([0, 1, 1])))
