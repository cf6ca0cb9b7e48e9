import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.exact import applied, going_forward, margin_of
from noisewise.losses._base import Descent, Loss
from noisewise.margin import margins
from noisewise.spec import setting


class EpsSoftmax(Loss, name="eps_softmax"):
    """Cross-entropy after ε-softmax, which adds m to the predicted class: examples that are predicted as labelled get almost no emphasis.

    The paper trains ``0.01*eps_softmax(m=1e5) + 5*mae`` on CIFAR-10.

    Formula:
        L = −log((p_y + m [y wins]) / (1 + m))
        w = 1 − p, or p (1 − p) / (p + m) where y wins

    Args:
        m: what is added to the predicted class.

    Example:
        >>> EpsSoftmax(m=1)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1126)

    Reference:
        Wang et al., ε-softmax: approximating one-hot vectors for mitigating label noise, NeurIPS 2024.
    """

    examples = ("eps_softmax(m=1e5)", "eps_softmax(m=1.0)")

    m: float = setting(default=1e5, bounds="(0, inf)")

    def value(self, d: Tensor, wins: Tensor) -> Tensor:
        """The loss at margin `d`; `wins` says where the label is the predicted class."""
        return torch.where(wins, -(-(-d).sigmoid() / (1 + self.m)).log1p(), math.log1p(self.m) - logsigmoid(d))

    def emphasis(self, d: Tensor, wins: Tensor) -> Tensor:
        """The emphasis at margin `d`; `wins` says where the label is the predicted class."""
        p = d.sigmoid()
        return (-d).sigmoid() * torch.where(wins, p / (p + self.m), 1.0)

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        d = margin_of(scores, target.unsqueeze(1), 1)[0].squeeze(1)
        return self._of_margin(d, scores.argmax(1) == target)

    def per_class(self, scores: Tensor) -> Tensor:
        winner = scores.argmax(1, keepdim=True)
        return self._of_margin(margins(scores), torch.zeros_like(scores, dtype=torch.bool).scatter(1, winner, True))

    def _of_margin(self, d: Tensor, wins: Tensor) -> Tensor:
        return self.value(d, wins) if going_forward() else applied(Descent, d, self, wins)
