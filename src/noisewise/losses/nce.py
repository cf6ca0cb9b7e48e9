from torch import Tensor

from noisewise.losses._every_class import ShareOfCosts


class NCE(ShareOfCosts, name="nce"):
    """Normalised cross-entropy: cross-entropy divided by the sum of the costs of all classes. Robust, but slow to learn alone.

    The bound γ (1 + ε) (1 − p_y) on its emphasis in the curriculum paper is wrong; the bound below is right.

    Formula:
        L = −log p_y / Σ_i −log p_i
        w ≤ γ (1 − p_y + ε (k−1)/k),  γ = 1 / Σ_i −log p_i,  ε = k γ (−log p_y)

    Example:
        >>> NCE()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0508)

    Reference:
        Ma et al., Normalized loss functions for deep learning with noisy labels, ICML 2020.
    """

    def of_costs(self, own: Tensor, total: Tensor, classes: float) -> Tensor:
        return own / -total
