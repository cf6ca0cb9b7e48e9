import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.exact import applied, going_forward, margin_of
from noisewise.losses._base import Descent, Loss
from noisewise.margin import margins


class DEFT(Loss, name="deft"):
    """Dynamic entropy fine-tuning: `gce` whose q is the concentration Σ p² of each prediction: cross-entropy if unsure, MAE if sure.

    The concentration is detached, as in the paper, so the gradient is not the derivative of the value. No other value has this gradient.

    Formula:
        L = (1 − p_y^q) / q,  q = Σ_i p_i², detached
        w = p_y^q (1 − p_y)

    Example:
        >>> DEFT()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2220)

    Reference:
        Wang et al., Gradients must earn their influence: unifying SFT with generalized entropic objectives, arXiv:2602.11424, 2026.
    """

    def value(self, d: Tensor, q: Tensor) -> Tensor:
        """The loss at margin `d` of predictions with concentration `q`."""
        return -(q * logsigmoid(d)).expm1() / q

    def emphasis(self, d: Tensor, q: Tensor) -> Tensor:
        """The emphasis at margin `d` of predictions with concentration `q`."""
        return (q * logsigmoid(d)).exp() * (-d).sigmoid()

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        d, pull = margin_of(scores, target.unsqueeze(1), 1)
        return self._of_margin(d, _concentration(d.detach(), pull.detach())).squeeze(1)

    def per_class(self, scores: Tensor) -> Tensor:
        d = margins(scores)
        return self._of_margin(d, d.detach().sigmoid().square().sum(1, keepdim=True))

    def _of_margin(self, d: Tensor, q: Tensor) -> Tensor:
        return self.value(d, q) if going_forward() else applied(Descent, d, self, q)


def _concentration(d: Tensor, pull: Tensor) -> Tensor:
    """Σ_i p_i².

    Args:
        d: the margins of the labels.
        pull: the softmax over the other classes, times any factor; 0 for the label.
    """
    total = pull.sum(1, keepdim=True)
    spread: Tensor = torch.linalg.vector_norm(pull, dim=1, keepdim=True) / torch.where(total == 0, 1.0, total)
    return d.sigmoid().square() + ((-d).sigmoid() * spread).square()
