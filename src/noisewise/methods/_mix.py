"""Mixing the examples of a batch in pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull


def symmetric_beta(a: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """A random number from Beta(a, a), without dimensions and without rejected draws, so that it also works inside a CUDA graph.

    The formula is from Devroye, Random variate generation in one line of code, 1996: with uniform U and V,
    ½ (1 + c · √(1 − r) / √(r + (1 − r) c²)) for r = U^(1/a) and c = cos(2πV).

    Example:
        >>> symmetric_beta(1e6, torch.Generator().manual_seed(0), torch.device("cpu")).round(decimals=2)
        tensor(0.5000, dtype=torch.float64)
    """
    u, v = torch.rand(2, generator=generator, device=device, dtype=torch.float64).unbind()
    log_r = torch.log1p(-u) / a  # 1 − u is never 0
    r, rest = log_r.exp(), -torch.expm1(log_r)  # for a large a, r is too close to 1 for 1 − r
    c = (2 * math.pi * v).cos()
    return 0.5 + 0.5 * c * rest.sqrt() / (r + rest * c.square()).sqrt()


@dataclass(frozen=True)
class Mixture:
    """Which rows of a batch are mixed, and in which proportion.

    Args:
        lam: the share of every row in its mixture, without dimensions; its partner has the rest.
        partners: for every view, the position of the partner of every example of this process, among the rows of all views.
    """

    lam: Tensor
    partners: tuple[Tensor, ...]

    def __call__(self, batch: Batch, *views: Tensor) -> tuple[Tensor, ...]:
        """The mixed rows of every view.

        Example:
            >>> batch = Batch(*[torch.arange(2)] * 3, lambda inputs: inputs, 2, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
            >>> Mixture(torch.tensor(0.75), (torch.tensor([1, 0]),))(batch, torch.tensor([0.0, 1.0]))
            (tensor([0.2500, 0.7500]),)
        """
        everything = torch.cat([batch.gather(view) for view in views])
        return tuple(self.lam * view + (1 - self.lam) * everything[each] for view, each in zip(views, self.partners, strict=True))

    def pull(self, loss: LossPull, batch: Batch, scores: Tensor) -> Pull:
        """The pull of the loss towards the mixture of the label of every example and the label of its partner, for a single view."""
        own, other = (loss.rows(scores, labels) for labels in (batch.labels, batch.gather(batch.labels)[self.partners[0]]))
        assert own.value is not None and other.value is not None
        gradient = self.lam * own.gradient + (1 - self.lam) * other.gradient
        return Pull(gradient, self.lam * own.value + (1 - self.lam) * other.value)


def draw_mixture(batch: Batch, alpha: float, views: int = 1) -> Mixture:
    """A random mixture of the rows of all views of a batch, with the share from Beta(alpha, alpha), the same in all processes."""
    lam = symmetric_beta(alpha, batch.generator, batch.index.device)
    order = torch.rand(views * batch.whole, generator=batch.generator, device=batch.index.device).argsort()
    return Mixture(lam, tuple(batch.own(part) for part in order.chunk(views)))


def draw_dominant_mixture(batch: Batch, alpha: float, views: int = 1) -> Mixture:
    """A random mixture in which every row has at least the share of its partner."""
    mixture = draw_mixture(batch, alpha, views)
    return Mixture(torch.maximum(mixture.lam, 1 - mixture.lam), mixture.partners)
