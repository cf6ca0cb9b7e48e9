"""Backward correction: it is unbiased under the true matrix, and matrices without an inverse are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noisewise
from noisewise.correct import correct, retrain
from noisewise.losses import Backward
from noisewise.noise import corrupt
from refused import refused

UNEVEN = [[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]]
SCORES = 3 * torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("noise", [UNEVEN, "symmetric(0.4)", "pair(0.3)", "pair(0.3) + symmetric(0.2)"])
@pytest.mark.parametrize("inner", ["ce", "mae", "gce(q=0.7)", "nce", "0.5*ce + 0.5*mae"])
def test_the_expectation_over_noisy_labels_is_the_loss_of_the_true_label(noise, inner):
    matrix = torch.tensor(noise, dtype=torch.float64) if isinstance(noise, list) else corrupt([0, 1, 2], noise).expected
    loss, plain = Backward(noise, loss=inner, reduction="none"), noisewise.get(inner, reduction="none")
    leaf = SCORES.clone().requires_grad_()
    every = torch.stack([loss(leaf, torch.full((5,), given)) for given in range(3)])
    for true in range(3):
        expected, ours = plain(leaf, torch.full((5,), true)), matrix[true] @ every
        torch.testing.assert_close(ours, expected)
        slopes = (torch.autograd.grad(each.sum(), leaf, retain_graph=True)[0] for each in (ours, expected))
        torch.testing.assert_close(*slopes)


def test_the_mean_over_many_noisy_labels_approaches_the_clean_loss():
    true = torch.arange(30_000) % 3
    noisy = corrupt(true, f"matrix({tuple(map(tuple, UNEVEN))})").labels
    scores = SCORES[torch.arange(len(true)) % 5]
    clean = noisewise.get("ce")(scores, true)
    assert float(Backward(UNEVEN)(scores, noisy)) == pytest.approx(float(clean), rel=0.03)
    assert float(noisewise.get("ce")(scores, noisy)) != pytest.approx(float(clean), rel=0.03)


@pytest.mark.parametrize("noise", ["symmetric_inclusive(1.0)", [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]])
def test_a_matrix_without_an_inverse_is_refused(noise):
    with refused("'noise'", "Backward", "inverse"):
        Backward(noise)(torch.zeros(1, 3), torch.tensor([0]))


def test_a_matrix_of_the_wrong_size_is_refused():
    with refused("'values'", "4 classes"):
        Backward(np.array(UNEVEN))(torch.zeros(1, 4), torch.tensor([0]))


def test_a_loss_in_place_of_the_noise_is_refused_with_an_example():
    with refused("Backward", "backward('symmetric(0.4)', loss=ce)"):
        noisewise.get("backward(ce)")


def test_training_on_corrected_labels_drops_the_correction(tmp_path):
    labels = torch.arange(60) % 3
    data = 3 * torch.eye(3)[labels] + torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), labels
    run = noisewise.fit("mlp", data, loss="backward('pair(0.3)')", noise="pair(0.3)", epochs=3, batch_size=20, folder=tmp_path / "run")
    assert retrain(run, correct(run.find_label_issues()), data=data).settings.loss == "ce"
