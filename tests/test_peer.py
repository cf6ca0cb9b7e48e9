"""Peer loss: its pairs are drawn uniformly, and its mean is the confidence regulariser."""

import torch

import noisewise
from registry import batch


def test_the_mean_over_draws_is_the_confidence_regulariser():
    scores, target = batch(20, 4)
    frequency = torch.bincount(target, minlength=4).double() / 20
    peer = noisewise.get("peer(ce, alpha=0.5)")
    torch.manual_seed(0)
    drawn = torch.stack([peer(scores, target) for _ in range(2000)])
    ce = noisewise.get("ce")(scores, target)
    expected = ce - 0.5 * -(scores.log_softmax(1) * frequency).sum(1).mean()
    error = float(drawn.std()) / len(drawn) ** 0.5
    assert abs(float(drawn.mean() - expected)) < 5 * error
    regulariser = noisewise.get("cr", beta=0.5, prior=frequency)
    torch.testing.assert_close(regulariser(scores, target), expected)


def test_ignored_examples_are_never_peers():
    scores, target = batch(6, 4)
    target[1::2] = -100
    scores[1::2] = torch.nan
    for seed in range(50):
        torch.manual_seed(seed)
        assert torch.isfinite(noisewise.get("peer(ce)")(scores, target))


def test_positions_are_peers_of_each_other():
    scores, target = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    assert noisewise.get("peer(mae)", reduction="none")(scores, target).shape == target.shape
