from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss


class CE(MarginLoss, name="ce"):
    """Cross-entropy, the baseline. It emphasises labels with a low probability most, so it also learns wrong labels.

    Formula:
        l(p) = −log p
        w = 1 − p

    Example:
        >>> CE()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2395)

    Reference:
        Equal to torch.nn.CrossEntropyLoss.
    """

    def value(self, d: Tensor) -> Tensor:
        return -logsigmoid(d)

    def emphasis(self, d: Tensor) -> Tensor:
        return (-d).sigmoid()
