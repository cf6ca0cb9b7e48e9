from torch import Tensor

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class AEL(MarginLoss, name="ael"):
    """Asymmetric exponential loss.

    Formula:
        l(p) = exp(−p / q)
        w = p (1 − p) exp(−p / q) / q

    Args:
        q: how slowly the loss falls (a in the paper).

    Example:
        >>> AEL(q=2.5)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.7299)

    Reference:
        Zhou et al., Asymmetric loss functions for learning with noisy labels, ICML 2021.
    """

    examples = ("ael(q=2.5)", "ael(q=0.5)")

    q: float = setting(default=2.5, bounds="(0, inf)")

    def value(self, d: Tensor) -> Tensor:
        return (-d.sigmoid() / self.q).exp()

    def emphasis(self, d: Tensor) -> Tensor:
        p = d.sigmoid()
        return p * (-d).sigmoid() * (-p / self.q).exp() / self.q
