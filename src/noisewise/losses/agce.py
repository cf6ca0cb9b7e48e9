import math

import torch
from torch import Tensor

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class AGCE(MarginLoss, name="agce"):
    """Asymmetric generalised cross-entropy.

    Formula:
        l(p) = ((a + 1)^q − (a + p)^q) / q
        w = p (1 − p) (a + p)^(q−1)

    Args:
        a: the shift of p; above zero.
        q: the exponent.

    Example:
        >>> AGCE(a=0.6, q=0.6)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1815)

    Reference:
        Zhou et al., Asymmetric loss functions for learning with noisy labels, ICML 2021.
    """

    examples = ("agce(a=0.6, q=0.6)", "agce(a=1e-5, q=0.5)", "agce(a=4.0, q=0.2)", "agce(a=1.8, q=3.0)")

    a: float = setting(default=0.6, bounds="(0, inf)")
    q: float = setting(default=0.6, bounds="(0, inf)")

    def value(self, d: Tensor) -> Tensor:
        most = self.a + 1
        # log((a + p) / (a + 1)), from whichever of p and 1 − p is small: each form cancels at the other end.
        ratio = torch.where(d > 0, (-(-d).sigmoid() / most).log1p(), ((self.a + d.sigmoid()) / most).log())
        return -math.pow(most, self.q) * (self.q * ratio).expm1() / self.q

    def emphasis(self, d: Tensor) -> Tensor:
        p = d.sigmoid()
        return p * (-d).sigmoid() * (self.a + p) ** (self.q - 1)
