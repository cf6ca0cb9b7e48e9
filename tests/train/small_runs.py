"""Runs that take milliseconds, ways to stop them, and comparisons of run folders."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisewise import fit
from noisewise.runs import RunFolder
from noisewise.train import Run

QUICK = {"epochs": 3, "batch_size": 64, "optimiser": "sgd(lr=0.1, momentum=0.9)", "device": "cpu"}
"""Settings of a run of 15 steps on `clusters()`."""


def clusters(number: int = 300, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with 8 features around one centre for each class, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (number,), generator=generator)
    centres = 6 * torch.eye(classes, 8)
    return centres[labels] + torch.randn(number, 8, generator=generator), labels


def same_bits(first: Path, second: Path) -> None:
    """Check that two run folders have the same model, record and metrics, bit for bit (except wall times)."""
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    names = sorted(path.relative_to(first) for path in first.glob("record/*/*.npy"))
    assert names == sorted(path.relative_to(second) for path in second.glob("record/*/*.npy")) and names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    lines = [[{**line, "seconds": 0} for line in Run(folder).metrics] for folder in (first, second)]
    assert lines[0] == lines[1]


def same_up_to_rounding(first: Run, second: Run) -> None:
    """Check that two runs have the same model, metrics and record, except for rounding."""
    for name, value in first.model().state_dict().items():
        torch.testing.assert_close(second.model().state_dict()[name], value, rtol=1e-4, atol=1e-5)
    for line, other in zip(first.metrics, second.metrics, strict=True):
        assert line.get("test_accuracy") == other.get("test_accuracy")
        for name in ("train_loss", "mean_emphasis"):
            assert math.isclose(line[name], other[name], rel_tol=1e-4, abs_tol=1e-5), name
        assert line.get("adapted") == pytest.approx(other.get("adapted"))
        for group, sums in line["emphasis"].items():
            assert math.isclose(sums["pull"], other["emphasis"][group]["pull"], rel_tol=1e-4)
            assert math.isclose(sums["eta"], other["emphasis"][group]["eta"], rel_tol=1e-6)
    for path in sorted(first.path.glob("record/training/*.npy")):
        expected, actual = (np.load(folder / path.name).astype(float) for folder in (path.parent, second.path / "record/training"))
        assert np.isfinite(actual).all(), "an example was not recorded"
        np.testing.assert_allclose(actual, expected, rtol=5e-3, atol=5e-3)


def read_status(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "status.json").read_text()))


def file_contents(folder: Path) -> dict[str, bytes]:
    """The contents of all files in a folder, by their relative paths."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupt_after(step: int, model: Any, data: Any, **settings: Any) -> None:
    """Start a run and interrupt it after a step."""

    def watch(done: int, steps: int) -> None:
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, data, watch=watch, **settings)
    assert Run(settings["folder"]).state == "interrupted"


def interrupt_before_model_file(monkeypatch: pytest.MonkeyPatch, model: Any, data: Any, **settings: Any) -> None:
    """Start a run and interrupt it after its last checkpoint, before it writes its model."""
    write_tensors = RunFolder.write_tensors

    def interrupt(self: RunFolder, name: str, tensors: Any, notes: Any) -> None:
        if name == "model.safetensors":
            raise KeyboardInterrupt
        write_tensors(self, name, tensors, notes)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_tensors", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, **settings)


class WithBuffer(nn.Module):
    """A linear model with a buffer, which a function may change in every forward pass."""

    def __init__(self, buffer: torch.Tensor, change: Callable[[WithBuffer], object] = lambda self: None, **options: Any) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(8, 3), change
        self.register_buffer("state", buffer, **options)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.change(self)
        return self.layer(inputs)


def grow_buffer(model: WithBuffer) -> None:
    model.state = torch.cat([model.state, torch.ones(1)])
