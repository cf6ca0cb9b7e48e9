"""Losses that depend on the cost −log p of every class."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.exact import applied, going_forward, is_near, log_softmax, may_overwrite, other_costs, put, seen_finite
from noisewise.losses._at_once import is_plain
from noisewise.losses._base import Loss
from noisewise.losses.ce import CE
from noisewise.losses.focal import Focal

_CROSS_ENTROPY = CE()  # made once: some compilers of torch cannot trace how a module is made


class OverEveryClass(Loss):
    """A function of the cost of the label, −log p_y, and the sum of all log p_i. Subclasses define `of_costs`."""

    def of_scores(self, own: Tensor, scores: Tensor) -> Tensor:
        """The loss for labels with cost `own`, which has the classes, or one entry, in dimension 1."""
        return self.of_costs(own, log_probabilities(scores).sum(1, keepdim=True), scores.shape[1])

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        return self.of_scores(_CROSS_ENTROPY.per_example(scores, target, kept).unsqueeze(1), scores).squeeze(1)

    def per_class(self, scores: Tensor) -> Tensor:
        return self.of_scores(_CROSS_ENTROPY.per_class(scores), scores)


def log_probabilities(scores: Tensor) -> Tensor:
    """log p of every class, accurate enough for sums over the classes; a single value near 0 is exact only as a margin."""
    return scores.log_softmax(1)


class ShareOfCosts(Loss):
    """The label's share of the costs of all classes (Ma et al. 2020). A class costs −(1 − p)^q log p.

    A class masked by a score of −inf costs inf as the label, and is ignored otherwise.
    """

    q = 0.0

    def per_class(self, scores: Tensor) -> Tensor:
        return self.of_every_class((Focal(q=self.q) if self.q > 0 else _CROSS_ENTROPY).per_class(scores))

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        if going_forward():
            return super().per_example(scores, target, kept)
        label = target.unsqueeze(1)
        if scores.shape[1] > 2 and type(self).of_label in _KNOWN and is_plain(scores, target):
            rows = applied(_AtOnce, scores, label, self)
            if rows is not None:
                return rows.squeeze(1)  # type: ignore[no-any-return]
        return self.of_any_label(scores, label).squeeze(1)

    def of_any_label(self, scores: Tensor, label: Tensor) -> Tensor:
        """The loss of labels, which keep dimension 1, for any scores and differentiable to any order."""
        d, costs, softmax = other_costs(scores, label)
        masked = None if seen_finite(costs) and seen_finite(d) else costs == torch.inf
        if masked is not None:
            gone, costs = d == -torch.inf, costs.masked_fill(masked, 0.0)
            d = d.masked_fill(gone, 0.0)
        own = -logsigmoid(d)
        if self.q > 0:
            p, rest = d.detach().sigmoid(), (-d.detach()).sigmoid()
            own = applied(_Focal, own, rest, self.q)
            costs = applied(_Focal, costs, put((1 - softmax).mul_(rest).add_(p), label, torch.zeros_like(p)), self.q)
        value = self.of_label(own, costs, label, masked)
        return value if masked is None else value.masked_fill(gone, torch.inf)

    def of_every_class(self, costs: Tensor) -> Tensor:
        """The loss of every class as the label, from the costs of all classes, (N, C, …)."""
        return shares(costs)

    def of_label(self, own: Tensor, others: Tensor, label: Tensor, masked: Tensor | None) -> Tensor:
        """The loss of labels, which keep dimension 1, from their costs and those of the others (0 for labels and masked classes)."""
        return share(own, others.sum(1, keepdim=True))


class ActiveNegative(ShareOfCosts):
    """An active negative loss (Ye et al. 2023): `alpha` times the label's share of all costs, plus `beta` times a negative part.

    The negative part is 1 minus the label's share of the room that every class has up to the cost of probability `p_min`.
    """

    alpha: float = 5.0
    beta: float = 5.0
    p_min: float = 1e-7

    def of_every_class(self, costs: Tensor) -> Tensor:
        self._check_p_min(costs.shape[1])
        return self.alpha * shares(costs) + self.beta * (1 - shares(self._room(costs)))

    def of_label(self, own: Tensor, others: Tensor, label: Tensor, masked: Tensor | None) -> Tensor:
        self._check_p_min(others.shape[1])
        active = super().of_label(own, others, label, masked)
        room = self._room(others).scatter(1, label, 0.0)
        room = room if masked is None else room.masked_fill(masked, 0.0)
        return self.alpha * active + self.beta * (1 - share(self._room(own), room.sum(1, keepdim=True)))

    def _check_p_min(self, classes: int) -> None:
        """Warn once per loss and number of classes if p_min ≥ 1 / classes, where the share can be 0 / 0."""
        if self.beta == 0 or self.p_min * classes < 1 or torch.compiler.is_compiling():
            return
        warned: set[int] = self.__dict__.setdefault("_warned_of", set())
        if classes not in warned:
            warned.add(classes)
            text = f"The gradient of {self!r} is singular with {classes} classes, which can all have a probability of p_min or less"
            warnings.warn(f"{text}; choose p_min below 1/{classes} = {1 / classes:.3g}.", stacklevel=2)

    def _room(self, costs: Tensor) -> Tensor:
        """The difference between the cost of a class with probability `p_min` and these costs, at least 0."""
        return (self.largest_cost() - costs).relu()

    def largest_cost(self) -> float:
        """The cost of a class with probability `p_min`."""
        return -math.pow(1 - self.p_min, self.q) * math.log(self.p_min)


def shares(costs: Tensor) -> Tensor:
    """Every class's share of all costs. Infinite costs are ignored; the shares of zero costs are 0."""
    masked = None if seen_finite(costs) else costs == torch.inf
    finite = costs if masked is None else costs.masked_fill(masked, 0.0)
    parts = fraction(finite, finite.sum(1, keepdim=True))
    return parts if masked is None else parts.masked_fill(masked, torch.inf)


