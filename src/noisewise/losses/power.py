from typing import ClassVar

from noisewise.losses.gce import GCE
from noisewise.spec import setting


class Power(GCE, name="power"):
    """A power of p above 1: it emphasises likely labels more than MAE does. For fine-tuning models that already know the task.

    It continues `gce`, whose q is at most 1. The paper writes −p^q, which has q times this gradient; its code has the factor 1/q.

    Formula:
        l(p) = (1 − p^q) / q
        w = p^q (1 − p)

    Args:
        q: the exponent; 1 is half of MAE.

    Example:
        >>> Power(q=10)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0909)

    Reference:
        Li et al., Beyond log likelihood: probability-based objectives for supervised fine-tuning across the model capability continuum,
        arXiv:2510.00526, 2025.
    """

    examples: ClassVar[tuple[str, ...]] = ("power(q=10.0)", "power(q=1.0)", "power(q=2.5)")

    q: float = setting(default=10.0, bounds="[1, inf)")
