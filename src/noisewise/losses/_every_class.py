"""Losses that look at what every class would cost: as a share of the total, on average, or by what the other classes lack."""

import torch
from torch import Tensor

from noisewise.exact import seen_finite
from noisewise.losses._base import Loss
from noisewise.losses.ce import CE


class OverEveryClass(Loss):
    """A loss of two costs alone: what the label costs, −log p_y, and what the classes cost together. Write `of_costs`."""

    def of_costs(self, own: Tensor, scores: Tensor) -> Tensor:
        """The loss where a label costs `own`, which has the classes in dimension 1 or one entry there."""
        raise NotImplementedError

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        return self.of_costs(CE().per_example(scores, target, kept).unsqueeze(1), scores).squeeze(1)

    def per_class(self, scores: Tensor) -> Tensor:
        return self.of_costs(CE().per_class(scores), scores)


def log_probabilities(scores: Tensor) -> Tensor:
    """log p of every class. Good for sums over the classes; a single one that is near 0 is exact only as a margin."""
    return scores.log_softmax(1)


def share(costs: Tensor, total: Tensor | None = None) -> Tensor:
    """Costs as shares of the costs of all classes (Ma et al. 2020), but of those masked by a score of −inf.

    None has a share where nothing costs anything: where all classes but one are masked.

    Args:
        costs: with the classes in dimension 1.
        total: of all classes, where `costs` are not those of every class.
    """
    masked = None if seen_finite(costs) else costs == torch.inf
    finite = costs if masked is None else costs.masked_fill(masked, 0.0)
    total = finite.sum(1, keepdim=True) if total is None else total
    found = finite / torch.where(total == 0, 1.0, total)
    return found if masked is None else found.masked_fill(masked, torch.inf)


def negative_share(costs: Tensor, most: float) -> Tensor:
    """One minus every class's share of what is lacking to the most a class can cost (Ye et al. 2023)."""
    return 1 - share(most - costs.clamp(max=most))
