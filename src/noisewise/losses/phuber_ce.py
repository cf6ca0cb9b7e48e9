import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss
from noisewise.spec import setting


class PHuberCE(MarginLoss, name="phuber_ce"):
    """Partially Huberised cross-entropy: cross-entropy that is linear in p below p = 1/tau, which limits the emphasis.

    Formula:
        l(p) = −log p where p > 1/tau, else −tau p + log tau + 1
        w = 1 − p where p > 1/tau, else tau p (1 − p)

    Args:
        tau: the largest slope of the loss in p; above one.

    Example:
        >>> PHuberCE(tau=10)(torch.tensor([[0.0, 4.0, 0.0]]), torch.tensor([0]))
        tensor(3.1259)

    Reference:
        Menon et al., Can gradient clipping mitigate label noise?, ICLR 2020.
    """

    examples = ("phuber_ce(tau=10.0)", "phuber_ce(tau=2.0)")

    tau: float = setting(default=10.0, bounds="(1, inf)")

    def value(self, d: Tensor) -> Tensor:
        log_p = logsigmoid(d)
        return torch.where(self._is_likely(log_p), -log_p, math.log(self.tau) + 1 - self.tau * d.sigmoid())

    def emphasis(self, d: Tensor) -> Tensor:
        return (-d).sigmoid() * torch.where(self._is_likely(logsigmoid(d)), 1.0, self.tau * d.sigmoid())

    def _is_likely(self, log_p: Tensor) -> Tensor:
        return log_p > -math.log(self.tau)
