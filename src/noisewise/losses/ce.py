from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import MarginLoss


class CE(MarginLoss, name="ce"):
    """Cross-entropy, the yardstick: it pulls hardest where the label is least believed, so it learns wrong labels too.

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
