"""Losses that look at what every class would cost: as a share of the total, or by what the other classes lack."""

from torch import Tensor


def share(costs: Tensor) -> Tensor:
    """Every class's cost as a share of the costs of all classes (Ma et al. 2020)."""
    return costs / costs.sum(1, keepdim=True)


def negative_share(costs: Tensor, most: float) -> Tensor:
    """One minus every class's share of what is lacking to the most a class can cost (Ye et al. 2023)."""
    return 1 - share(most - costs.clamp(max=most))
