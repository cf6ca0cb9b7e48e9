from typing import Any

import torch
from torch import Tensor

from noisewise.checks import check_floating, check_some
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import at_least_float, autocasts, can_look
from noisewise.losses._base import Loss, MarginLoss, along_classes, inner_loss
from noisewise.spec import setting


def _positive_weight(value: Any) -> tuple[float, ...]:
    try:
        return tuple(torch.as_tensor(value, dtype=torch.float64, device="cpu").reshape(-1).tolist())
    except (TypeError, ValueError, RuntimeError):
        raise invalid_parameter("pos_weight", "Binary", "one number, or one per label", value) from None


class Binary(Loss, name="binary"):
    """Any loss for binary and multi-label classification, with one score per yes/no label. A drop-in for BCEWithLogitsLoss.

    A score s is the margin of "yes", and −s that of "no", as for two classes with scores (0, s).

    Formula:
        L = t l(s) + (1 − t) l(−s)
        w: emphasis of l at ±s

    Args:
        loss: the loss l.
        pos_weight: a factor on "yes", one number or one per label.
        weight: a factor per label, along dimension 1.

    Example:
        >>> Binary("gce(q=0.7)")(torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.2014)

    Reference:
        curriculum paper, section 4: the sigmoid form of the margin.
    """

    examples = ("binary(imae(T=8.0))", "binary(ce, pos_weight=(2.0,))")

    loss: Loss = setting(check=inner_loss)
    pos_weight: tuple[float, ...] | None = setting(default=None, check=_positive_weight)

    def forward(self, scores: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        """Loss of a batch.

        Args:
            scores: any shape, one score per yes/no label.
            target: 0, 1 or a probability of "yes", shaped like the scores; integers may be `ignore_index`.
            sample_weight: a factor per example, shaped (N,) or like the target.
        """
        self._check(scores, target)
        result_type = torch.promote_types(scores.dtype, torch.float32) if autocasts(scores) else scores.dtype
        if target.is_floating_point():
            result_type = torch.promote_types(result_type, target.dtype)
        scores = at_least_float(scores)
        kept = None if target.is_floating_point() or target.dtype == torch.bool else target != self.ignore_index
        share = (target if kept is None else target.masked_fill(~kept, 0)).to(scores.dtype)
        if self.label_smoothing > 0:
            share = (1 - self.label_smoothing) * share + self.label_smoothing / 2
        yes, no = self._both(scores)
        if self.pos_weight is not None:
            yes = yes * self._per_label(torch.tensor(self.pos_weight, dtype=scores.dtype, device=scores.device), "pos_weight", scores)
        rows = share * yes + (1 - share) * no
        if self.weight is not None:
            rows = rows * self._per_label(self.weight.to(scores.dtype), "weight", scores)
        counted = None
        if kept is not None:
            rows, counted = rows.masked_fill(~kept, 0.0), kept.to(rows.dtype)
        return self._reduce(*self._weighted(rows, counted, sample_weight), single=False).to(result_type)

    def _check(self, scores: Tensor, target: Tensor) -> None:
        check_floating(scores, "Binary")
        if not isinstance(target, Tensor) or target.shape != scores.shape:
            raise InputError(
                f"The target given to Binary must be shaped like the scores, {tuple(scores.shape)}. "
                f"Got {tuple(getattr(target, 'shape', ())) or type(target).__name__} instead."
            )
        if self.reduction == "mean":
            check_some(scores, "Binary")
        if target.numel() and target.dtype != torch.bool and can_look(target):
            wrong = (target < 0) | (target > 1)
            if not target.is_floating_point():
                wrong &= target != self.ignore_index
            if wrong.any():
                raise InputError(
                    f"The target given to Binary must be 0, 1 or probabilities between them, or the integer ignore_index "
                    f"{self.ignore_index}. Got {target[wrong].flatten()[0].item()} instead."
                )

    def _both(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The losses of every score for the labels yes and no."""
        if isinstance(self.loss, MarginLoss):
            return self.loss.of_margin(scores, 2), self.loss.of_margin(-scores, 2)
        flat = scores.reshape(-1)
        costs = self.loss.per_class(torch.stack([torch.zeros_like(flat), flat], 1))
        return costs[:, 1].view(scores.shape), costs[:, 0].view(scores.shape)

    def _per_label(self, factors: Tensor, name: str, scores: Tensor) -> Tensor:
        labels = scores.shape[1] if scores.dim() > 1 else 1
        if factors.numel() not in (1, labels):
            raise invalid_parameter(name, "Binary", f"one number, or one for each of the {labels} labels", tuple(factors.tolist()))
        return along_classes(factors, scores) if scores.dim() > 1 else factors
