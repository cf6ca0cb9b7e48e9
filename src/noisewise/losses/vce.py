from torch import Tensor

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class VCE(MarginLoss, name="vce"):
    """Variation cross-entropy: cross-entropy of p + a, so that its slope in p varies by no more than a factor of (1 + a) / a.

    It is near cross-entropy for a small a and near MAE for a large one. The variation-bounded losses of the paper with other shapes are
    `ael` (exponential) and `aul` with q=2 (square). The paper's −log(p + a) is lower by log(1 + a), which changes no gradient.

    Formula:
        l(p) = log((1 + a) / (p + a))
        w = p (1 − p) / (p + a)

    Args:
        a: added to p; the larger, the smaller the variation and the more robust the loss.

    Example:
        >>> VCE(a=4)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0435)

    Reference:
        Wang et al., Variation-bounded loss for noise-tolerant learning, AAAI 2026.
    """

    examples = ("vce(a=4.0)", "vce(a=0.1)")

    a: float = setting(default=4.0, bounds="(0, inf)")

    def value(self, d: Tensor) -> Tensor:
        return ((-d).sigmoid() / (d.sigmoid() + self.a)).log1p()  # exact as p → 1

    def emphasis(self, d: Tensor) -> Tensor:
        p = d.sigmoid()
        return p * (-d).sigmoid() / (p + self.a)
