import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import Loss
from noisewise.margin import margins
from noisewise.spec import setting


class EpsSoftmax(Loss, name="eps_softmax"):
    """Cross-entropy after ε-softmax, which adds m to the winning class: an example the model already gives its label is let go.

    Its paper trains ``0.01*eps_softmax(m=1e5) + 5*mae`` on CIFAR-10.

    Formula:
        L = −log((p_y + m [y wins]) / (1 + m))
        w = 1 − p, or p (1 − p) / (p + m) where y wins

    Args:
        m: how much the winning class gains.

    Example:
        >>> EpsSoftmax(m=1)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1126)

    Reference:
        Wang et al., ε-softmax: approximating one-hot vectors for mitigating label noise, NeurIPS 2024.
    """

    examples = ("eps_softmax(m=1e5)", "eps_softmax(m=1.0)")

    m: float = setting(default=1e5, bounds="(0, inf)")

    def per_class(self, scores: Tensor) -> Tensor:
        d = margins(scores)
        winner = torch.zeros_like(scores, dtype=torch.bool).scatter(1, scores.argmax(1, keepdim=True), True)
        won = -(-(-d).sigmoid() / (1 + self.m)).log1p()
        return torch.where(winner, won, math.log1p(self.m) - logsigmoid(d))
