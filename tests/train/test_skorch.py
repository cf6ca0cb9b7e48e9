"""A robust loss in skorch's classifier, and the record of it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetClassifier
from torch import nn

import noisewise
from noisewise.integrations import skorch
from noisewise.integrations.skorch import RecorderCallback
from refused import refused


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels of which 30 % are wrong, and which ones."""
    rows, true = load_digits(return_X_y=True)
    noisy = noisewise.corrupt(torch.from_numpy(true), "symmetric(0.3)", num_classes=10, seed=0).labels.numpy()
    return (rows / 16).astype(np.float32), noisy, noisy != true


def net(**options: object) -> NeuralNetClassifier:
    torch.manual_seed(0)
    settings = {"criterion": noisewise.get("gce(q=0.7)"), "optimizer": torch.optim.Adam, "lr": 0.02, "max_epochs": 8, "verbose": 0}
    return NeuralNetClassifier(nn.Linear(64, 10), predict_nonlinearity=nn.Softmax(1), **settings | options)


def test_a_robust_loss_is_a_criterion_and_the_record_finds_the_wrong_labels(
    digits: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, noisy, wrong = digits
    callback = RecorderCallback(tmp_path / "run")
    fitted = net(train_split=None, callbacks=[callback]).fit(rows, noisy)
    probabilities = fitted.predict_proba(rows)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    run = callback.run
    assert run.state == "finished" and run.settings.loss == "gce(q=0.7)" and len(run.metrics) == 8
    with torch.no_grad():  # the last margins of the record are those of the fitted net
        margins = noisewise.margin(fitted.module_(torch.from_numpy(rows)), torch.from_numpy(noisy))
    np.testing.assert_allclose(run.dynamics.record.margins(8), margins, atol=1e-2, rtol=2e-3)
    issues = run.find_label_issues().is_issue
    assert issues[wrong].mean() > 0.8 and wrong[issues].mean() > 0.8
    assert torch.equal(run.model(into=nn.Linear(64, 10)).weight, fitted.module_.weight)


def test_held_out_examples_are_left_out_of_the_record(digits: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    rows, noisy, _ = digits
    callback = RecorderCallback(tmp_path / "run")
    fitted = net(max_epochs=1, callbacks=[callback]).fit(rows, noisy)
    held_out, _ = fitted.train_split(torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(noisy)), noisy)
    np.testing.assert_array_equal(callback.run.dynamics.record.given, noisy[held_out.indices])


def test_it_can_be_cloned_and_cross_validated(digits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, noisy, wrong = digits
    assert cross_val_score(clone(net(train_split=None)), rows[~wrong], noisy[~wrong], cv=2).mean() > 0.85


def test_without_skorch_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skorch.callbacks", None)
    with refused("pip install skorch"):
        runpy.run_path(skorch.__file__)
