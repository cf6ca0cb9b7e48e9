from torch import Tensor

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class RCE(MarginLoss, name="rce"):
    """Reverse cross-entropy, with log 0 taken as A: a multiple of MAE.

    Most published code clamps the one-hot label at 1e-4, which is A = log 1e-4 = −9.21, not the paper's −4.

    Formula:
        l(p) = −A (1 − p)
        w = −A p (1 − p)

    Args:
        A: the value used for log 0; negative.

    Example:
        >>> RCE(A=-4)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.8521)

    Reference:
        Wang et al., Symmetric cross entropy for robust learning with noisy labels, ICCV 2019.
    """

    examples = ("rce(A=-4)", "rce(A=-9.21)")

    A: float = setting(default=-4.0, bounds="(-inf, 0)")

    def value(self, d: Tensor) -> Tensor:
        return -self.A * (-d).sigmoid()

    def emphasis(self, d: Tensor) -> Tensor:
        return -self.A * d.sigmoid() * (-d).sigmoid()
