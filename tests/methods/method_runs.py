"""The runs with which every method is tested: four short epochs on three clusters with wrong labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import noisewise

SMALL: dict[str, Any] = {"noise": "symmetric(0.4)", "epochs": 4, "batch_size": 64, "device": "cpu", "clean_pass": False}


def clusters(number: int = 300, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(number) % classes
    return torch.randn(number, 4, generator=generator) + 2 * labels.unsqueeze(1), labels


def train(folder: Path, method: str, **settings: Any) -> noisewise.Run:
    return noisewise.fit("mlp(hidden=(16,))", clusters(), method=method, folder=folder, **{**SMALL, **settings})
