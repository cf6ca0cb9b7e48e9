from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss, expm1_over
from noisewise.spec import setting


class GCE(MarginLoss, name="gce"):
    """Generalised cross-entropy: from cross-entropy (q → 0) to MAE (q = 1).

    Formula:
        l(p) = (1 − p^q) / q
        w = p^q (1 − p)

    Args:
        q: from cross-entropy (near 0) to MAE (1).

    Example:
        >>> GCE(q=0.7)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2205)

    Reference:
        Zhang & Sabuncu, Generalized cross entropy loss for training deep neural networks with noisy labels, NeurIPS 2018.
    """

    examples: ClassVar[tuple[str, ...]] = ("gce(q=0.7)", "gce(q=1.0)", "gce(q=0.1)")

    q: float = setting(default=0.7, bounds="(0, 1]")

    def value(self, d: Tensor) -> Tensor:
        return -expm1_over(logsigmoid(d), self.q)

    def emphasis(self, d: Tensor) -> Tensor:
        return (self.q * logsigmoid(d)).exp() * (-d).sigmoid()
