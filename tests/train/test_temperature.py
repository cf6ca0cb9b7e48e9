"""Temperature scaling: the calibration of predicted probabilities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

from noisewise import fit
from noisewise.data import load
from noisewise.train._temperature import temperature
from refused import refused


def calibrated_sample(number: int, scale: float, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores whose softmax at the temperature `scale` is calibrated, labels drawn from it, and these labels with noise."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(number, 4, generator=generator)
    labels = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    replaced = torch.rand(number, generator=generator) < noise
    return scale * scores, labels, torch.where(replaced, torch.randint(4, (number,), generator=generator), labels)


def most_likely_temperature(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The temperature with the highest likelihood, found by scipy."""

    def loss(log_temperature: float) -> float:
        return float(log_loss(labels, (scores.double() / np.exp(log_temperature)).softmax(1).numpy(), labels=range(4)))

    return float(np.exp(minimize_scalar(loss, bounds=(-1.4, 3.7), method="bounded").x))


@pytest.mark.parametrize("scale", [0.5, 1.0, 6.0])
def test_with_clean_labels_it_is_the_most_likely_temperature(scale: float) -> None:
    scores, labels, _ = calibrated_sample(2000, scale)
    assert temperature(scores, labels) == pytest.approx(most_likely_temperature(scores, labels), rel=0.1) == pytest.approx(scale, rel=0.1)


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_with_noisy_labels_it_is_closer_to_the_right_temperature(noise: float) -> None:
    scores, labels, noisy = calibrated_sample(500, 6.0, noise)
    assert most_likely_temperature(scores, labels) < temperature(scores, noisy) < most_likely_temperature(scores, noisy)


def test_a_few_examples_that_are_all_predicted_right_do_not_sharpen_scores_much() -> None:
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
    with refused("calibration.json"):
        run.predict(rows)
