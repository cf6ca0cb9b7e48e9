"""The base classes of losses, which share the contract of `torch.nn.CrossEntropyLoss`.

A call checks its input, computes one number per example, and reduces. A subclass defines only the middle step:

- a `MarginLoss` defines `value(d)` or `emphasis(d)` of the margin, or both;
- any other `Loss` defines `per_class(scores)`, the loss of each class as the label.
"""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from noisewise.checks import check_labels, check_scores, check_some, class_dim
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import applied, at_least_float, autocasts, can_keep, going_forward, margin_of, seen_finite
from noisewise.extensions import extension
from noisewise.losses._at_once import at_once, is_plain
from noisewise.margin import margins
from noisewise.potential import Potential
from noisewise.spec import Named, Registry, as_int, real, setting

registry: Registry[Loss] = Registry("loss")
"""The losses by name."""

CONTRACT = ("weight", "ignore_index", "reduction", "label_smoothing")
"""The settings that every loss shares with `torch.nn.CrossEntropyLoss`."""

_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") not in ("0", "")  # run kernels on the CPU, for tests


def _class_weight(value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.get_default_dtype())
    except (TypeError, ValueError, RuntimeError):
        raise invalid_parameter("weight", "a loss", "a sequence of one number per class", value) from None
    if tensor.dim() != 1 or not tensor.is_floating_point():
        raise invalid_parameter("weight", "a loss", "a floating-point sequence of one number per class", tensor)
    return tensor


def _ignored(value: Any) -> int:
    return as_int("ignore_index", "a loss", value)


