import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import expm1_over
from noisewise.losses.gce import GCE
from noisewise.spec import setting


class TruncatedGCE(GCE, name="truncated_gce"):
    """Generalised cross-entropy that ignores examples whose label has a probability below kappa.

    Formula:
        l(p) = GCE(max(p, kappa))
        w = p^q (1 − p) where p > kappa, else 0

    Args:
        q: from cross-entropy (near 0) to MAE (1).
        kappa: the probability below which an example is ignored.

    Example:
        >>> TruncatedGCE(q=0.7, kappa=0.5)(torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([0]))
        tensor(0.5492)

    Reference:
        Zhang & Sabuncu, Generalized cross entropy loss for training deep neural networks with noisy labels, NeurIPS 2018.
    """

    examples = ("truncated_gce(q=0.7, kappa=0.5)", "truncated_gce(q=0.3, kappa=0.1)")

    kappa: float = setting(default=0.5, bounds="(0, 1)")

    def value(self, d: Tensor) -> Tensor:
        return -expm1_over(logsigmoid(d).clamp(min=math.log(self.kappa)), self.q)

    def emphasis(self, d: Tensor) -> Tensor:
        return torch.where(logsigmoid(d) > math.log(self.kappa), super().emphasis(d), 0.0)
