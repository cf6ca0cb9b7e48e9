"""Which examples the selecting methods train on, and with which weight, against computations by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from noisewise import losses, methods

N, CLASSES = 20, 4
CE = methods.LossPull(losses.get("ce"))


def batch(number: int = N, progress: float = 0.0) -> methods.Batch:
    labels = torch.randint(CLASSES, (number,), generator=torch.Generator().manual_seed(3))
    index = torch.arange(number)
    return methods.Batch(
        index, labels, torch.zeros(number, 1), lambda inputs: inputs, number, torch.tensor(0.1), torch.tensor(progress), torch.Generator()
    )


def random_scores(number: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = 2 * torch.randn(2, number, CLASSES, generator=torch.Generator().manual_seed(5))
    return first, first + second / 2


def state_of(method: Any, epoch: int) -> Any:
    class Data:
        labels = torch.zeros(1, dtype=torch.long)

    state = method.start(Data, 0)
    method.begin_epoch(state, epoch, 10, None)
    return state


def cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    s = scores.double().numpy()
    return np.log(np.exp(s).sum(1)) - s[np.arange(len(s)), labels.numpy()]


def gradient(scores: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    e = np.exp(scores.double().numpy())
    return e / e.sum(1, keepdims=True) - np.eye(CLASSES)[labels.numpy()]


def pulls(spec: str, epoch: int, scores: tuple[torch.Tensor, ...], of: methods.Batch | None = None) -> tuple[methods.Pull, ...]:
    method = methods.get(spec)
    return method.pulls(CE, state_of(method, epoch), of or batch(len(scores[0])), scores)


def check(pull: methods.Pull, scores: torch.Tensor, weight: np.ndarray) -> None:
    """The weights must average over the selected examples, in the gradient and in the loss."""
    labels = batch(len(scores)).labels
    np.testing.assert_allclose(pull.gradient.numpy(), gradient(scores, labels) * weight[:, None], atol=1e-5)
    assert pull.value is not None
    np.testing.assert_allclose(pull.value.numpy(), cross_entropy(scores, labels) * weight, atol=1e-5)


def mean_over(rows: np.ndarray, number: int = N) -> np.ndarray:
    weight = np.zeros(number)
    weight[rows] = number / len(rows)
    return weight


def different(scores: tuple[torch.Tensor, ...]) -> np.ndarray:
    return np.flatnonzero(scores[0].numpy().argmax(1) != scores[1].numpy().argmax(1))


@pytest.mark.parametrize(("epoch", "number"), [(1, 20), (2, 16), (3, 12), (9, 12)])
def test_co_teaching_exchanges_the_examples_with_a_small_loss(epoch: int, number: int) -> None:
    scores = random_scores()
    for mine, other, pull in zip(scores, reversed(scores), pulls("co_teaching(rate=0.4, warm_up=2)", epoch, scores), strict=True):
        check(pull, mine, mean_over(np.argsort(cross_entropy(other, batch().labels))[:number]))


def test_co_teaching_does_not_keep_an_example_too_many_by_rounding() -> None:
    scores = random_scores(100)
    for pull in pulls("co_teaching(rate=0.4, warm_up=2)", 3, scores):
        assert pull.value is not None
        assert int((pull.value > 0).sum()) == 60


def test_decoupling_trains_on_disagreement_only() -> None:
    scores = random_scores()
    rows = different(scores)
    assert 2 < len(rows) < N
    for mine, pull in zip(scores, pulls("decoupling", 1, scores), strict=True):
        check(pull, mine, mean_over(rows))
    for mine, pull in zip(scores, pulls("decoupling(burn_in=1)", 1, scores), strict=True):
        check(pull, mine, np.ones(N))
    for mine, pull in zip(scores, pulls("decoupling(burn_in=1)", 2, scores), strict=True):
        check(pull, mine, mean_over(rows))


@pytest.mark.parametrize("spec", ["decoupling", "co_teaching_plus(rate=0.4, warm_up=2)"])
def test_a_batch_without_disagreement_has_no_gradient(spec: str) -> None:
    first, _ = random_scores()
    for pull in pulls(spec, 5, (first, 2 * first)):
        assert torch.equal(pull.gradient, torch.zeros_like(first))
        assert pull.value is not None and not pull.value.any()


@pytest.mark.parametrize(("epoch", "share"), [(1, 1.0), (2, 0.75), (3, 0.5), (9, 0.5)])
def test_co_teaching_plus_exchanges_small_losses_among_disagreement(epoch: int, share: float) -> None:
    scores = random_scores()
    rows = different(scores)
    number = math.ceil(share * len(rows))
    result = pulls("co_teaching_plus(rate=0.5, warm_up=2)", epoch, scores)
    for mine, other, pull in zip(scores, reversed(scores), result, strict=True):
        loss = cross_entropy(other, batch().labels)[rows]
        check(pull, mine, mean_over(rows[np.argsort(loss)[:number]]))


def test_co_teaching_plus_is_co_teaching_during_the_burn_in() -> None:
    scores = random_scores()
    plus = pulls("co_teaching_plus(rate=0.4, warm_up=2, burn_in=3)", 3, scores)
    for mine, theirs in zip(plus, pulls("co_teaching(rate=0.4, warm_up=2)", 3, scores), strict=True):
        torch.testing.assert_close(mine.gradient, theirs.gradient)


@pytest.mark.parametrize(("number", "kept"), [(20, 12), (100, 60), (128, 77)])
def test_jocor_trains_both_networks_on_the_smallest_joint_loss(number: int, kept: int) -> None:
    scores = random_scores(number)
    labels = batch(number).labels
    leaves = [each.double().requires_grad_() for each in scores]
    logs = [F.log_softmax(each, 1) for each in leaves]
    distance = sum(F.kl_div(logs[a], logs[1 - a], reduction="none", log_target=True).sum(1) for a in (0, 1))
    joint = 0.3 * sum(F.cross_entropy(each, labels, reduction="none") for each in leaves) + 0.7 * distance
    rows = joint.argsort()[:kept]
    expected = torch.autograd.grad(joint[rows].mean(), leaves)
    for pull, each in zip(pulls("jocor(rate=0.4, warm_up=2, lam=0.7)", 3, scores), expected, strict=True):
        torch.testing.assert_close(pull.gradient.double() / number, each, rtol=1e-4, atol=1e-6)
        assert pull.value is not None
        assert float(pull.value.mean()) == pytest.approx(float(joint[rows].mean().detach()), rel=1e-5)


@pytest.mark.parametrize(("progress", "number"), [(0.0, 6), (0.2, 13), (0.4, 20), (0.9, 20)])
def test_self_paced_uses_more_and_more_examples(progress: float, number: int) -> None:
    scores = random_scores()[0]
    (pull,) = pulls("self_paced(initial=0.3, until=0.4)", 1, (scores,), batch(progress=progress))
    check(pull, scores, mean_over(np.argsort(cross_entropy(scores, batch().labels))[:number]))


@pytest.mark.parametrize(("lambda_2", "progress", "linear"), [(0.0, 0.95, False), (0.8, 0.85, False), (0.8, 0.95, True)])
def test_mentornet_weights_follow_the_moving_percentile(lambda_2: float, progress: float, linear: bool) -> None:
    method = methods.get(f"mentornet_pd(percentile=0.7, lambda_2={lambda_2}, decay=0.9)")
    state, of = state_of(method, 1), batch(progress=progress)
    percentiles: list[float] = []
    for scale in (1.0, 0.5, 2.0):
        scores = scale * random_scores()[0]
        loss = cross_entropy(scores, of.labels)
        percentiles.append(float(np.percentile(loss, 70)))
        threshold = np.average(percentiles, weights=[0.9**age for age in reversed(range(len(percentiles)))])
        v = np.clip(1 - (loss - threshold) / lambda_2, 0, 1) if linear else (loss <= threshold) * 1.0
        assert (v == 0).any() and (v == 1).any()
        (pull,) = method.pulls(CE, state, of, (scores,))
        check(pull, scores, v * N / v.sum())


@pytest.mark.parametrize(("progress", "dropped"), [(0.0, 0), (0.17, 0), (0.19, 6)])
def test_mentornet_trains_on_all_examples_during_the_burn_in(progress: float, dropped: int) -> None:
    """The authors' curriculum selects nothing in the first 18 % of the training."""
    (pull,) = pulls("mentornet_pd", 1, (random_scores()[0],), of=batch(progress=progress))
    assert pull.value is not None
    assert int((pull.value == 0).sum()) == dropped


def test_mentornet_survives_a_batch_in_which_every_loss_is_above_the_threshold() -> None:
    method = methods.get("mentornet_pd(burn_in=0)")
    state = state_of(method, 1)
    state["seen"].fill_(1)  # an average of 0
    (pull,) = method.pulls(CE, state, batch(), (-20 * F.one_hot(batch().labels, CLASSES).float(),))
    assert torch.equal(pull.gradient, torch.zeros(N, CLASSES))
