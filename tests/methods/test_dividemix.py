"""DivideMix: its split, targets and losses, against scikit-learn and the formulas of the paper in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.mixture import GaussianMixture

import noisewise
from mixed_batch import CE, CLASSES, EXAMPLES, INPUTS, LABELS, Seen, batch_of, start
from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods.dividemix import clean_probability, sharpen
from refused import refused

SPEC = "dividemix(warm_up=2, lambda_u=8, ramp_up=4, lambda_r=1.5, confidence_penalty=0.7)"
CLEAN = torch.tensor([[0.9, 0.2, 0.6, 0.5, 1.0, 0.1], [0.3, 0.8, 0.4, 0.7, 0.1, 0.55]], dtype=torch.float64)
NEVER: Any = None  # the scores are not looked at in the warm-up


def after_warm_up(progress: float = 0.4) -> tuple[methods.Method, methods.State, methods.Batch]:
    """A batch in the fifth of ten epochs, at this share of the training."""
    method = methods.get(SPEC)
    state = start(method)
    state["warming_up"].fill_(False)
    state["epochs"].fill_(10)
    state["clean"].copy_(CLEAN)
    batch = batch_of()
    batch.progress.fill_(progress)
    return method, state, batch


def guesses(networks: list[Seen]) -> list[np.ndarray]:
    scores = [(INPUTS @ network.weight.detach().T).numpy() for network in networks]
    return [np.exp(each) / np.exp(each).sum(1, keepdims=True) for each in scores]


def by_hand(networks: list[Seen], number: int) -> np.ndarray:
    """The targets before mixing."""
    p, w = guesses(networks), CLEAN[number].numpy()
    targets = np.empty((EXAMPLES, CLASSES))
    for row in range(EXAMPLES):
        if w[row] > 0.5:
            target = (1 - w[row]) * p[number][row]
            target[LABELS[row]] += w[row]
        else:
            target = (p[0][row] + p[1][row]) / 2
        targets[row] = target**2 / (target**2).sum()
    return targets


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_split_is_the_mixture_of_scikit_learn_on_the_losses_of_the_other_network(share: float) -> None:
    number, generator = 400, torch.Generator().manual_seed(2)
    labels = torch.randint(CLASSES, (number,), generator=generator)
    wrong = torch.rand(number, generator=generator) < share
    scores = [torch.randn(number, CLASSES, generator=generator) + 5 * F.one_hot((labels + wrong) % CLASSES, CLASSES) for _ in range(2)]
    method = methods.get("dividemix(warm_up=3)")
    state = method.start(Dataset(torch.zeros(number, 2), labels, classes=tuple("abcd")), 0)
    scored = methods.Scored(lambda network: scores[network], NEVER, torch.Generator().manual_seed(0))  # type: ignore[index]
    method.begin_epoch(state, 4, 9, scored)
    assert not state["warming_up"]
    for other in (0, 1):
        s = scores[other].double().numpy()
        loss = np.log(np.exp(s).sum(1)) - s[np.arange(number), labels]
        loss = ((loss - loss.min()) / (loss.max() - loss.min()))[:, None]
        mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=5).fit(loss)
        expected = mixture.predict_proba(loss)[:, mixture.means_.argmin()]
        np.testing.assert_allclose(state["clean"][1 - other].numpy(), expected, atol=1e-5)
        assert ((expected > 0.5) == ~wrong.numpy()).mean() > 0.95


def test_equal_losses_have_a_finite_probability() -> None:
    assert clean_probability(torch.full((5,), 2.0), seed=0).isfinite().all()


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sharpening_is_a_power(temperature: float) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(CLASSES), EXAMPLES)
    expected = p ** (1 / temperature)
    np.testing.assert_allclose(sharpen(torch.tensor(p), temperature), expected / expected.sum(1, keepdims=True))


def test_sharpening_does_not_divide_zero_by_zero() -> None:
    torch.testing.assert_close(sharpen(torch.tensor([[0.3, 0.3, 0.4]]), 0.001), torch.tensor([[0.0, 0.0, 1.0]]))


def test_each_network_is_trained_on_mixtures_of_two_views_and_of_its_targets() -> None:
    method, state, batch = after_warm_up()
    networks = [Seen(1), Seen(2)]
    result = method.scores(networks, state, batch)
    assert len(result) == 4
    for number, network in enumerate(networks):
        targets = by_hand(networks, number)
        mixed = network.inputs[1].numpy()
        for view, target in enumerate(batch.notes["targets"][number]):
            rows = mixed[view * EXAMPLES :][:EXAMPLES]
            # The inputs reveal partner and share: x = lam · xᵢ + (1 − lam) · xⱼ.
            for row in range(EXAMPLES):
                partner, lam = partner_of(rows[row], row)
                assert lam >= 0.5
                np.testing.assert_allclose(target[row], lam * targets[row] + (1 - lam) * targets[partner], atol=1e-6)
            torch.testing.assert_close(result[2 * number + view].detach(), torch.tensor(rows) @ network.weight.detach().T)


def partner_of(mixed: np.ndarray, row: int) -> tuple[int, float]:
    """The example, and the share of its own row, that a mixed input is made of."""
    x = INPUTS.numpy()
    if np.allclose(mixed, x[row]):
        return row, 1.0
    for other in set(range(EXAMPLES)) - {row}:
        direction = x[row] - x[other]
        lam = (mixed - x[other]) @ direction / (direction @ direction)
        if np.allclose(lam * x[row] + (1 - lam) * x[other], mixed):
            return other, lam
    raise AssertionError(f"not a mixture: {mixed}")


@pytest.mark.parametrize(("progress", "ramp"), [(0.2, 0.0), (0.4, 0.5), (0.9, 1.0)])
def test_the_loss_after_the_warm_up(progress: float, ramp: float) -> None:
    method, state, batch = after_warm_up(progress)
    scores = tuple(each.detach() for each in method.scores([Seen(1), Seen(2)], state, batch))
    pulls = method.pulls(CE, state, batch, scores)
    for number in (0, 1):
        leaf = torch.cat(scores[2 * number :][:2]).requires_grad_()
        targets, labelled = torch.cat(batch.notes["targets"][number]), (CLEAN[number] > 0.5).repeat(2)
        p = leaf.softmax(1)
        supervised = F.cross_entropy(leaf[labelled], targets[labelled])
        guessed = F.mse_loss(p[~labelled], targets[~labelled])
        prior = F.kl_div(p.mean(0).log(), torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64), reduction="sum")
        expected = supervised + 8 * ramp * guessed + 1.5 * prior
        (gradient,) = torch.autograd.grad(expected, leaf)
        mine = pulls[2 * number :][:2]
        torch.testing.assert_close(torch.cat([pull.gradient for pull in mine]) / EXAMPLES, gradient, rtol=1e-5, atol=1e-6)
        value = torch.stack([pull.value.mean() for pull in mine if pull.value is not None]).mean()
        torch.testing.assert_close(value, expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_the_warm_up_uses_the_given_labels_and_penalises_confidence(loss: str) -> None:
    method, networks, batch = methods.get(SPEC), [Seen(1), Seen(2)], batch_of()
    state = start(method)
    method.begin_epoch(state, 2, 10, NEVER)
    scores = tuple(each.detach() for each in method.scores(networks, state, batch))
    torch.testing.assert_close(networks[0].inputs[1], torch.cat([INPUTS, INPUTS]))
    for view, pull in zip(scores, method.pulls(methods.LossPull(losses.get(loss)), state, batch, scores), strict=True):
        leaf = view.clone().requires_grad_()
        p = leaf.softmax(1)
        values = losses.get(loss, reduction="none")(leaf, LABELS) + 0.7 * (p * p.log()).sum(1)
        torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0] / 2)
        torch.testing.assert_close(pull.value, values.detach())


@pytest.mark.parametrize("trust", [0.0, 1.0])
def test_a_batch_may_be_all_labelled_or_all_unlabelled(trust: float) -> None:
    method, state, batch = after_warm_up()
    state["clean"].fill_(trust)
    scores = tuple(each.detach() for each in method.scores([Seen(1), Seen(2)], state, batch))
    assert all(pull.gradient.isfinite().all() for pull in method.pulls(CE, state, batch, scores))


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    given: Any = ("linear", (torch.zeros(6, 2), LABELS))
    for wrong in ("T=0", "threshold=1.5", "warm_up=0", "lambda_u=-1", "alpha=0"):
        with refused(wrong.split("=")[0], wrong.split("=")[1]):
            noisewise.fit(*given, method=f"dividemix({wrong})", epochs=1, folder=tmp_path / "run")
    with refused("dividemix", "normalise='batch'"):
        noisewise.fit(*given, method="dividemix", loss="imae(T=8, normalise='batch')", epochs=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
