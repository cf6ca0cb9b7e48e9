"""Truncated GCE by alternating search, against the formula of the paper in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import noisewise
from noisewise import losses, methods
from one_step import LABELS, N, assert_follows, never_scored, pull_of, scored, scores, state_of
from refused import refused


def pruned(spec: str, by: torch.Tensor) -> tuple[methods.Method, methods.State]:
    method = methods.get(spec)
    state = state_of(method)
    method.begin_epoch(state, method.warm_up + 1, 99, scored(by))  # type: ignore[attr-defined]
    return method, state


def lq(p: torch.Tensor, q: float) -> torch.Tensor:
    return (1 - p**q) / q


def probability(given: torch.Tensor) -> torch.Tensor:
    return given.softmax(1)[torch.arange(N), LABELS]


@pytest.mark.parametrize("kappa", [0.1, 0.3, 0.5])
def test_exactly_the_examples_with_a_larger_loss_than_that_of_kappa_are_dropped(kappa: float) -> None:
    _, state = pruned(f"truncated_gce(kappa={kappa})", scores())
    expected = lq(probability(scores()), 0.7) < lq(torch.tensor(kappa, dtype=torch.float64), 0.7)
    assert state["kept"].tolist() == expected.tolist()
    assert 0 < int(expected.sum()) < N


def test_an_example_at_kappa_is_dropped() -> None:
    given = torch.zeros(N, 3, dtype=torch.float64)
    given[:, 0] = np.log(2)  # the classes have probabilities 1/2, 1/4 and 1/4
    _, state = pruned("truncated_gce(kappa=0.5)", given)
    assert not state["kept"].any()
    _, state = pruned("truncated_gce(kappa=0.499)", given)
    assert state["kept"].tolist() == (LABELS == 0).tolist()


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_value_and_gradient_are_those_of_the_paper(q: float) -> None:
    method, state = pruned("truncated_gce(kappa=0.3)", scores())
    kept, at_kappa = state["kept"].double(), (1 - 0.3**q) / q
    for given in (scores(), scores(1)):  # v does not follow later scores

        def objective(leaf: torch.Tensor) -> torch.Tensor:
            return kept * lq(probability(leaf), q) + (1 - kept) * at_kappa

        assert_follows(pull_of(method, state, given, f"gce(q={q})"), objective, given)
    assert ((probability(scores(1)) > 0.3) != state["kept"]).any()


def test_right_after_a_change_it_equals_the_truncated_loss() -> None:
    method, state = pruned("truncated_gce(kappa=0.3)", scores())
    pull = pull_of(method, state, scores(), "gce(q=0.7)")
    expected = methods.LossPull(losses.get("truncated_gce(q=0.7, kappa=0.3)")).rows(scores(), LABELS)
    torch.testing.assert_close(pull.gradient, expected.gradient)
    torch.testing.assert_close(pull.value, expected.value)


def test_examples_are_dropped_when_due_and_may_return() -> None:
    method = methods.get("truncated_gce(warm_up=2, every=3)")
    state = state_of(method)
    for epoch in (1, 2):
        method.begin_epoch(state, epoch, 9, never_scored())
    assert state["kept"].all()
    for epoch, seed in ((3, 0), (6, 1)):
        method.begin_epoch(state, epoch, 9, scored(scores(seed)))
        assert state["kept"].tolist() == (probability(scores(seed)) > 0.5).tolist()
        for later in (epoch + 1, epoch + 2):
            method.begin_epoch(state, later, 9, never_scored())
    assert ((probability(scores(1)) > 0.5) & (probability(scores(0)) <= 0.5)).any()  # one example has returned


def test_before_the_first_change_it_is_the_loss() -> None:
    method = methods.get("truncated_gce")
    pull, plain = pull_of(method, state_of(method), scores(), "gce"), methods.LossPull(losses.get("gce")).rows(scores(), LABELS)
    assert torch.equal(pull.gradient, plain.gradient)
    assert plain.value is not None and pull.value is not None and torch.equal(pull.value, plain.value)


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)", "mae"])
def test_extreme_scores_give_finite_gradients_in_float32(loss: str) -> None:
    extreme = 1e4 * torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).repeat(4, 1)[:N]
    method, state = pruned("truncated_gce", extreme)
    pull = pull_of(method, state, extreme, loss)
    assert pull.value is not None and bool(pull.gradient.isfinite().all()) and bool(pull.value.isfinite().all())


def test_the_examples_that_are_left_suffice_to_learn(tmp_path: Path) -> None:
    generator, true = torch.Generator().manual_seed(0), torch.arange(600) % 3
    inputs = torch.randn(600, 4, generator=generator) + 4 * torch.nn.functional.one_hot(true, 4)
    run = noisewise.fit(
        "linear",
        (inputs, true),
        noise="symmetric(0.3)",
        loss="gce(q=0.7)",
        method="truncated_gce(warm_up=5, every=1)",
        epochs=10,
        batch_size=50,
        folder=tmp_path / "run",
        device="cpu",
    )
    assert run.predict(inputs).argmax(1).eq(true).double().mean() > 0.95


@pytest.mark.parametrize(
    ("method", "loss", "mentions"),
    [
        ("truncated_gce(kappa=1)", "gce", ("'kappa'", "(0, 1)")),
        ("truncated_gce(warm_up=0)", "gce", ("'warm_up'", "[1, inf)")),
        ("truncated_gce", "nce", ("truncated_gce", "margin", "nce")),
        ("truncated_gce", "gce(label_smoothing=0.1)", ("truncated_gce", "label_smoothing")),
    ],
)
def test_bad_requests_are_refused_before_any_work(method: str, loss: str, mentions: tuple[str, ...], tmp_path: Path) -> None:
    examples = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    with refused(*mentions):
        noisewise.fit("linear", examples, loss=loss, method=method, epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
