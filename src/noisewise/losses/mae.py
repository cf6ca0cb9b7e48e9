from torch import Tensor

from noisewise.losses._base import MarginLoss


class MAE(MarginLoss, name="mae"):
    """Mean absolute error: robust because it emphasises uncertain examples, but slow to learn many classes.

    The curriculum paper halves it: write ``0.5*mae``.

    Formula:
        l(p) = 2 (1 − p) = Σ_i |p_i − [i = y]|
        w = 2 p (1 − p)

    Example:
        >>> MAE()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.4260)

    Reference:
        Ghosh, Kumar & Sastry, Robust loss functions under label noise for deep neural networks, AAAI 2017.
    """

    def value(self, d: Tensor) -> Tensor:
        return 2 * (-d).sigmoid()

    def emphasis(self, d: Tensor) -> Tensor:
        return 2 * d.sigmoid() * (-d).sigmoid()
