"""Probabilities that are as sure as they should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

from noisewise import InputError, fit
from noisewise.data import load
from noisewise.train._temperature import temperature


def drawn(number: int, scale: float, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores whose softmax at the temperature `scale` is true, labels drawn from it, and these with some of them replaced."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(number, 4, generator=generator)
    labels = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    replaced = torch.rand(number, generator=generator) < noise
    return scale * scores, labels, torch.where(replaced, torch.randint(4, (number,), generator=generator), labels)


def likeliest(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The temperature of the highest likelihood, by scipy."""

    def loss(log_temperature: float) -> float:
        return float(log_loss(labels, (scores.double() / np.exp(log_temperature)).softmax(1).numpy(), labels=range(4)))

    return float(np.exp(minimize_scalar(loss, bounds=(-1.4, 3.7), method="bounded").x))


@pytest.mark.parametrize("scale", [0.5, 1.0, 6.0])
def test_with_right_labels_it_is_the_likeliest(scale: float) -> None:
    scores, labels, _ = drawn(2000, scale)
    assert temperature(scores, labels) == pytest.approx(likeliest(scores, labels), rel=0.1) == pytest.approx(scale, rel=0.1)


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_with_wrong_labels_it_is_nearer_to_the_truth_than_the_likeliest(noise: float) -> None:
    scores, labels, noisy = drawn(500, 6.0, noise)
    found = temperature(scores, noisy)
    assert likeliest(scores, labels) < found < likeliest(scores, noisy)


def test_a_few_examples_that_are_all_right_do_not_make_it_sure() -> None:
    scores, labels = 5 * torch.eye(4).repeat(3, 1), torch.arange(12) % 4
    assert temperature(scores, labels) > 0.5
    assert temperature(1e4 * scores, labels) > 1, "sharp scores are softened"


def test_a_run_with_a_validation_share_is_calibrated(tmp_path: Path) -> None:
    test, asked = load("digits", "test"), {"noise": "symmetric(0.2)", "loss": "ce", "epochs": 25, "device": "cpu"}
    run = fit("mlp", "digits", validation=0.2, folder=tmp_path / "held", **asked)
    scores = run.predictor().scores(test.inputs)
    assert run.temperature == json.loads((run.path / "calibration.json").read_text())["temperature"] != 1
    torch.testing.assert_close(run.predict(test.inputs), (scores / run.temperature).softmax(1))
    assert torch.equal(run.predict(test.inputs).argmax(1), scores.argmax(1)), "the predicted classes are the same"
    before, after = (-torch.log_softmax(scores / value, 1)[torch.arange(len(test)), test.labels].mean() for value in (1.0, run.temperature))
    assert after < before
    plain = fit("mlp", "digits", folder=tmp_path / "all", **{**asked, "epochs": 1})
    assert plain.temperature == 1
    torch.testing.assert_close(plain.predict(test.inputs), plain.predictor().scores(test.inputs).softmax(1))


@pytest.mark.parametrize("damaged", ['{"temperature": 0}', '{"temperature": "hot"}', "{}", "1"])
def test_a_damaged_temperature_is_refused(damaged: str, tmp_path: Path) -> None:
    rows = torch.eye(3).repeat(10, 1)
    run = fit("linear", (rows, torch.arange(30) % 3), epochs=1, validation=0.2, folder=tmp_path, device="cpu")
    (tmp_path / "calibration.json").write_text(damaged)
    with pytest.raises(InputError, match=r"calibration\.json"):
        run.predict(rows)
