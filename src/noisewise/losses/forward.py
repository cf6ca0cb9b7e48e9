import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Floats
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import applied, can_keep, can_look, going_forward, seen_finite
from noisewise.losses._base import Loss, MarginLoss, inner_margin_loss, registry
from noisewise.noise import ClassNoise, Matrix, Noise, NoNoise, matrix_of
from noisewise.noise import registry as noises
from noisewise.spec import setting


def _class_noise(value: Any) -> Noise:
    if isinstance(value, Loss) or (isinstance(value, str) and value.partition("(")[0].strip() in registry.available()):
        raise invalid_parameter("noise", "Forward", "the noise; it comes before the loss, as in forward('symmetric(0.4)', loss=ce)", value)
    matrix: Any = value.detach().cpu() if isinstance(value, Tensor) else value
    noise = noises.get(value) if isinstance(value, str | Noise) else Matrix(matrix)
    if not all(isinstance(part, ClassNoise | NoNoise) for part in noise.parts):
        raise invalid_parameter(
            "noise", "Forward", "a noise that depends only on the class, such as 'symmetric(0.4)', or a transition matrix", value
        )
    return noise


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


class Forward(Loss, name="forward"):
    """Forward correction: any margin loss, at the probability of the given label after the noise.

    The model learns the true classes. The transition matrix can be that of a named noise, or be counted or estimated.

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
    """

    examples = ("forward('symmetric(0.4)', loss=ce)", "forward('symmetric(0.2)', loss=gce(q=0.7))")

    noise: Noise = setting(check=_class_noise)
    loss: MarginLoss = setting(default="ce", check=inner_margin_loss)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shares: dict[Any, Tensor] = {}
        self._noise_repr = self.noise, repr(self.noise)

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        log_share, log_rest = (part[target].movedim(-1, 1) for part in self._log_shares(scores))
        if going_forward():
            shifted = _below_zero(scores)
            d = _log_sum(shifted + log_share, 1) - _log_sum(shifted + log_rest, 1)
        else:
            d = applied(_CorrectedMargin, scores, log_share, log_rest)
        return self.loss.of_margin(d, scores.shape[1])

    def per_class(self, scores: Tensor) -> Tensor:
        rows = _below_zero(scores).movedim(1, -1).unsqueeze(-2)
        given, other = (_log_sum(rows + part, -1).movedim(-1, 1) for part in self._log_shares(scores))
        return self.loss.of_margin(given - other, scores.shape[1])

    def _log_shares(self, scores: Tensor) -> Tensor:
        """log T and log(1 − T), with the given label in the first dimension."""
        where = operator.index(scores.shape[1]), scores.dtype, scores.device  # an int, also where a compiler has a symbol
        if torch.compiler.is_compiling():
            noise, text = self._noise_repr
            return _logarithms_of(text if noise is self.noise else repr(self.noise), *where)
        shares = self._shares.get((self.noise, *where))
        if shares is None:
            shares = _logarithms(self, *where)
            if can_keep():
                self._shares[self.noise, *where] = shares
        return shares

    def transition(self, classes: int) -> Floats:
        """The transition matrix T. It must not depend on the seed, and every label must occur."""
        matrix, other = (matrix_of(self.noise, classes, seed) for seed in (0, 1))
        assert matrix is not None, "it depends on the class alone"
        if not np.array_equal(matrix, other):  # type: ignore[arg-type]
            raise InputError(f"The matrix of {self.noise!r} is drawn with the seed of a run. Give forward the matrix itself.")
        if not matrix.any(axis=0).all():
            never = int(matrix.any(axis=0).argmin())
            raise invalid_parameter("noise", "Forward", "such that every label occurs", f"{self.noise!r}, which never gives label {never}")
        return matrix

    def _literal(self, key: str) -> Any:
        return repr(self.noise) if key == "noise" else super()._literal(key)


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


def _logarithms(loss: Forward, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = np.minimum(loss.transition(classes).T, 1)  # an estimate may be slightly above 1
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.stack([np.log(matrix), np.log1p(-matrix)])).to(device, dtype)


def _logarithms_of(noise: str, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant for torch.compile, which cannot trace noises."""
    return _logarithms(Forward(noise), classes, dtype, device)


# As torch.compiler.assume_constant_result sets it; the decorator would import the whole compiler.
_logarithms_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
