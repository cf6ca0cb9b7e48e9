import math
from collections.abc import Sequence

import torch
from torch import Tensor

from noisewise.checks import check_scores, class_dim
from noisewise.errors import InputError
from noisewise.exact import at_least_float
from noisewise.losses.js import JS


class GJS(JS, name="gjs"):
    """Generalised Jensen–Shannon divergence between a label and several views of one example: JS plus consistency.

    Call it with a list of scores, one tensor per augmented view. With a single tensor it is `js`.

    Formula:
        L = JS(y, mean of the views) + (1 − pi)/Z · mean_k KL(view_k ‖ mean of the views)
        w = emphasis of js at the margin of the mean, plus the pull towards consistency

    Args:
        pi: the weight of the label in the mixture.

    Example:
        >>> once, again = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[0.0, 2.0, 0.0]])
        >>> GJS(pi=0.5)([once, again], torch.tensor([0]))
        tensor(1.1324)

    Reference:
        Englesson & Azizpour, Generalized Jensen–Shannon divergence loss for learning with noisy labels, NeurIPS 2021.
    """

    examples = ("gjs(pi=0.5)", "gjs(pi=0.3)")

    def forward(self, scores: Tensor | Sequence[Tensor], target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        if isinstance(scores, Tensor):
            return super().forward(scores, target, sample_weight=sample_weight)
        for view in scores:
            check_scores(view, "GJS")
        if not scores or len({view.shape for view in scores}) != 1:
            raise InputError(f"The views given to GJS must be scores of one shape. Got {[tuple(view.shape) for view in scores]}.")
        dim = class_dim(scores[0])
        views = torch.stack([at_least_float(view).log_softmax(dim) for view in scores])
        masked = views == -torch.inf
        finite = views.masked_fill(masked, torch.finfo(views.dtype).min)  # finite, so that differences have gradients
        mean = finite.logsumexp(0) - math.log(len(scores))
        common = (views.exp() * (finite - mean)).sum(dim + 1).mean(0) / -math.log1p(-self.pi)
        return self._loss(mean.masked_fill(masked.all(0), -torch.inf), target, sample_weight, common, scores[0].dtype)
