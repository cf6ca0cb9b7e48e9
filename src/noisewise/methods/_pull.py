"""The gradient of a loss with respect to the scores, computed in the fastest way that the loss allows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor

from noisewise.exact import margin_of
from noisewise.kernels import loss_and_gradient, usable
from noisewise.losses import Adaptive, Loss, MarginLoss, before_batch_normalisation
from noisewise.margin import margin


class Pull(NamedTuple):
    """What a batch does to the scores of one network.

    Args:
        gradient: of the sum of the losses with respect to the scores, (n, classes).
        value: the loss of every example, (n,), or their sum; None if it follows from the margins.
        margin: the margins of the given labels, if they are known; not finite if the loss is not.
        emphasis: how hard every example pulls, if it is known: half the L1 norm of its gradient.
    """

    gradient: Tensor
    value: Tensor | None
    margin: Tensor | None = None
    emphasis: Tensor | None = None

    def weighted(self, weights: Tensor) -> Pull:
        """The pull of examples that count more or less; the values of their losses stay as they are."""
        emphasis = None if self.emphasis is None else self.emphasis * weights
        return self._replace(gradient=self.gradient * weights.unsqueeze(1), emphasis=emphasis)


class LossPull:
    """Computes the `Pull` of a loss.

    Args:
        loss: the loss, with reduction "mean".
        accumulates: whether a batch is processed in parts.
    """

    def __init__(self, loss: Loss, accumulates: bool = False) -> None:
        self.loss = loss
        # A function of the margin needs no autograd: its emphasis is its gradient, and its value is computed later from the margins.
        plain = loss.adapts or (isinstance(loss, MarginLoss) and type(loss).of_margin is MarginLoss.of_margin)
        self.by_emphasis = plain and not (loss.contract or loss.depends_on_batch)
        # A kernel has the hyper-parameters as constants, but reads those of an adaptive loss from its buffer `now`. A loss that is
        # normalised over the batch needs no autograd either, if a kernel computes emphasis and value together.
        if isinstance(loss, Adaptive):
            self.by_kernel = loss.now is not None
        else:
            self.by_kernel = self.by_emphasis or not (accumulates or loss.contract or before_batch_normalisation(loss) is None)

    def __call__(self, scores: Tensor, labels: Tensor) -> Pull:
        """The pull of a batch. The value is a sum, or None."""
        if self.by_kernel and usable(scores):
            pull = self._by_kernel(scores, labels)
            return pull._replace(value=pull.value.double().sum())  # type: ignore[union-attr]
        return self._by_emphasis(scores, labels) if self.by_emphasis else self._by_differentiation(scores, labels)

    def rows(self, scores: Tensor, labels: Tensor) -> Pull:
        """The pull of a batch with the loss of every example. The loss must not depend on the rest of the batch."""
        if self.by_kernel and usable(scores):
            return self._by_kernel(scores, labels)
        if self.by_emphasis:
            pull = self._by_emphasis(scores, labels)
            return pull._replace(value=self.loss.of_margin(pull.margin, scores.shape[1]))  # type: ignore[operator]
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            values = self._each()(leaf, labels)
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return Pull(gradient, values.detach())

    def _each(self) -> Loss:
        loss = copy.copy(self.loss)
        loss.reduction = "none"
        return loss

    @torch.no_grad()
    def _by_kernel(self, scores: Tensor, labels: Tensor) -> Pull:
        result = loss_and_gradient(self._each(), scores, labels)
        return Pull(result.gradient, result.value, result.margin, result.emphasis)

    def _by_emphasis(self, scores: Tensor, labels: Tensor) -> Pull:
        return of_emphasis(scores, labels, partial(cast(MarginLoss, self.loss).emphasis_of, classes=scores.shape[1]))

    def _by_differentiation(self, scores: Tensor, labels: Tensor) -> Pull:
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            value = self.loss(leaf, labels)
            (gradient,) = torch.autograd.grad(value, leaf)
        number = self._number(labels)
        value = value.detach()
        return Pull(gradient * number, value.double() * number, margin(scores, labels) + 0 * value)  # the margin is NaN if the loss is

    def _number(self, labels: Tensor) -> float | Tensor:
        """What the mean of a batch was divided by."""
        weight, ignored = self.loss.weight, self.loss.ignore_index
        if not {"weight", "ignore_index"} & self.loss.contract.keys():
            return len(labels)
        kept = labels != ignored
        return (kept if weight is None else kept * weight[labels.masked_fill(~kept, 0)]).sum()


@torch.no_grad()
def of_emphasis(scores: Tensor, labels: Tensor, emphasis_at: Callable[[Tensor], Tensor]) -> Pull:
    """The pull of a batch, without its value, if the emphasis is a function of the margins, (n, 1)."""
    label = labels.unsqueeze(1)
    margins, pull = margin_of(scores, label, 1)
    emphasis = emphasis_at(margins)
    gradient = pull * (emphasis / pull.sum(1, keepdim=True)).nan_to_num(0.0, 0.0)
    return Pull(gradient.scatter_(1, label, -emphasis), None, margins.squeeze(1), emphasis.squeeze(1))
