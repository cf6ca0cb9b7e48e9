"""Curricula: an emphasis that is scaled, shifted, normalised or changed during training; and measures of an emphasis.

A robust loss underfits if its emphasis is almost zero at the margins of the untrained model, like MAE with a hundred classes. Scaling or
shifting the margin moves the emphasis to where the examples are. Curricula are losses, with specs such as ``"scaled(mae, tau=2)"`` and
``"normalised(gr(beta=12, lam=0.5), by='maximum')"``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from noisewise import curve
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import NORMALISATIONS, Loss, MarginLoss, Normalising, get, inner_margin_loss
from noisewise.margin import emphasis, margin
from noisewise.margin import simulated_margins as simulated_margins
from noisewise.spec import as_int, real, setting


def expected_margin(classes: int, std: float = 1.0) -> float:
    """The mean margin before training, when scores are independent N(μ, std²).

    Formula:
        E[Δ] ≈ −log(k − 1) − std²/2 + (exp(std²) − 1) / (2 (k − 1)),  and 0 for k = 2

    The error is below one per cent for ten or more classes and a deviation of at most 1, and 15 % for three classes. If exp(std²) is not
    small compared with k, use the mean of `simulated_margins` instead.

    Example:
        >>> round(expected_margin(10), 3), round(expected_margin(100), 3)
        (-2.602, -5.086)

    Reference:
        A curriculum view of robust loss functions, section 5.1 and appendix C.
    """
    classes = as_int("classes", "expected_margin", classes, 2)
    if classes == 2:
        return 0.0  # the difference of two scores with the same distribution
    return -math.log(classes - 1) - std**2 / 2 + math.expm1(std**2) / (2 * (classes - 1))


@torch.no_grad()
def measured_margin(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The mean margin of a model. Call it before training and pass the result to a curriculum as ``expected``.

    Args:
        model: computes scores. Its mode and its batch statistics are not changed.
        batches: pairs of inputs and class indices.

    Example:
        >>> round(measured_margin(torch.nn.Identity(), [(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))]), 4)
        1.3069
    """
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    total, number = 0.0, 0
    try:
        for inputs, labels in batches:
            margins = margin(model(inputs), labels)
            total, number = total + float(margins.double().sum()), number + margins.numel()
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    if number == 0:
        raise InputError("measured_margin needs at least one example. Got no batches.")
    return total / number


def _expected(value: Any) -> float:
    expected = real(value)
    if not math.isfinite(expected) or expected == 0:
        raise invalid_parameter("expected", "a curriculum", "a finite margin other than 0 (E[Δ] before training)", value)
    return expected


def _below_zero(value: Any) -> float:
    expected = _expected(value)
    if expected > 0:
        raise invalid_parameter("expected", "Scaled", "below 0, like margins before training; use shifted(…) for others", value)
    return expected


class _Moved(MarginLoss):
    """A margin loss at a scaled or shifted margin. The mean margin before training is `expected`, or follows from the number of classes."""

    loss: MarginLoss = setting(check=inner_margin_loss)
    tau: float = setting(bounds="(-inf, inf)")
    expected: float | None = setting(default=None, check=_expected, kw_only=True)
    classes: int | None = setting(default=None, bounds="[2, inf)", integer=True, kw_only=True)

    def start(self, classes: int | None) -> float:
        """−E[Δ], minus the mean margin before training."""
        if self.expected is not None:
            return -self.expected
        known = self.classes if self.classes is not None else classes
        if known == 2:
            advice = f"Got {self!r}; give expected=… if they start elsewhere."
            raise InputError(f"With two classes, margins start at 0, so there is nothing to move. {advice}")
        if known is None:
            raise InputError(f"{type(self).__name__} needs the number of classes. Got {self!r}; give classes=… or expected=….")
        return -expected_margin(known)


