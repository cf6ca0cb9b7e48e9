import torch
from torch import Tensor

from noisewise.losses._base import Loss, inner_loss
from noisewise.spec import setting


class LogitClip(Loss, name="logit_clip"):
    """Any loss of scores whose norm is clipped to tau, which bounds the loss. (Published code clips to 1/tau.)

    Formula:
        L = l(s · min(1, tau / ‖s‖₂), y)
        w: by differentiation

    Args:
        loss: the loss l.
        tau: the largest norm of a row of scores.

    Example:
        >>> LogitClip("ce", tau=1.0)(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
        tensor(0.7981)

    Reference:
        Wei et al., Mitigating memorization of noisy labels by clipping the model prediction, ICML 2023.
    """

    examples = ("logit_clip(ce, tau=1.5)", "logit_clip(gce(q=0.7), tau=2.0)")

    loss: Loss = setting(check=inner_loss)
    tau: float = setting(default=1.0, bounds="(0, inf)")

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        return self.loss.per_example(self._clip(scores), target, kept)

    def per_class(self, scores: Tensor) -> Tensor:
        return self.loss.per_class(self._clip(scores))

    def _clip(self, scores: Tensor) -> Tensor:
        """The scores with their norm clipped; classes masked by −inf are left out of the norm."""
        masked = scores == -torch.inf
        present = scores.masked_fill(masked, 0.0)
        unit = present.detach().abs().amax(1, keepdim=True).clamp(min=self.tau)  # so that no square overflows
        norm = unit * (present / unit).square().sum(1, keepdim=True).clamp(min=(self.tau / unit) ** 2).sqrt()
        return (present * (self.tau / norm)).masked_fill(masked, -torch.inf)
