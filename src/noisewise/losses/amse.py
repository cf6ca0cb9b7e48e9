from torch import Tensor

from noisewise.exact import going_forward
from noisewise.losses._base import Loss
from noisewise.losses.mse import squared_error, squared_errors
from noisewise.spec import setting


class AMSE(Loss, name="amse"):
    """Asymmetric mean squared error: the label's target is a > 1, so the pull of MAE is added to that of the squared error.

    With k classes it equals ``1/k*mse + (a-1)/k*mae`` plus a constant. The joint asymmetric loss (JAL) of the paper is a sum with a
    normalised loss: ``nce + amse(a=30)`` on CIFAR-10, ``5*nce + amse(a=20)`` on CIFAR-100. In published code the sum JAL-FL has a
    detached factor (1 − p)^q, unlike ``nfl + amse``.

    Formula:
        L = Σ_i (p_i − a [i = y])² / k
        w: by differentiation

    Args:
        a: the target of the label; 1 is the mean squared error.

    Example:
        >>> AMSE(a=30)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(284.4743)

    Reference:
        Wang et al., Joint asymmetric loss for learning with noisy labels, ICCV 2025.
    """

    examples = ("amse(a=30.0)", "amse(a=1.0)", "amse(a=2.5)")

    a: float = setting(default=30.0, bounds="[1, inf)")

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        if going_forward():
            return super().per_example(scores, target, kept)
        return squared_error(scores, target, self.a - 1) / scores.shape[1]

    def per_class(self, scores: Tensor) -> Tensor:
        return squared_errors(scores, self.a - 1) / scores.shape[1]