class Scaled(_Moved, name="scaled"):
    """A loss whose margins are scaled so that training starts at emphasis w(−tau) instead of w(E[Δ]).

    Formula:
        L(Δ) = l(c Δ) / c,  c = −tau / E[Δ]
        w(Δ) = w_l(c Δ)

    Args:
        loss: a margin loss: a function of the margin alone.
        tau: where the starting margin is moved to.
        expected: E[Δ] before training, measured; by default `expected_margin` of the number of classes.
        classes: the number of classes; by default that of the scores.

    Example:
        >>> from noisewise.curriculum import expected_margin
        >>> Scaled("mae", tau=2.0, classes=100).emphasis(torch.tensor(expected_margin(100)))  # MAE's at Δ = −2
        tensor(0.2100)

    Reference:
        A curriculum view of robust loss functions, section 5.1.1.
    """

    examples = ("scaled(mae, 2.0)", "scaled(gce(q=0.7), 1.0, expected=-3.0)")

    tau: float = setting(bounds="(0, inf)")
    expected: float | None = setting(default=None, check=_below_zero, kw_only=True)

    def factor(self, classes: int | None = None) -> float:
        return self.tau / self.start(classes)

    def value(self, d: Tensor) -> Tensor:
        return self.loss.value(self.factor() * d) / self.factor()

    def emphasis(self, d: Tensor) -> Tensor:
        return self.loss.emphasis(self.factor() * d)

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        factor = self.factor(classes)
        return self.loss.of_margin(factor * d, classes) / factor

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        return self.loss.emphasis_of(self.factor(classes) * d, classes)


class Shifted(_Moved, name="shifted"):
    """A loss whose margins are shifted so that training starts at emphasis w(−tau) instead of w(E[Δ]).

    Formula:
        L(Δ) = l(Δ − E[Δ] − tau)
        w(Δ) = w_l(Δ − E[Δ] − tau)

    Args:
        loss: a margin loss: a function of the margin alone.
        tau: where the starting margin is moved to.
        expected: E[Δ] before training, measured; by default `expected_margin` of the number of classes.
        classes: the number of classes; by default that of the scores.

    Example:
        >>> from noisewise.curriculum import expected_margin
        >>> Shifted("mae", tau=2.0, classes=100).emphasis(torch.tensor(expected_margin(100)))  # MAE's at Δ = −2
        tensor(0.2100)

    Reference:
        A curriculum view of robust loss functions, section 5.1.1.
    """

    examples = ("shifted(mae, 2.0)", "shifted(gce(q=0.7), 1.0, expected=-3.0)")

    def offset(self, classes: int | None = None) -> float:
        return self.start(classes) - self.tau

    def value(self, d: Tensor) -> Tensor:
        return self.loss.value(d + self.offset())

    def emphasis(self, d: Tensor) -> Tensor:
        return self.loss.emphasis(d + self.offset())

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        return self.loss.of_margin(d + self.offset(classes), classes)

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        return self.loss.emphasis_of(d + self.offset(classes), classes)


class Normalised(Normalising, name="normalised"):
    """A loss with a normalised emphasis, so that losses can be compared at the same learning rate.

    Formula:
        w = w_l / sup w_l, w_l / ∫₀¹ w_l dp, or w_l / mean of w_l over the batch
        L = l divided by the same

    Args:
        loss: a margin loss: a function of the margin alone.
        by: "maximum" (all experiments of the curriculum paper), "integral" or "batch" (as in the code of the IMAE
            and GR authors, who take the mean before `saturation` reduces the emphasis).

    Example:
        >>> Normalised("mae", by="maximum").emphasis(torch.tensor(0.0))
        tensor(1.)

    Reference:
        A curriculum view of robust loss functions, section 5.
    """

    examples = ("normalised(mae, by='maximum')", "normalised(gr(beta=12.0, lam=0.5), by='integral')")

    loss: MarginLoss = setting(check=inner_margin_loss)
    by: str = setting(default="maximum", choices=NORMALISATIONS)

    def normalisation(self) -> str:
        return self.by

    def pull(self, d: Tensor) -> Tensor:
        return self.loss.emphasis(d)

    def value(self, d: Tensor) -> Tensor:
        return self.loss.value(d) / self._scale


def _identifier(value: Any) -> str:
    if not isinstance(value, str) or not value.isidentifier():
        raise invalid_parameter("parameter", "Scheduled", "the name of a hyper-parameter", value)
    return value


