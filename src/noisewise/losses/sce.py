from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class SCE(MarginLoss, name="sce"):
    """Symmetric cross-entropy: cross-entropy to learn, reverse cross-entropy to tolerate noise.

    The curriculum paper's (1 − q)·CE + q·(1 − p) is ``sce(alpha=1-q, beta=q, A=-1)``.

    Formula:
        l(p) = −alpha log p − beta A (1 − p)
        w = (alpha − beta A p) (1 − p)

    Args:
        alpha: factor of cross-entropy.
        beta: factor of reverse cross-entropy.
        A: the value used for log 0; negative. Published code uses −9.21 where its paper says −4.

    Example:
        >>> SCE(alpha=0.1, beta=1)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.8760)

    Reference:
        Wang et al., Symmetric cross entropy for robust learning with noisy labels, ICCV 2019.
    """

    examples = ("sce(alpha=0.1, beta=1.0)", "sce(alpha=0.3, beta=0.7, A=-1)")

    alpha: float = setting(default=0.1, bounds="[0, inf)")
    beta: float = setting(default=1.0, bounds="[0, inf)")
    A: float = setting(default=-4.0, bounds="(-inf, 0)")

    def value(self, d: Tensor) -> Tensor:
        return -self.alpha * logsigmoid(d) - self.beta * self.A * (-d).sigmoid()

    def emphasis(self, d: Tensor) -> Tensor:
        return (self.alpha - self.beta * self.A * d.sigmoid()) * (-d).sigmoid()