class Loss(Named, nn.Module, registry=registry):
    """A drop-in for `torch.nn.CrossEntropyLoss`.

    Args:
        weight: one factor per class; a "mean" then divides by the factors used, as torch does.
        ignore_index: examples with this label are ignored. If no example is left, a "mean" is 0 (torch: NaN).
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target that is spread over all classes, from 0 to 1.
    """

    examples: ClassVar[tuple[str, ...]] = ()

    adapts: ClassVar[bool] = False
    """Whether the loss changes during training by what it sees. Such a loss is an `Adaptive`."""

    weight: Tensor | None = setting(default=None, check=_class_weight, kw_only=True)
    ignore_index: int = setting(default=-100, check=_ignored, kw_only=True)
    reduction: str = setting(default="mean", choices=("mean", "sum", "none"), kw_only=True)
    label_smoothing: float = setting(default=0.0, bounds="[0, 1]", kw_only=True)

    costs_are_current: ClassVar[bool] = False
    """Whether no subclass has overridden another rule after `of_costs`; set here because torch.compile cannot look it up."""

    goes_at_once: ClassVar[bool] = False
    """Whether the loss is what `of_margin` and `emphasis_of` say, so that a plain batch can be computed at once."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        rules = {"of_costs", "of_label", "of_scores", "per_example"} & vars(cls).keys()
        cls.costs_are_current = "of_costs" in rules if rules else cls.costs_are_current
        if "emphasis_of" in vars(cls) or {"of_margin", "per_example"} & vars(cls).keys():
            cls.goes_at_once = vars(cls).get("goes_at_once", "emphasis_of" in vars(cls))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("weight", self.__dict__.pop("weight"))

    def per_class(self, scores: Tensor) -> Tensor:
        """The loss of every class as the label, shaped like the scores, (N, C, …)."""
        raise NotImplementedError(f"{type(self).__name__} must define per_class, or value or emphasis if it is a MarginLoss")

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        """The loss of the given labels, shaped like the target, (N, …). Results where `kept` is false are ignored."""
        return self.per_class(scores).gather(1, target.unsqueeze(1)).squeeze(1)

    def of_costs(self, own: Tensor, total: Tensor, classes: float) -> Tensor:
        """The loss as a function of the label's cost −log p_y and `total` = Σ_i log p_i, if it depends on nothing else. Kernels use it."""
        raise NotImplementedError

    @property
    def is_of_costs(self) -> bool:
        """Whether `of_costs` can be used with the current hyper-parameters."""
        return self.costs_are_current

    @property
    def of_classes(self) -> bool:
        """Whether an example has one score per class and one label. False for `Binary`, where every score has a label."""
        return type(self).per_class is not Loss.per_class or type(self).per_example is not Loss.per_example

    @property
    def depends_on_batch(self) -> bool:
        """Whether the loss of an example depends on the rest of its batch."""
        return False

    @property
    def has_curve(self) -> bool:
        """Whether the emphasis is one function of the margin, the same in every batch and epoch."""
        return isinstance(self, MarginLoss) and not (self.depends_on_batch or self.adapts)

    @property
    def is_of_margin(self) -> bool:
        """Whether the loss of an example is a function of its margin alone; false with class weights and smoothed labels."""
        return self.has_curve and self.weight is None and self.label_smoothing == 0

    def forward(self, scores: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        """Loss of a batch.

        Args:
            scores: (C,), (N, C) or (N, C, d1, …), in any floating-point type. Arithmetic is at least float32.
            target: class indices, or class probabilities shaped like the scores. With probabilities `q` the loss is the expectation
                Σ_c q_c L(scores, c).
            sample_weight: a factor per example, shaped (N,) or like the target. An example with weight two counts twice, also in the
                "mean".

        Returns:
            One number, or one per example with reduction "none", in the type that `nn.CrossEntropyLoss` returns.
        """
        if sample_weight is None and self.goes_at_once and is_plain(scores, target) and self._is_plain(scores.shape[1]):
            return at_once(self, scores, target)
        return self._loss(scores, target, sample_weight)

    def _is_plain(self, classes: int) -> bool:
        """Whether the loss has no settings for which `at_once` is not made."""
        own = self.__dict__
        return (
            own["_buffers"]["weight"] is None
            and own["label_smoothing"] == 0
            and not 0 <= own["ignore_index"] < classes
            and not self.depends_on_batch
            and not own["_parameters"]
            and all(map(_goes_at_once, own["_modules"].values()))
        )

    def _loss(
        self,
        scores: Tensor,
        target: Tensor,
        sample_weight: Tensor | None,
        common: Tensor | None = None,
        input_type: torch.dtype | None = None,
    ) -> Tensor:
        """Check, compute, reduce.

        Args:
            common: a term of every example's loss that does not depend on its label.
            input_type: the type of the original scores if they were converted; it decides the type of the result.
        """
        name = type(self).__name__
        check_scores(scores, name)
        soft = isinstance(target, Tensor) and target.is_floating_point()
        result_type = input_type or scores.dtype
        if soft:
            result_type = torch.promote_types(result_type, target.dtype)
        if autocasts(scores):
            result_type = torch.promote_types(result_type, torch.float32)
        if soft:
            self._check_probabilities(scores, target)
            some_ignored = False
        else:
            some_ignored = check_labels(scores, target, name, self.ignore_index)
        self.check_weight(scores.shape[class_dim(scores)])
        if not soft and common is None and scores.numel() and (scores.is_cuda or _INTERPRETED):
            fused = extension("fused loss")(self, scores, target, sample_weight)
            if fused is not None:
                return fused  # type: ignore[no-any-return]
        single = scores.dim() == 1
        scores = at_least_float(scores)
        if single:
            scores, target = scores.unsqueeze(0), target.unsqueeze(0)
            common = None if common is None else common.unsqueeze(0)
        if self.reduction == "mean":
            check_some(scores, name)
        if soft:
            rows, counted = self._expected(scores, target, common), None
        else:
            rows, counted = self._labelled(scores, target.long(), some_ignored, common)
        return self._reduce(*self._weighted(rows, counted, sample_weight), single).to(result_type)

    def check_weight(self, classes: int) -> None:
        """Refuse a weight that does not have one number per class."""
        if self.weight is not None and len(self.weight) != classes:
            raise invalid_parameter(
                "weight", type(self).__name__, f"one number for each of the {classes} classes", tuple(self.weight.shape)
            )

    def _check_probabilities(self, scores: Tensor, target: Tensor) -> None:
        name = type(self).__name__
        if target.shape != scores.shape:
            raise InputError(
                f"The target given to {name} must be class indices (integers), or class probabilities shaped like the scores, "
                f"{tuple(scores.shape)}. Got {target.dtype} shaped {tuple(target.shape)} instead."
            )
        if self.ignore_index >= 0:
            raise invalid_parameter("ignore_index", name, "negative when the target is class probabilities", self.ignore_index)

    def _labelled(self, scores: Tensor, target: Tensor, some_ignored: bool, common: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """One loss per example from class indices, and how much each counts in a mean (None: one each)."""
        kept = target != self.ignore_index if some_ignored else None
        if kept is not None:
            target = target.masked_fill(~kept, 0)
        rows = self.per_example(scores, target, kept)
        if common is not None:
            rows = rows + common
        counted = None
        if self.weight is not None:
            counted = self.weight.to(rows.dtype)[target]
            rows = rows * counted
        if self.label_smoothing > 0:
            uniform = torch.full_like(scores, 1 / scores.shape[1])
            rows = (1 - self.label_smoothing) * rows + self.label_smoothing * self._average(scores, uniform, common)
        if kept is not None:
            rows = rows.masked_fill(~kept, 0.0)
            counted = kept.to(rows.dtype) if counted is None else counted.masked_fill(~kept, 0.0)
        return rows, counted

    def _expected(self, scores: Tensor, target: Tensor, common: Tensor | None) -> Tensor:
        target = target.to(scores.dtype)
        if self.label_smoothing > 0:
            target = (1 - self.label_smoothing) * target + self.label_smoothing / scores.shape[1]
        return self._average(scores, target, common)

    def _average(self, scores: Tensor, probabilities: Tensor, common: Tensor | None) -> Tensor:
        """Σ_c q_c weight_c L(scores, c). A class with probability zero adds nothing, even if its loss is infinite."""
        values = self.per_class(scores)
        if common is not None:
            values = values + common.unsqueeze(1)
        if self.weight is not None:
            probabilities = probabilities * along_classes(self.weight.to(values.dtype), values)
        if not seen_finite(values):
            values = values.masked_fill((probabilities == 0) & ~values.isfinite(), 0.0)
        return (probabilities * values).sum(1)

    def _weighted(self, rows: Tensor, counted: Tensor | None, sample_weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Losses times the sample weights, and how much each counts in a mean."""
        if sample_weight is None:
            return rows, counted
        spread = self._spread(sample_weight, rows)
        return rows * spread, spread.expand_as(rows) if counted is None else counted * spread

    def _spread(self, sample_weight: Tensor, rows: Tensor) -> Tensor:
        weight = torch.as_tensor(sample_weight, dtype=rows.dtype, device=rows.device)
        if weight.shape == rows.shape or (weight.dim() == 0 and rows.shape == (1,)):
            return weight.view(rows.shape)
        if weight.dim() == 1 and weight.shape[0] == rows.shape[0]:
            return weight.view(-1, *[1] * (rows.dim() - 1))
        raise invalid_parameter(
            "sample_weight", type(self).__name__, f"shaped ({rows.shape[0]},) or {tuple(rows.shape)}", tuple(weight.shape)
        )

    def _reduce(self, rows: Tensor, counted: Tensor | None, single: bool) -> Tensor:
        if self.reduction == "none":
            return rows.squeeze(0) if single else rows
        if self.reduction == "sum":
            return rows.sum()
        if counted is None:
            return rows.mean()
        number = counted.sum()
        return rows.sum() / torch.where(number == 0, 1.0, number)

    def _literal(self, key: str) -> Any:
        value = getattr(self, key)
        return tuple(value.tolist()) if key == "weight" and value is not None else value

    @property
    def contract(self) -> dict[str, Any]:
        """The settings shared with `nn.CrossEntropyLoss`, where they differ from their defaults."""
        values = {key: self._literal(key) for key in CONTRACT}
        return {key: value for key, value in values.items() if value != self.settings[key].default}

    def __mul__(self, factor: float) -> Loss:
        return _combine([(_factor(factor), self)])

    __rmul__ = __mul__

    def __add__(self, other: Loss) -> Loss:
        if not isinstance(other, Loss):
            return NotImplemented
        return _combine([(1.0, self), (1.0, other)])


class MarginLoss(Loss):
    """A loss that is a function of the margin alone. Define `value` or `emphasis`, or both.

    Example:
        >>> class Unhinged(MarginLoss):
        ...     def emphasis(self, d):
        ...         return torch.sigmoid(d) * torch.sigmoid(-d)
        >>> Unhinged()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-0.2870)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind = type(self)
        if kind.value is MarginLoss.value and kind.emphasis is MarginLoss.emphasis:
            raise TypeError(f"{kind.__name__} must define value or emphasis")
        self._settle()

    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(key, value)
        if key in self.settings and key not in CONTRACT and "_potential" in self.__dict__:
            self._settle()

    def _settle(self) -> None:
        """Compute what depends on the hyper-parameters; called when they are set."""
        self._potential: Potential | None = None if self._has_closed_form() else Potential(self.emphasis)

    def _has_closed_form(self) -> bool:
        return type(self).value is not MarginLoss.value

    def value(self, d: Tensor) -> Tensor:
        """The loss at margin `d`. By default minus the integral of the emphasis from 0."""
        assert self._potential is not None
        return self._potential(d)

    def emphasis(self, d: Tensor) -> Tensor:
        """The emphasis at margin `d`. By default minus the derivative of the value."""
        if can_keep() and not going_forward():
            return _minus_slope(self.value, d)
        pullback = torch.func.vjp(self.value, d)[1]
        (slope,) = pullback(torch.ones_like(d))
        return -slope  # type: ignore[no-any-return]

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        """The loss at margin `d`, given the number of classes. Its derivatives are those of minus the emphasis."""
        if type(self).emphasis is MarginLoss.emphasis:
            return self.value(d)
        if going_forward():
            return _expanded(d, self)
        if not torch.is_grad_enabled():
            return self.value(d)
        return applied(Descent, d, self, None)  # type: ignore[no-any-return]

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        """The emphasis at margin `d`, given the number of classes. A subclass that overrides `of_margin` also overrides this."""
        return self.emphasis(d)

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        return self.of_margin(margin_of(scores, target.unsqueeze(1), 1)[0].squeeze(1), scores.shape[1])

    def per_class(self, scores: Tensor) -> Tensor:
        return self.of_margin(margins(scores), scores.shape[1])


def _minus_slope(value: Callable[[Tensor], Tensor], d: Tensor) -> Tensor:
    """Minus the derivative of a function of each margin, in eager mode, where torch.func would take ten times as long."""
    again = torch.is_grad_enabled() and d.requires_grad
    with torch.enable_grad():
        leaf = d if again else d.detach().requires_grad_()
        values = value(leaf)
        if not values.requires_grad:
            return torch.zeros_like(d)
        (slope,) = torch.autograd.grad(values, leaf, torch.ones_like(d), create_graph=again)
    return -slope


class Descent(torch.autograd.Function):
    """The loss value, with minus the emphasis as its derivative.

    A second tensor, `extra`, is passed to both and gets no gradient. torch.compile cannot trace a variable number of arguments.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, loss: Any, extra: Tensor | None) -> Tensor:
        return loss.value(d) if extra is None else loss.value(d, extra)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Any, Tensor | None], output: Tensor) -> None:
        d, ctx.loss, extra = inputs
        ctx.save_for_backward(d, extra)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        d, extra = ctx.saved_tensors
        return -grad * (ctx.loss.emphasis(d) if extra is None else ctx.loss.emphasis(d, extra)), None, None


_NODES = 0.5 - 0.5 / math.sqrt(3), 0.5 + 0.5 / math.sqrt(3)  # of Gauss–Legendre quadrature on [0, 1]


def _expanded(d: Tensor, loss: MarginLoss) -> Tensor:
    """The loss value at `d`, with forward-mode derivatives from the emphasis.

    The derivatives of `value` would vanish where p rounds to one, because torch differentiates a sigmoid σ as σ (1 − σ). Instead, with
    Δ₀ = Δ detached, L(Δ) = L(Δ₀) − ∫ w from Δ₀ to Δ. Two Gauss–Legendre nodes make the first four derivatives exact.
    """
    start = d.detach()
    finite = start.isfinite()
    step = torch.where(finite, d, 0.0) - torch.where(finite, start, 0.0)  # 0, with the derivatives of d
    pulls = [loss.emphasis(start + node * step) for node in _NODES]
    return loss.value(start) - step * (0.5 * _total(pulls))


def _goes_at_once(part: nn.Module | None) -> bool:
    """Whether a part of a loss can be computed at once: a loss without trained parameters, or a list of such."""
    if isinstance(part, Loss):
        return part.goes_at_once and not part._parameters and all(map(_goes_at_once, part._modules.values()))
    return isinstance(part, nn.ModuleList) and all(map(_goes_at_once, part))


def inner_loss(value: Any) -> Loss:
    """Accept a loss or its spec as part of another loss. Weights, reduction and so on must be set on the outer loss."""
    loss = registry.get(value)
    if not isinstance(loss, Loss):
        raise invalid_parameter("loss", "a wrapper loss", "a loss or its spec string", value)
    _check_of_classes(loss)
    if loss.contract:
        raise InputError(f"Set {', '.join(loss.contract)} on the outer loss, not on the loss inside it. Got {loss!r} inside.")
    if loss.depends_on_batch:
        raise InputError(f"A loss that depends on the whole batch cannot be inside another loss. Got {loss!r}; make it the outermost loss.")
    _check_fixed(loss)
    return loss


def inner_margin_loss(value: Any) -> MarginLoss:
    """Accept a margin loss or its spec as part of another loss."""
    loss = inner_loss(value)
    if not isinstance(loss, MarginLoss):
        raise invalid_parameter("loss", "a wrapper loss", "a margin loss, such as 'mae' or 'gce(q=0.7)'", loss)
    return loss


def _factor(value: Any) -> float:
    factor = real(value)
    if not math.isfinite(factor):
        raise invalid_parameter("factor", "a multiple of a loss", "a finite number", value)
    return factor


def _check_of_classes(loss: Loss) -> None:
    """Refuse `Binary` and other losses without one score per class, which must be outermost."""
    if not loss.of_classes:
        raise InputError(f"Binary losses cannot be added, multiplied or put inside another loss. Got {loss!r}; put the others inside it.")


def _check_fixed(loss: Loss) -> None:
    """Refuse an adaptive loss, which sees the batches only if it is outermost."""
    if loss.adapts:
        raise InputError(f"{loss!r} sets its own hyper-parameters, so it cannot be added, multiplied or put inside another loss.")


def _combine(parts: Sequence[tuple[float, Loss]]) -> Loss:
    """A sum of multiples as one flat loss, with the contract of its parts."""
    contract = parts[0][1].contract
    terms: list[tuple[float, Loss]] = []
    for factor, loss in parts:
        _check_of_classes(loss)
        _check_fixed(loss)
        if loss.contract != contract:
            raise InputError(
                f"The losses of a sum must agree in {', '.join(CONTRACT)}. Got {parts[0][1]!r} and {loss!r}; "
                "leave them at their defaults and set them on the sum."
            )
        if isinstance(loss, Combination):
            terms.extend((factor * inner, term) for inner, term in loss.parts)
        else:
            terms.append((factor, loss))
    combined = _combination_class(terms)(terms)
    for key in contract:
        setattr(combined, key, getattr(parts[0][1], key))
    return combined


def _combination_class(terms: Sequence[tuple[float, Loss]]) -> type[Combination]:
    if not all(isinstance(loss, MarginLoss) for _, loss in terms):
        return Combination
    if not any(loss.depends_on_batch for _, loss in terms):
        return MarginCombination
    return CoupledMultiple if len(terms) == 1 else Combination


class Combination(Loss):
    """A sum of multiples of losses, such as ``0.3 * NCE() + 0.7 * MAE()``."""

    def __init__(self, parts: Sequence[tuple[float, Loss]]) -> None:
        super().__init__()
        self.factors = tuple(factor for factor, _ in parts)
        self.terms = nn.ModuleList(loss for _, loss in parts)

    @property
    def parts(self) -> list[tuple[float, Any]]:
        return list(zip(self.factors, self.terms, strict=True))

    @property
    def depends_on_batch(self) -> bool:
        return any(term.depends_on_batch for _, term in self.parts)

    def per_class(self, scores: Tensor) -> Tensor:
        return _total(factor * term.per_class(scores) for factor, term in self.parts)

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        return _total(factor * term.per_example(scores, target, kept) for factor, term in self.parts)

    def spec(self, **instead: Any) -> str:
        contract = {key: self._literal(key) for key in CONTRACT} | instead
        return " + ".join(f"{factor!r}*{term.spec(**contract)}" for factor, term in self.parts)


class MarginCombination(Combination, MarginLoss):
    """A sum of multiples of margin losses. Emphasis is linear, so the sum is a margin loss and computes the margin once."""

    def value(self, d: Tensor) -> Tensor:
        return _total(factor * term.value(d) for factor, term in self.parts)

    def emphasis(self, d: Tensor) -> Tensor:
        return _total(factor * term.emphasis(d) for factor, term in self.parts)

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        return _total(factor * term.of_margin(d, classes) for factor, term in self.parts)

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        return _total(factor * term.emphasis_of(d, classes) for factor, term in self.parts)

    per_class = MarginLoss.per_class
    per_example = MarginLoss.per_example


class CoupledMultiple(MarginCombination):
    """A multiple of a margin loss that is normalised over the batch."""

    per_class = Combination.per_class
    per_example = Combination.per_example


def along_classes(numbers: Tensor, like: Tensor) -> Tensor:
    """Reshape one number per class so that it broadcasts over a tensor with the classes in dimension 1."""
    return numbers.view(1, -1, *[1] * (like.dim() - 2))


def _total(values: Iterable[Tensor]) -> Tensor:
    return functools.reduce(operator.add, values)


def expm1_over(x: Tensor, q: float) -> Tensor:
    """(exp(q x) − 1) / q, or x if q is too small for float32."""
    return x if q < 1e-20 else (q * x).expm1() / q


def p_log_p(d: Tensor) -> Tensor:
    """p log p at margin `d`. At p = 0 it is 0, and so is its derivative."""
    masked = d == -torch.inf
    d = torch.where(masked, 0.0, d)
    return torch.where(masked, 0.0, d.sigmoid() * nn.functional.logsigmoid(d))


def get(spec: str | Loss, **settings: Any) -> Loss:
    """Build a loss from a spec string.

    Args:
        spec: for example ``"imae(T=8)"`` or ``"0.3*nce + 0.7*mae"``; a loss is returned unchanged.
        **settings: hyper-parameters, if the spec is a single name; and `weight`, `ignore_index`, `reduction`, `label_smoothing`.

    Example:
        >>> get("0.3*nce + 0.7*mae", reduction="sum")
        0.3*nce(reduction='sum') + 0.7*mae(reduction='sum')
    """
    if not isinstance(spec, str | Loss):
        raise InputError(f"A loss must be a spec string or a Loss (torch's cross-entropy is 'ce'). Got {type(spec).__name__} instead.")
    contract = {key: settings.pop(key) for key in CONTRACT if key in settings and isinstance(spec, str)}
    loss: Loss = registry.get(spec, **settings)
    for key, value in contract.items():
        setattr(loss, key, value)
    return loss
