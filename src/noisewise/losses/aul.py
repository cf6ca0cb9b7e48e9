import math

import torch
from torch import Tensor

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class AUL(MarginLoss, name="aul"):
    """Asymmetric unhinged loss: MAE changed so that clean labels outweigh wrong ones.

    Formula:
        l(p) = ((a − p)^q − (a − 1)^q) / q
        w = p (1 − p) (a − p)^(q−1)

    Args:
        a: above one; the larger, the closer to MAE.
        q: the exponent.

    Example:
        >>> AUL(a=2, q=3)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2616)

    Reference:
        Zhou et al., Asymmetric loss functions for learning with noisy labels, ICML 2021.
    """

    examples = ("aul(a=2.0, q=3.0)", "aul(a=1.1, q=0.5)", "aul(a=5.5, q=3.0)")

    a: float = setting(default=2.0, bounds="(1, inf)")
    q: float = setting(default=3.0, bounds="(0, inf)")

    def value(self, d: Tensor) -> Tensor:
        least, rest = self.a - 1, (-d).sigmoid()  # a − p = least + (1 − p), which is exact as p → 1
        near = math.pow(least, self.q) * (self.q * (rest.clamp(max=least) / least).log1p()).expm1()
        far = (least + rest) ** self.q - math.pow(least, self.q)  # nothing cancels here, and a quotient could overflow
        return torch.where(rest > least, far, near) / self.q

    def emphasis(self, d: Tensor) -> Tensor:
        rest = (-d).sigmoid()
        return d.sigmoid() * rest * (self.a - 1 + rest) ** (self.q - 1)
