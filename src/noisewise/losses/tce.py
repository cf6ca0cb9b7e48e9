from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class TCE(MarginLoss, name="tce"):
    """Taylor cross-entropy: the first q terms of −log p around p = 1, from MAE (q = 1) to cross-entropy.

    Formula:
        l(p) = Σ_{i=1..q} (1 − p)^i / i
        w = p Σ_{i=1..q} (1 − p)^i = (1 − p) (1 − (1 − p)^q)

    Args:
        q: the number of terms.

    Example:
        >>> TCE(q=3)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2389)

    Reference:
        Feng et al., Can cross entropy loss be robust to label noise?, IJCAI 2020.
    """

    examples = ("tce(q=3)", "tce(q=1)", "tce(q=20)")

    q: int = setting(default=3, bounds="[1, inf)", integer=True)

    def value(self, d: Tensor) -> Tensor:
        rest = (-d).sigmoid()
        total = rest / self.q
        for term in range(self.q - 1, 0, -1):
            total = rest * (total + 1 / term)
        return total

    def emphasis(self, d: Tensor) -> Tensor:
        return -(-d).sigmoid() * (self.q * logsigmoid(-d)).expm1()
