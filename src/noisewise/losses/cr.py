from typing import Any

import torch
from torch import Tensor

from noisewise.errors import invalid_parameter
from noisewise.losses._base import along_classes
from noisewise.losses._every_class import OverEveryClass, log_probabilities
from noisewise.spec import setting


def _prior(value: Any) -> tuple[float, ...]:
    try:
        prior = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        prior = torch.empty(0)
    if prior.dim() != 1 or len(prior) < 2 or bool((prior < 0).any()) or abs(float(prior.sum()) - 1) > 1e-6:
        raise invalid_parameter("prior", "CR", "one probability per class, summing to 1", value)
    return tuple(prior.tolist())


class CR(OverEveryClass, name="cr"):
    """Cross-entropy with the confidence regulariser of CORES²: it rewards confidence, and equals peer loss on average.

    Formula:
        L = −log p_y + beta Σ_i P(i) log p_i
        w: by differentiation

    Args:
        beta: how much confidence is rewarded.
        prior: P(i), the frequency of each class among the given labels; by default uniform.

    Example:
        >>> CR(beta=0.5)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-0.5469)

    Reference:
        Cheng et al., Learning with instance-dependent label noise: a sample sieve approach, ICLR 2021.
    """

    examples = ("cr(beta=0.5)", "cr(beta=2.0)")

    beta: float = setting(default=2.0, bounds="[0, inf)")
    prior: tuple[float, ...] | None = setting(default=None, check=_prior)

    def of_costs(self, own: Tensor, total: Tensor, classes: float) -> Tensor:
        return own + self.beta * (total / classes)

    @property
    def is_of_costs(self) -> bool:
        return self.prior is None and self.beta != 0  # 0 times the infinite cost of a masked class is NaN

    def of_scores(self, own: Tensor, scores: Tensor) -> Tensor:
        if self.beta == 0:
            return own
        if self.prior is None:
            return super().of_scores(own, scores)
        if len(self.prior) != scores.shape[1]:
            raise invalid_parameter(
                "prior", "CR", f"one probability for each of the {scores.shape[1]} classes", f"{len(self.prior)} of them"
            )
        log_p = log_probabilities(scores)
        prior = along_classes(torch.tensor(self.prior, dtype=log_p.dtype, device=log_p.device), log_p)
        return self.of_costs(own, (prior * log_p.masked_fill(prior == 0, 0.0)).sum(1, keepdim=True), 1)
