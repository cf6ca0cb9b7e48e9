from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class FocalDetached(MarginLoss, name="focal_detached"):
    """What most published focal code trains: the factor (1 − p)^q is detached, which changes the gradient.

    Its value is the integral of that gradient, zero at p = 1/2; published code prints the value of `focal`.

    Formula:
        l(p) = −∫ w dΔ from Δ = 0
        w = (1 − p)^(1+q)

    Args:
        q: how fast the emphasis falls (γ in the focal paper).

    Example:
        >>> FocalDetached(q=2).emphasis(torch.tensor(0.0))
        tensor(0.1250)

    Reference:
        Lin et al., Focal loss for dense object detection, ICCV 2017, as most code implements it.
    """

    examples = ("focal_detached(q=2.0)", "focal_detached(q=0.5)")

    q: float = setting(default=2.0, bounds="[0, inf)")

    def emphasis(self, d: Tensor) -> Tensor:
        return ((1 + self.q) * logsigmoid(-d)).exp()
