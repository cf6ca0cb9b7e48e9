import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss, p_log_p
from noisewise.spec import setting


class Focal(MarginLoss, name="focal"):
    """Focal loss: cross-entropy with less emphasis on learned examples. Not robust; for comparison.

    This is the loss of the paper with its full derivative; most published code trains `focal_detached` instead.

    Formula:
        l(p) = −(1 − p)^q log p
        w = (1 − p)^q (1 − p − q p log p)

    Args:
        q: how fast the emphasis falls (γ in the paper).

    Example:
        >>> Focal(q=2)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0109)

    Reference:
        Lin et al., Focal loss for dense object detection, ICCV 2017.
    """

    examples = ("focal(q=2.0)", "focal(q=0.5)", "focal(q=0)")

    q: float = setting(default=2.0, bounds="[0, inf)")

    def value(self, d: Tensor) -> Tensor:
        return -self._factor(d) * logsigmoid(d)

    def emphasis(self, d: Tensor) -> Tensor:
        return self._factor(d) * ((-d).sigmoid() - self.q * p_log_p(d))

    def _factor(self, d: Tensor) -> Tensor:
        """(1 − p)^q, also for q = 0 at p = 1."""
        return (self.q * logsigmoid(-d)).exp() if self.q > 0 else torch.ones_like(d)
