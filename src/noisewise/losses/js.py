import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class JS(MarginLoss, name="js"):
    """Jensen–Shannon divergence between label and prediction: from cross-entropy (pi → 0) to MAE (pi → 1).

    For a single label it depends on p alone, so it is a margin loss like the others.

    Formula:
        l(p) = (−pi log m + (1 − pi)(p log(p/m) − (1 − p) log(1 − pi))) / Z,  m = pi + (1 − pi) p,  Z = −(1 − pi) log(1 − pi)
        w = p (1 − p) log(m / ((1 − pi) p)) / −log(1 − pi)

    Args:
        pi: the weight of the label in the mixture m.

    Example:
        >>> JS(pi=0.5)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2314)

    Reference:
        Englesson & Azizpour, Generalized Jensen–Shannon divergence loss for learning with noisy labels, NeurIPS 2021.
    """

    examples: ClassVar[tuple[str, ...]] = ("js(pi=0.5)", "js(pi=0.1)", "js(pi=0.9)")

    pi: float = setting(default=0.5, bounds="(0, 1)")

    def value(self, d: Tensor) -> Tensor:
        p, rest, others, size = d.sigmoid(), (-d).sigmoid(), 1 - self.pi, -math.log1p(-self.pi)
        # log m from whichever of m and 1 − m is small, and log(m / p) = log(1 + pi exp(−Δ)): all terms fall with pi, as Z does.
        log_m = torch.where(others * rest < 0.5, (-others * rest).log1p(), (self.pi + others * p).log())
        gap = torch.where(d > 0, (self.pi * (-d.clamp(min=0)).exp()).log1p(), -logsigmoid(d - math.log(self.pi)))
        return rest - torch.where(d == -torch.inf, 0.0, p * gap) / size - self.pi / (others * size) * log_m

    def emphasis(self, d: Tensor) -> Tensor:
        # p log(m / ((1 − pi) p)) = −p log sigmoid(log p − logit pi), and −p log p is what is left of it as p → 0.
        odds, masked = math.log(self.pi) - math.log1p(-self.pi), d == -torch.inf
        d = torch.where(masked, 0.0, d)
        return torch.where(masked, 0.0, d.sigmoid() * (-d).sigmoid() * logsigmoid(logsigmoid(d) - odds) / math.log1p(-self.pi))
