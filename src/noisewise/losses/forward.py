from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Floats
from noisewise.exact import applied, can_look, going_forward, seen_finite
from noisewise.losses._base import MarginLoss, inner_margin_loss
from noisewise.losses._corrected import Corrected, class_noise
from noisewise.noise import Noise
from noisewise.spec import setting


def _below_zero(scores: Tensor) -> Tensor:
    """The scores minus the largest of a row, so that a sum with a logarithm of T keeps its digits."""
    return scores - scores.detach().amax(1, keepdim=True)


def _log_sum(values: Tensor, dim: int) -> Tensor:
    """`logsumexp`, with gradient 0 instead of NaN where every value is −inf, because only masked classes lead to a label."""
    result = values.logsumexp(dim)
    if seen_finite(result):
        return result
    nothing = (values == -torch.inf).all(dim, keepdim=True)
    return values.masked_fill(nothing, 0.0).logsumexp(dim).masked_fill(nothing.squeeze(dim), -torch.inf)


class Forward(Corrected, name="forward"):
    """Forward correction: any margin loss, at the probability of the given label after the noise.

    The model learns the true classes. The transition matrix can be that of a named noise, or be counted or estimated. Even with the
    true matrix, a network that trains long enough memorises the wrong labels in the end: stop early, or use a small network.

    Formula:
        L = l(p′),  p′ = Σ_i p_i T_iy,  T_iy = P(given y | true i)
        w: by differentiation

    Args:
        noise: a noise that depends on the class alone, or the matrix T.
        loss: the loss l.

    Example:
        >>> Forward("symmetric(0.4)")(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.6640)
        >>> Forward([[0.9, 0.1], [0.4, 0.6]], loss="mae")(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))
        tensor(1.6808)

    Reference:
        Patrini et al., Making deep neural networks robust to label noise: a loss correction approach, CVPR 2017.
        Feng et al., Deconstructing the failure of ideal noise correction: a three-pillar diagnosis, arXiv:2603.12997, 2026.
    """

    examples = ("forward('symmetric(0.4)', loss=ce)", "forward('symmetric(0.2)', loss=gce(q=0.7))")

    noise: Noise = setting(check=class_noise("Forward"))
    loss: MarginLoss = setting(default="ce", check=inner_margin_loss)

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        log_share, log_rest = (part[target].movedim(-1, 1) for part in self.constants_for(scores))
        if going_forward():
            shifted = _below_zero(scores)
            d = _log_sum(shifted + log_share, 1) - _log_sum(shifted + log_rest, 1)
        else:
            d = applied(_CorrectedMargin, scores, log_share, log_rest)
        return self.loss.of_margin(d, scores.shape[1])

    def per_class(self, scores: Tensor) -> Tensor:
        rows = _below_zero(scores).movedim(1, -1).unsqueeze(-2)
        given, other = (_log_sum(rows + part, -1).movedim(-1, 1) for part in self.constants_for(scores))
        return self.loss.of_margin(given - other, scores.shape[1])

    def constants(self, matrix: Floats) -> Floats:
        """log T and log(1 − T), with the given label in the first dimension."""
        matrix = np.minimum(matrix.T, 1)  # an estimate may be slightly above 1
        with np.errstate(divide="ignore"):
            return np.stack([np.log(matrix), np.log1p(-matrix)])


class _CorrectedMargin(torch.autograd.Function):
    """The margin of the given label, log p′ − log(1 − p′), with derivatives p_i (T_iy − p′) / (p′ (1 − p′)) that do not cancel.

    T_iy − p′ comes from the differences between T_iy and that of the largest class, which are exact. Where p′ or 1 − p′ is almost 0, the
    derivatives are differences of two softmaxes, which do not overlap there.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, log_share: Tensor, log_rest: Tensor) -> Tensor:
        shifted = _below_zero(scores)
        return (shifted + log_share).logsumexp(1) - (shifted + log_rest).logsumexp(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        scores, log_share, log_rest = ctx.saved_tensors
        shifted = _below_zero(scores)
        weights, share = shifted.exp(), log_share.exp()
        ahead = share - share.gather(1, scores.argmax(1, keepdim=True))
        mean = (weights * ahead).sum(1, keepdim=True)
        odds = (weights * share).sum(1, keepdim=True) * (weights * log_rest.exp()).sum(1, keepdim=True)
        far = odds < torch.finfo(scores.dtype).tiny ** 0.5
        slopes = weights * (ahead * weights.sum(1, keepdim=True) - mean) / torch.where(far, 1.0, odds)
        if not can_look(far) or bool(far.any()):
            apart = _softmax(shifted + log_share) - _softmax(shifted + log_rest)
            slopes = torch.where(far, apart, slopes)
        return grad.unsqueeze(1) * slopes, None, None


def _softmax(values: Tensor) -> Tensor:
    """The softmax, or 0 if every value is −inf."""
    nothing = (values == -torch.inf).all(1, keepdim=True)
    return values.masked_fill(nothing, 0.0).softmax(1).masked_fill(nothing, 0.0)
