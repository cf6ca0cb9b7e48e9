from torch import Tensor

from noisewise.losses._base import MarginLoss


class DFT(MarginLoss, name="dft"):
    """Dynamic fine-tuning: cross-entropy times a detached p. Its gradient is that of ``0.5*mae``, so it ignores unlikely labels.

    Its value is the integral of that gradient, 1 − p; published code prints −p log p, which has another gradient.

    Formula:
        l(p) = 1 − p
        w = p (1 − p)

    Example:
        >>> DFT()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2130)

    Reference:
        Wu et al., On the generalization of SFT: a reinforcement learning perspective with reward rectification, arXiv:2508.05629, 2025.
    """

    def value(self, d: Tensor) -> Tensor:
        return (-d).sigmoid()

    def emphasis(self, d: Tensor) -> Tensor:
        return d.sigmoid() * (-d).sigmoid()
