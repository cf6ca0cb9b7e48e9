"""The networks of a method as one model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from noisewise.methods._base import Method


class Ensemble(nn.Module):
    """Several networks whose scores a method combines.

    Args:
        method: combines the scores.
        networks: the networks.
    """

    def __init__(self, method: Method, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.method = method
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.method.combine([network(inputs) for network in self.networks])


def networks_of(model: nn.Module) -> list[nn.Module]:
    """The networks of a model: those of an ensemble, or the model itself."""
    return list(model.networks) if isinstance(model, Ensemble) else [model]