def fraction(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, or 0 if both are 0."""
    return part / torch.where(whole == 0, 1.0, whole)


def share(own: Tensor, rest: Tensor) -> Tensor:
    """own / (own + rest), or 0 if both are 0, with a gradient that does not cancel."""
    return applied(_Share, own, rest)  # type: ignore[no-any-return]


class _Share(torch.autograd.Function):
    """own / (own + rest), with derivatives rest / (own + rest)² and −own / (own + rest)²."""

    generate_vmap_rule = True

    @staticmethod
    def forward(own: Tensor, rest: Tensor) -> Tensor:
        return fraction(own, own + rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        own, rest = ctx.saved_tensors
        total = own + rest
        total = torch.where(total == 0, 1.0, total)
        return grad * (rest / total) / total, -grad * (own / total) / total


class _Focal(torch.autograd.Function):
    """(1 − p)^q times the cost −log p of a class, given 1 − p; 0 for a class without cost."""

    generate_vmap_rule = True

    @staticmethod
    def forward(costs: Tensor, rest: Tensor, q: float) -> Tensor:
        return rest.pow(q).mul_(costs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        costs, rest, ctx.q = inputs
        ctx.save_for_backward(costs, rest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        costs, rest = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return grad * _Focal.slope(costs, rest.clamp(min=torch.finfo(rest.dtype).tiny), ctx.q), None, None
        free = costs == 0
        costs = costs.masked_fill(free, 1.0)
        return grad * _Focal.slope(costs, -(-costs).expm1(), ctx.q).masked_fill(free, 0.0), None, None

    @staticmethod
    def slope(costs: Tensor, rest: Tensor, q: float) -> Tensor:
        """(1 − p)^q (1 − q p / (1 − p) · log p)."""
        power = rest.pow(q)
        return torch.addcmul(power, power, costs / rest - costs, value=q)


class _AtOnce(torch.autograd.Function):
    """The losses of labels from their scores in one step of autograd; None if a softmax underflows or a class is masked.

    With E_j ≥ 0, minus the derivative by the cost of class j ≠ y, and g, the derivative by the margin with these costs fixed, the gradient
    is g − p_y Σ E for the label and E_j − r_j (g + (1 − p_y) Σ E) for another class, where r_j is its share of 1 − p_y. An error of E_j
    cancels if p_j is almost 1. With two classes it would matter that a cost near 0 is not exact, so there must be more.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor, loss: Any) -> Tensor | None:
        log_p = log_softmax(scores)
        every_cost = loss.q > 0 or isinstance(loss, ActiveNegative)
        whole = None if every_cost else -log_p.sum(1, keepdim=True)
        p = log_p.exp() if every_cost else log_p.exp_()
        own = p.gather(1, label)
        nothing = torch.zeros_like(own)
        total = p.scatter_(1, label, nothing).sum(1, keepdim=True)
        d = (own / total).log_()
        cost, slopes = -logsigmoid(d), None
        if whole is not None:
            others = whole - cost
        else:
            log_p.scatter_(1, label, nothing)
            if loss.q > 0:
                slopes = _weigh(log_p, p, loss.q)
                cost = (-d).sigmoid().pow_(loss.q).mul_(cost)
            others = -log_p.sum(1, keepdim=True)
        if not (is_near(d) and math.isfinite(float(others.sum()))):
            return None
        value = cost / (cost + others)
        negative: list[Tensor] = []
        if isinstance(loss, ActiveNegative):
            part, *negative = _negative(loss, cost, log_p, label)
            value = loss.alpha * value + loss.beta * part
        ctx.loss = loss
        ctx.save_for_backward(scores, label, d, p, total, slopes, cost, others, *negative)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        scores, label, d, p, total, slopes, cost, others, *negative = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives
            values = ctx.loss.of_any_label(scores, label)
            return torch.autograd.grad(values, scores, grad, create_graph=True)[0], None, None
        in_place, factor = may_overwrite(grad), grad / (cost + others).square()
        by_own, each = factor * others, factor * cost
        pulls = each
        if negative:
            inside, by_own_room, by_room = negative
            loss = ctx.loss
            by_own = loss.alpha * by_own + loss.beta * grad * by_own_room
            each = loss.alpha * each
            pulls = torch.where(inside, each + loss.beta * grad * by_room, each)
        if slopes is not None:
            pulls = slopes.mul_(pulls) if in_place else slopes * pulls
        # E is `pulls`, which is `each` at the label
        sum_of_pulls = (p.shape[1] - 1) * each if pulls is each else pulls.sum(1, keepdim=True) - each
        rest = (-d).sigmoid()
        by_margin = -rest * by_own
        if slopes is not None:
            by_margin = by_margin * _Focal.slope(-logsigmoid(d), rest, ctx.loss.q)
        own = by_margin - d.sigmoid() * sum_of_pulls
        factor = (by_margin + rest * sum_of_pulls) / -total
        return put(p.mul_(factor).add_(pulls) if in_place else p * factor + pulls, label, own), None, None


def _weigh(log_p: Tensor, p: Tensor, q: float) -> Tensor:
    """Multiply log p by (1 − p)^q, in place, and return the derivatives of the products by log p."""
    rest = (1 - p).clamp_(min=torch.finfo(p.dtype).eps / 2)
    power = rest.pow(q)
    log_p.mul_(power)
    return power.sub_((log_p * p).div_(rest), alpha=q)


def _negative(loss: ActiveNegative, own: Tensor, others: Tensor, label: Tensor) -> tuple[Tensor, ...]:
    """The negative part from the label's cost and minus the others', where these have room, and its derivatives by both."""
    loss._check_p_min(others.shape[1])
    most = loss.largest_cost()
    own_room, room = (most - own).relu_(), (others + most).relu_()
    rest = room.scatter_(1, label, torch.zeros_like(own)).sum(1, keepdim=True)
    whole = own_room + rest
    empty = whole == 0
    whole = whole + empty
    square = whole.square()
    return (rest + empty) / whole, room > 0, (rest / square) * (own_room > 0), own_room / square


_KNOWN = (ShareOfCosts.of_label, ActiveNegative.of_label)
"""The rules that `_AtOnce` has derivatives of."""