class Scheduled(MarginLoss, name="scheduled"):
    """A loss with a hyper-parameter that changes over training; `advance` moves it.

    Formula:
        parameter = start + (end − start) shape(progress),  progress from 0 to 1
        w = w_l with that parameter

    Args:
        loss: a margin loss: a function of the margin alone.
        parameter: the name of the hyper-parameter that changes; an integer parameter is rounded.
        start: its value before training.
        end: its value at the end.
        shape: "linear", "cosine" (slow, fast, slow) or "step" (start, then end from the middle on).

    Example:
        >>> from noisewise.curriculum import advance
        >>> loss = Scheduled("imae", "T", 0.5, 8)
        >>> advance(loss, 0.5)
        >>> loss.loss.T
        4.25

    Reference:
        A curriculum view of robust loss functions, section 5 (schedules decide robustness).
    """

    examples = ("scheduled(imae, 'T', 0.5, 8.0)", "scheduled(gce, 'q', 0.3, 0.9, shape='cosine')")

    loss: MarginLoss = setting(check=inner_margin_loss)
    parameter: str = setting(check=_identifier)
    start: float = setting(bounds="(-inf, inf)")
    end: float = setting(bounds="(-inf, inf)")
    shape: str = setting(default="linear", choices=("linear", "cosine", "step"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = self.loss.settings.get(self.parameter)
        if declared is None or declared.bounds is None or declared.kw_only:
            numeric = [key for key, value in self.loss.settings.items() if value.bounds is not None and not value.kw_only]
            raise invalid_parameter(
                "parameter",
                "Scheduled",
                f"a numeric hyper-parameter of {self.loss!r} ({', '.join(numeric) or 'it has none'})",
                self.parameter,
            )
        for value in (self.end, self.start):
            setattr(self.loss, self.parameter, value)

    def advance(self, progress: float) -> None:
        """Set the hyper-parameter to its value at this progress."""
        setattr(self.loss, self.parameter, self._at(progress))

    def _at(self, progress: float) -> float:
        if self.shape == "linear":
            part = progress
        elif self.shape == "cosine":
            part = (1 - math.cos(math.pi * progress)) / 2
        else:
            part = float(progress >= 0.5)
        value = self.start + (self.end - self.start) * part
        return round(value) if self.loss.settings[self.parameter].integer else value

    def _literal(self, key: str) -> Any:
        """The spec shows the loss as it is at progress 0, so that the spec is the same before, during and after training."""
        if key != "loss":
            return super()._literal(key)
        first = copy.copy(self.loss)
        first.__dict__[self.parameter] = self._at(0)
        return first

    def value(self, d: Tensor) -> Tensor:
        return self.loss.value(d)

    def emphasis(self, d: Tensor) -> Tensor:
        return self.loss.emphasis(d)

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        return self.loss.of_margin(d, classes)

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        return self.loss.emphasis_of(d, classes)


def advance(loss: Loss, progress: float) -> None:
    """Set every scheduled hyper-parameter of a loss to its value at this progress, from 0 to 1."""
    if not 0 <= progress <= 1:
        raise invalid_parameter("progress", "advance", "in [0, 1]", progress)
    for part in reversed(list(loss.modules())):  # inner ones first: an outer normalisation depends on them
        if isinstance(part, Scheduled):
            part.advance(progress)
        if isinstance(part, MarginLoss):
            part._settle()


def focus(loss: Loss | str) -> float | None:
    """The p with the largest emphasis; None for a loss that is not a function of p alone.

    Example:
        >>> focus("imae(T=8, saturation=0)"), focus("ce"), round(focus("gce(q=0.7)"), 4)
        (0.5, 0.0, 0.4118)
    """
    loss = get(loss)
    return curve.peak(loss.emphasis)[0] if isinstance(loss, MarginLoss) else None


def spread(loss: Loss | str, scores: Tensor | None = None, target: Tensor | None = None, *, norm: str = "margin") -> float | None:
    """Variance of an emphasis: over uniform p, or over the examples of a batch.

    Args:
        loss: any loss; without a batch, one that is a function of p alone (else None is returned).
        scores: the scores of a batch.
        target: the class indices of the same batch.
        norm: "margin" for the emphasis, "l1" for ‖∂L/∂s‖₁, the IMAE paper's number, four times as large.

    Example:
        >>> round(spread("ce", norm="l1"), 4), round(spread("mae", norm="l1"), 4)
        (0.3333, 0.0889)
    """
    if norm not in ("margin", "l1"):
        raise invalid_parameter("norm", "spread", "one of 'margin', 'l1'", norm)
    if (scores is None) != (target is None):
        raise InputError("The spread over a batch needs both its scores and its target. Got one of them.")
    loss = get(loss)
    if scores is not None and target is not None:
        return float(emphasis(loss, scores, target, norm=norm).double().var(correction=0))
    if not isinstance(loss, MarginLoss):
        return None
    return {"margin": 1.0, "l1": 4.0}[norm] * curve.variance(loss.emphasis)
