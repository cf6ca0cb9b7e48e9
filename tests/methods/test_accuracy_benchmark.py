"""The benchmark that compares the accuracy of all methods, without its training."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from noisewise import methods
from noisewise.data import Dataset
from noisewise.losses import get
from noisewise.noise import matrix_of
from noisewise.noise import registry as noises
from refused import refused

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("accuracy")
    for name in ("accuracy", "results"):
        sys.modules.pop(name, None)


def test_every_row_can_be_trained_with_every_noise(benchmark: Any, tmp_path: Path) -> None:
    labels = torch.arange(5000) % 10
    data = Dataset(torch.zeros(5000, 1), labels, classes=tuple("abcdefghij"), true_labels=labels.roll(1))
    for row, noise in product([*benchmark.LOSSES, *benchmark.METHODS], benchmark.NOISES):
        task = benchmark.task(row, noise, 0, tmp_path)
        task.check()
        methods.get(task.settings.method).check(get(task.settings.loss), data)


def test_every_method_has_a_row(benchmark: Any) -> None:
    named = {methods.get(spec.format(rate=0.2)).name for spec in benchmark.METHODS.values()}
    assert named == set(methods.available()) - {"plain", "osm_caa"}  # osm_caa is for retrieval


def test_methods_get_the_true_share_of_wrong_labels(benchmark: Any) -> None:
    for noise, share in benchmark.NOISES.items():
        if noise != "worst":
            matrix = matrix_of(noises.get(noise), 10, 0)
            assert matrix is not None
            assert share == pytest.approx(1 - matrix.diagonal().mean())


def test_nothing_is_trained_if_one_noise_is_unknown(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Any] = []
    monkeypatch.setattr(benchmark, "train_each", lambda tasks, *others, **named: trained.extend(tasks))
    with refused("asymmetric"):
        benchmark.train([("ce", "worst", 0), ("ce", "asymmetric(0.4)", 0)], [], None)
    assert not trained
