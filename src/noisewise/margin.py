"""The margin, and the emphasis a loss puts on it. Read this first.

A classifier computes scores `s`, one per class; an example has the label `y`. Its margin is the score of the label minus the logsumexp of
the other scores:

    Δ = s_y − log Σ_{i≠y} exp(s_i)          p_y = sigmoid(Δ)

Every loss that depends on `p_y` alone pulls an example in the direction of its margin's gradient. Losses differ only in how hard they
pull, which is their emphasis:

    ∂L/∂s = −w(Δ) · ∂Δ/∂s                   w(Δ) = −dL/dΔ ≥ 0,        ‖∂Δ/∂s‖₁ = 2

`exact.py` computes the margin exactly in every precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from noisewise.checks import check_labels, check_scores, class_dim
from noisewise.errors import invalid_parameter
from noisewise.exact import at_least_float, margin_of

_DRAWN = 1 << 25
"""The largest number of scores to draw: examples times classes."""

_DRAWN_AT_ONCE = 1 << 20
_FEWEST = 64  # examples with their own scores, if there are very many classes


def margin(scores: Tensor, target: Tensor) -> Tensor:
    """Margin of the labelled class: Δ = s_y − logsumexp of the other scores, so that p_y = sigmoid(Δ).

    Exact in every precision and for any scores. Scores in half precision give a float32 margin.

    Args:
        scores: (C,), (N, C) or (N, C, d1, …).
        target: class indices, shaped like the scores without their class dimension.

    Returns:
        The margins, shaped like `target`.

    Example:
        >>> margin(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor([1.3069])
    """
    check_scores(scores, "margin")
    check_labels(scores, target, "margin")
    dim = class_dim(scores)
    return margin_of(scores, target.long().unsqueeze(dim), dim)[0].squeeze(dim)


def margins(scores: Tensor) -> Tensor:
    """Margins of every class as the label, shaped like the scores.

    Example:
        >>> margins(torch.tensor([[2.0, 0.0, 0.0]])).sigmoid()
        tensor([[0.7870, 0.1065, 0.1065]])
    """
    check_scores(scores, "margins")
    dim = class_dim(scores)
    scores = at_least_float(scores)
    highest, winner = scores.detach().max(dim, keepdim=True)
    above = scores - highest
    each = above.exp()
    # The others of any class but the winner include the winner, so nothing cancels in this difference.
    others = each.sum(dim, keepdim=True) - each.scatter(dim, winner, 0.0)
    return (above - others.log()).scatter(dim, winner, margin_of(scores, winner, dim)[0])


def margin_of_log_prob(log_prob: Tensor) -> Tensor:
    """Margins of labels from their log-probabilities: Δ = log p − log(1 − p), without computing 1 − p as a difference.

    A p that rounds to one counts as the largest p below one by a quarter of the precision of the type.

    Args:
        log_prob: log p, of any shape.

    Example:
        >>> margin_of_log_prob(torch.tensor([0.25, 0.5]).log()).exp()
        tensor([0.3333, 1.0000])
    """
    info = torch.finfo(log_prob.dtype)
    log_prob = log_prob.clamp(info.min, -info.eps / 4)
    rest = torch.where(log_prob > -math.log(2), (-log_prob.expm1()).log(), (-log_prob.exp()).log1p())
    return log_prob - rest


def emphasis(loss: Callable[..., Tensor], scores: Tensor, target: Tensor, *, norm: str = "margin") -> Tensor:
    """How hard a loss pulls each example: half the L1 norm of its gradient with respect to the scores.

    It works for any criterion, by differentiating it. If the criterion has a `reduction` attribute, it is set to "none"; a criterion
    that returns a single number is assumed to be a mean over the examples.

    Args:
        loss: a criterion called as ``loss(scores, target)``.
        scores: (C,), (N, C) or (N, C, d1, …).
        target: what the criterion takes: class indices or class probabilities.
        norm: "margin" for the emphasis w = −dL/dΔ (curriculum paper), "l1" for ‖∂L/∂s‖₁ (IMAE and GR papers), twice as much.

    Returns:
        One number per example (shaped like the scores without their class dimension).

    Example:
        >>> scores, target = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])
        >>> emphasis(torch.nn.CrossEntropyLoss(), scores, target)
        tensor([0.2130])
        >>> 1 - scores.softmax(1)[0, 0]
        tensor(0.2130)
    """
    if norm not in ("margin", "l1"):
        raise invalid_parameter("norm", "emphasis", "one of 'margin', 'l1'", norm)
    if not callable(loss):
        raise invalid_parameter("loss", "emphasis", "a criterion, such as noisewise.get('ce')", loss)
    check_scores(scores, "emphasis")
    scale = {"margin": 0.5, "l1": 1.0}[norm]
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        loss = copy.copy(loss)
        loss.reduction = "none"  # type: ignore[assignment]
    with torch.enable_grad():
        leaf = at_least_float(scores.detach()).requires_grad_()
        values = loss(leaf, target)
        examples = scores.numel() // scores.shape[class_dim(scores)]
        total = values.sum() if values.dim() else values * examples
        (grad,) = torch.autograd.grad(total, leaf)
    return scale * grad.abs().sum(class_dim(scores))


def simulated_margins(classes: int, std: float = 1.0, samples: int = 100_000, seed: int = 0) -> Tensor:
    """Margins of examples whose scores are independent N(0, std²), as at the start of training.

    With very many classes, the other classes' scores are drawn for a few examples and reused for the rest, because they hardly differ.

    Example:
        >>> round(float(simulated_margins(10).mean()), 1)
        -2.6
    """
    generator = torch.Generator().manual_seed(seed)
    number, rows = samples if samples * classes <= _DRAWN else min(samples, _FEWEST), _DRAWN_AT_ONCE // classes
    rows = min(4096, rows - rows % 16 if rows >= 16 else max(1, rows))  # torch draws 16 numbers at a time
    margins, own = torch.empty(number, dtype=torch.float64), torch.empty(number, dtype=torch.float64)
    for start in range(0, number, rows):
        part = slice(start, min(start + rows, number))
        scores = std * torch.randn(part.stop - start, classes, generator=generator, dtype=torch.float64)
        labels = torch.zeros(len(scores), 1, dtype=torch.int64)
        margins[part], own[part] = margin_of(scores, labels, 1)[0].squeeze(1), scores[:, 0]
    others = (own - margins)[torch.arange(samples - number) % number]
    return torch.cat([margins, std * torch.randn(samples - number, generator=generator, dtype=torch.float64) - others])
