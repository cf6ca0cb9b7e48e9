"""Every method on a GPU: the captured step trains like the eager one, and a stopped run resumes to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noisewise import fit, methods
from noisewise.data import Dataset
from noisewise.train._fit import _Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SPECS = [spec for name in methods.available() for spec in methods.registry[name].examples]  # type: ignore[attr-defined]
SMALL: dict[str, Any] = {"noise": "symmetric(0.4)", "epochs": 4, "batch_size": 64, "device": "cuda", "clean_pass": False}


def clusters(number: int = 320, classes: int = 3) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(number) % classes
    return Dataset(torch.randn(number, 4, generator=generator) + 2 * labels.unsqueeze(1), labels, tuple("abc"), name="clusters")


def keep_eager(training: Any) -> None:
    training.captured, training.update = None, training.step


@pytest.mark.parametrize("method", SPECS)
def test_the_captured_step_trains_like_the_eager_step(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = fit("mlp(hidden=(16,))", clusters(), method=method, folder=tmp_path / "captured", **SMALL)
    monkeypatch.setattr(_Training, "_capture", keep_eager)
    eager = fit("mlp(hidden=(16,))", clusters(), method=method, folder=tmp_path / "eager", **SMALL)
    for mine, theirs in zip(captured.metrics, eager.metrics, strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=0.02, abs=0.01)


@pytest.mark.parametrize("method", SPECS)
def test_a_stopped_run_resumes_to_the_same_bits(method: str, tmp_path: Path) -> None:
    def stop(step: int, steps: int) -> None:
        if step == 12:  # in the third epoch
            raise KeyboardInterrupt

    whole = fit("mlp(hidden=(16,))", clusters(), method=method, folder=tmp_path / "whole", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        fit("mlp(hidden=(16,))", clusters(), method=method, folder=tmp_path / "stopped", watch=stop, **SMALL)
    resumed = fit("mlp(hidden=(16,))", clusters(), method=method, folder=tmp_path / "stopped", **SMALL)
    for name, value in whole.model().state_dict().items():
        assert torch.equal(value, resumed.model().state_dict()[name]), name
