from typing import ClassVar

from torch import Tensor

from noisewise.losses._every_class import OverEveryClass
from noisewise.spec import setting


class GLS(OverEveryClass, name="gls"):
    """Generalised label smoothing: the smoothing may be negative, which makes predictions more certain under noise.

    Formula:
        L = −Σ_i ((1 − alpha) [i = y] + alpha / k) log p_i
        w: (1 − alpha) (1 − p_y) plus the pull of the smoothing

    Args:
        alpha: the share spread over all classes; negative values sharpen.

    Example:
        >>> GLS(alpha=-0.4)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-0.2938)

    Reference:
        Wei et al., To smooth or not? When label smoothing meets noisy labels, ICML 2022.
    """

    examples: ClassVar[tuple[str, ...]] = ("gls(alpha=-0.4)", "gls(alpha=0.2)", "gls(alpha=-4.0)")

    alpha: float = setting(default=-0.4, bounds="(-inf, 1]")

    def of_costs(self, own: Tensor, total: Tensor, classes: float) -> Tensor:
        return (1 - self.alpha) * own - self.alpha * (total / classes)

    def of_scores(self, own: Tensor, scores: Tensor) -> Tensor:
        return super().of_scores(own, scores) if self.is_of_costs else own

    @property
    def is_of_costs(self) -> bool:
        return self.alpha != 0  # 0 times the infinite cost of a masked class is NaN
