"""The weights of Rockafellian relaxation, against a solver of linear programs, and in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import noisewise
from noisewise import losses, methods
from noisewise.data import Dataset
from noisewise.methods.rockafellian import best_weights


@pytest.mark.parametrize("theta", [0.0, 0.1, 0.5, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_linear_program_drops_the_same_examples(theta: float, seed: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    given = np.random.default_rng(seed).exponential(1.0, 12)
    number = len(given)
    # Variables u and z with −z ≤ u ≤ z, as the authors' program writes |u|.
    unit = np.eye(number)
    solved = optimize.linprog(
        np.concatenate([given, np.full(number, theta)]),
        A_ub=np.block([[unit, -unit], [-unit, -unit]]),
        b_ub=np.zeros(2 * number),
        A_eq=np.concatenate([np.ones(number), np.zeros(number)])[None],
        b_eq=[0.0],
        bounds=[(-1 / number, None)] * number + [(0, None)] * number,
    )
    weights = best_weights(torch.from_numpy(given), theta).double().numpy()
    u = weights / number - 1 / number
    assert (weights >= 0).all() and weights.sum() == pytest.approx(number)
    # The same examples lose their weight, which costs the same. The program gives it to the example with the smallest loss alone.
    dropped = solved.x[:number] < -0.5 / number
    assert ((weights == 0) == dropped).all()
    assert theta * np.abs(u).sum() == pytest.approx(theta * np.abs(solved.x[:number]).sum(), abs=1e-7)
    assert np.ptp(weights[~dropped]) == 0


def test_no_example_outweighs_the_others() -> None:
    """An example with a weight of thousands is a step that destroys the network."""
    weights = best_weights(torch.rand(10_000, generator=torch.Generator().manual_seed(0)) * 4, theta=0.4)
    assert 4 < weights.max() < 6


def test_weights_move_part_of_the_way_when_they_are_due() -> None:
    data = Dataset(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), classes=("a", "b"))
    method = methods.get("rockafellian(theta=0.4, mu=0.25, every=2)")
    state = method.start(data, 0)
    given = torch.tensor([0.1, 0.5, 3.0, 2.0])
    scored = methods.Scored(lambda network: given, lambda index: given, torch.Generator(), lambda: given)
    for epoch, expected in [(1, [1.0, 1, 1, 1]), (2, [1.0, 1, 1, 1]), (3, [1.25, 1.25, 0.75, 0.75]), (4, [1.25, 1.25, 0.75, 0.75])]:
        method.begin_epoch(state, epoch, 4, scored)
        torch.testing.assert_close(state["weights"], torch.tensor(expected))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45])
def test_a_noise_rate_is_the_share_that_loses_its_weight(rate: float) -> None:
    given = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 4
    method = methods.get(f"rockafellian(rate={rate}, mu=1, every=1)")
    state = method.start(Dataset(torch.zeros(1000, 2), torch.arange(1000) % 2, classes=("a", "b")), 0)
    method.begin_epoch(state, 2, 4, methods.Scored(lambda network: given, lambda index: given, torch.Generator(), lambda: given))
    dropped = state["weights"] == 0
    assert int(dropped.sum()) == pytest.approx(1000 * rate, abs=1)
    assert not rate or given[dropped].min() > given[~dropped].max()


def test_every_example_pulls_with_its_weight() -> None:
    labels, scores = torch.tensor([0, 1, 0]), torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]])
    data = Dataset(scores, labels, classes=("a", "b"))
    method = methods.get("rockafellian")
    state = method.start(data, 0)
    state["weights"].copy_(torch.tensor([0.0, 2.5, 0.5]))
    index = torch.tensor([2, 1])
    batch = methods.Batch(
        index, labels[index], scores[index], lambda each: each, 2, torch.tensor(0.1), torch.tensor(0.0), torch.Generator()
    )
    (pull,) = method.pulls(methods.LossPull(losses.get("ce")), state, batch, (scores[index],))
    leaf = scores[index].clone().requires_grad_()
    values = torch.nn.functional.cross_entropy(leaf, labels[index], reduction="none") * torch.tensor([0.5, 2.5])
    torch.testing.assert_close(pull.value, values.detach())
    torch.testing.assert_close(pull.gradient, torch.autograd.grad(values.sum(), leaf)[0])


def test_training_takes_the_weight_of_wrong_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[methods.State] = []
    start = methods.registry["rockafellian"].start

    def kept(self: methods.Method, data: Dataset, seed: int) -> methods.State:
        states.append(start(self, data, seed))  # type: ignore[attr-defined]
        return states[-1]

    monkeypatch.setattr(methods.registry["rockafellian"], "start", kept)
    generator = torch.Generator().manual_seed(0)
    right = torch.arange(300) % 3
    given = torch.where(torch.arange(300) < 60, (right + 1) % 3, right)
    inputs = torch.randn(300, 4, generator=generator) + 4 * torch.nn.functional.one_hot(right, 4)
    data = Dataset(inputs, given, classes=tuple("abc"))
    noisewise.fit(
        "linear", data, method="rockafellian(every=2)", loss="ce", epochs=8, batch_size=64, device="cpu", clean_pass=False, folder=tmp_path
    )
    weights = states[-1]["weights"]
    assert weights[:60].mean() < 0.3 and weights[60:].median() > 0.7
