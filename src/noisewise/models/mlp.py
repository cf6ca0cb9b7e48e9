"""Networks on vectors: a multi-layer perceptron, and a single linear layer for embeddings computed elsewhere."""

from __future__ import annotations

import itertools
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from noisewise.errors import invalid_parameter
from noisewise.models._base import FeatureClassifier
from noisewise.spec import setting

_WIDEST = 10**6  # torch overflows with wider layers


def _widths(value: Any) -> tuple[int, ...]:
    widths = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not widths or not all(isinstance(width, int) and not isinstance(width, bool) and 0 < width <= _WIDEST for width in widths):
        raise invalid_parameter("hidden", "MLP", f"one or more integers above 0 and at most {_WIDEST:,}, like (256, 256)", value)
    return widths


class MLP(FeatureClassifier, name="mlp"):
    """Hidden linear layers with ReLU; the last one is the embedding. The initialisation is torch's default.

    Args:
        inputs: the number of features of one input; any shape is flattened.
        hidden: the width of every hidden layer.
        norm: "none", or "batch" for batch normalisation before every ReLU.
        dropout: the dropout rate of every hidden layer.

    Example:
        >>> import torch
        >>> MLP(inputs=64, num_classes=10, hidden=(128, 32)).features(torch.zeros(2, 8, 8)).shape
        torch.Size([2, 32])
    """

    hidden: tuple[int, ...] = setting(default=(256, 256), check=_widths, kw_only=True)
    norm: str = setting(default="none", choices=("none", "batch"), kw_only=True)

    def build(self) -> int:
        widths = (self.inputs, *self.hidden)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) if self.norm == "batch" else nn.Identity() for width in self.hidden)
        return self.hidden[-1]

    def embed(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for position, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            if position and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            x = F.relu(norm(layer(x)))
        return x


class Linear(FeatureClassifier, name="linear"):
    """One linear layer: the flattened input is the embedding.

    Args:
        inputs: the number of features of one input; any shape is flattened.

    Example:
        >>> import torch
        >>> Linear(inputs=64, num_classes=10)(torch.zeros(2, 64)).shape
        torch.Size([2, 10])
    """

    def build(self) -> int:
        return self.inputs

    def embed(self, x: Tensor) -> Tensor:
        return x.flatten(1)
