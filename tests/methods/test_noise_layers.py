"""Methods that learn the transition matrix in a last layer, against autograd in float64 and known noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import noisewise
from noisewise import losses, methods
from noisewise.noise import corrupt
from one_step import CLASSES, LABELS, N, assert_follows, batch, never_scored, pull_of, scored, scores, state_of
from refused import refused

T = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]], dtype=torch.float64)
PAIRS = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.8, 0.2], [0.4, 0.0, 0.6]], dtype=torch.float64)


def test_the_noise_layer_starts_from_the_soft_confusion_matrix() -> None:
    method = methods.get("s_adaptation(warm_up=2)")
    state = state_of(method)
    method.begin_epoch(state, 3, 9, scored(scores()))
    p = scores().softmax(1).numpy()
    expected = np.array([[p[j == LABELS, i].sum() / p[:, i].sum() for j in range(CLASSES)] for i in range(CLASSES)])
    np.testing.assert_allclose(state["layer"].exp(), expected, atol=1e-7)


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)", "mae"])
def test_the_noise_layer_moves_by_gradient_descent(loss: str) -> None:
    method = methods.get("s_adaptation(warm_up=1, rate=2)")
    state = state_of(method)
    method.begin_epoch(state, 3, 9, never_scored())
    layer = torch.randn(3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    state["layer"].copy_(layer)
    plain = losses.get(loss, reduction="none")

    def objective(leaf: torch.Tensor, layer: torch.Tensor = layer) -> torch.Tensor:
        return plain((leaf.softmax(1) @ layer.softmax(1)).log(), LABELS)

    assert_follows(pull_of(method, state, scores(), loss), objective, scores())
    layer.requires_grad_()
    (slope,) = torch.autograd.grad(objective(scores(), layer).mean(), layer)
    torch.testing.assert_close(state["layer"], layer.detach() - 2 * 0.1 * slope)


def learned(spec: str, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the layer learns under a network that knows the true classes, and the transition matrix of the labels."""
    true = torch.arange(900) % CLASSES
    noisy = corrupt(true, f"matrix({tuple(map(tuple, matrix.tolist()))})")
    method, right = methods.get(spec), 20 * F.one_hot(true, CLASSES).double()
    state = state_of(method, noisy.labels)
    method.begin_epoch(state, 2, 9, scored(0 * right))  # the layer starts from a network that has learned nothing
    for _ in range(300):
        pull_of(method, state, right, of=batch(noisy.labels, lr=1.0))
    return state["layer"].softmax(1), noisy.realised


def test_the_noise_layer_learns_the_matrix_of_a_network_that_is_right() -> None:
    layer, realised = learned("s_adaptation(warm_up=1)", T)
    torch.testing.assert_close(layer, realised, atol=1e-2, rtol=0)


def test_masking_learns_a_matrix_of_the_right_structure() -> None:
    layer, realised = learned("masking('pair(0.1)', warm_up=1)", PAIRS)
    torch.testing.assert_close(layer, realised, atol=1e-2, rtol=0)
    assert bool((layer[PAIRS == 0] == 0).all())


def test_masking_without_restrictions_is_s_adaptation() -> None:
    first, second = (learned(f"{name}, warm_up=1)", T)[0] for name in ("masking('symmetric(0.1)'", "s_adaptation(rate=1"))
    assert torch.equal(first, second)


def test_masking_never_gives_a_label_outside_the_structure() -> None:
    for structure in ("pair(0.2)", [[0.9, 0.1, 0.0], [0.0, 0.5, 0.5], [0.2, 0.0, 0.8]]):
        method = methods.Masking(structure, warm_up=1)
        assert repr(methods.get(repr(method))) == repr(method)
        state = state_of(method)
        method.begin_epoch(state, 2, 9, scored(scores()))
        for seed in range(20):
            pull_of(method, state, scores(seed))
        matrix = state["layer"].softmax(1)
        assert (matrix > 0).tolist() == [[True, True, False], [False, True, True], [True, False, True]]
        torch.testing.assert_close(matrix.sum(1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("spec", ["s_adaptation", "masking('pair(0.1)')"])
def test_the_layer_does_nothing_during_the_warm_up(spec: str) -> None:
    method = methods.get(spec)
    state = state_of(method)
    before = {name: value.clone() for name, value in state.items()}
    for epoch in range(1, 11):
        method.begin_epoch(state, epoch, 20, never_scored())
    pull, plain = pull_of(method, state, scores(), "gce(q=0.7)"), methods.LossPull(losses.get("gce(q=0.7)")).rows(scores(), LABELS)
    torch.testing.assert_close(pull.gradient, plain.gradient)
    torch.testing.assert_close(pull.value, plain.value)
    assert all(torch.equal(value, before[name]) for name, value in state.items())


@pytest.mark.parametrize("spec", ["s_adaptation", "masking('pair(0.1)')"])
@pytest.mark.parametrize("loss", ["ce", "mae", "gr(beta=8, lam=0)"])
def test_extreme_scores_give_finite_gradients_in_float32(spec: str, loss: str) -> None:
    method = methods.get(spec)
    state = {name: value.float() if value.is_floating_point() else value for name, value in state_of(method).items()}
    extreme = 1e4 * torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).repeat(4, 1)[:N]
    for epoch in (1, 11, 12):
        method.begin_epoch(state, epoch, 30, scored(extreme))
        pull = pull_of(method, state, extreme, loss)
        assert pull.value is not None and bool(pull.gradient.isfinite().all()) and bool(pull.value.isfinite().all())
    assert not bool(state["layer"].isnan().any())


@pytest.mark.parametrize(
    ("method", "loss", "mentions"),
    [
        ("s_adaptation(warm_up=0)", "ce", ("'warm_up'", "[1, inf)")),
        ("s_adaptation", "nce", ("s_adaptation", "margin", "nce")),
        ("s_adaptation", "ce(label_smoothing=0.1)", ("s_adaptation", "label_smoothing")),
        ("masking(((0.9, 0.1), (0.1, 0.9)))", "ce", ("'values'", "3 classes")),
        ("masking('instance(0.2)')", "ce", ("'structure'", "depends only on the class", "instance")),
        ("masking('pare(0.2)')", "ce", ("'structure'", "pare(0.2)")),
        ("masking", "ce", ("masking", "structure")),
    ],
)
def test_bad_requests_are_refused_before_any_work(method: str, loss: str, mentions: tuple[str, ...], tmp_path: Path) -> None:
    examples = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    with refused(*mentions):
        noisewise.fit("linear", examples, loss=loss, method=method, epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
