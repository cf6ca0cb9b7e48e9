"""Optimisers and learning-rate schedules, as specs such as ``"sgd(lr=0.1, momentum=0.9)"`` and ``"cosine"``.

An optimiser makes an `Updater` of some parameters. It uses torch's fused kernels, which update all parameters in one pass and read the
learning rate from a tensor on the device. So a step does not wait for the device, and a CUDA graph can capture it although a schedule
changes the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import Named, Registry, as_int, real, setting

optimisers: Registry[Optimiser] = Registry("optimiser")


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid_parameter("nesterov", "SGD", "True or False", value)
    return value


class Optimiser(Named, registry=optimisers):
    """An update rule. A subclass defines `state_names` and `update`.

    Args:
        lr: the learning rate that a schedule starts from.
    """

    lr: float = setting(default=0.1, bounds="[0, inf)")

    def state_names(self) -> tuple[str, ...]:
        """The names of the tensors that are kept for each parameter; "steps" is a number, the others have the shape of the parameter."""
        raise NotImplementedError(f"{type(self).__name__} must define state_names")

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], memory: list[list[Tensor]], lr: Tensor, weight_decay: float
    ) -> None:
        """Change parameters and state in place, without waiting for the device."""
        raise NotImplementedError(f"{type(self).__name__} must define update")

    def make(self, parameters: Iterable[tuple[str, Tensor]], weight_decay: float = 0.0, device: torch.device | str = "cpu") -> Updater:
        """An `Updater` of these parameters.

        Args:
            parameters: names and parameters, as from `nn.Module.named_parameters`, on the device and of one type.
            weight_decay: the L2 penalty, added to the gradient as in torch; AdamW shrinks the parameters instead.
            device: the device of the learning rate.

        Example:
            >>> model = nn.Linear(2, 1)
            >>> updater = SGD(lr=0.5, momentum=0.0).make(model.named_parameters())
            >>> before = model.bias.item()
            >>> model(torch.ones(1, 2)).sum().backward()
            >>> updater.step()
            >>> round(before - model.bias.item(), 6)
            0.5
        """
        return Updater(self, parameters, weight_decay, torch.device(device))


class SGD(Optimiser, name="sgd"):
    """Stochastic gradient descent with momentum.

    Formula:
        v ← momentum · v + g + weight_decay · θ,    θ ← θ − lr · v    (Nesterov: θ ← θ − lr · (g + weight_decay · θ + momentum · v))

    Example:
        >>> optimisers.get("sgd(lr=0.01, nesterov=True)")
        sgd(lr=0.01, momentum=0.9, nesterov=True)
    """

    momentum: float = setting(default=0.9, bounds="[0, 1)")
    nesterov: bool = setting(default=False, check=_yes_or_no)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.nesterov and self.momentum == 0:
            raise invalid_parameter("momentum", "SGD", "in (0, 1) when nesterov is True", self.momentum)

    def state_names(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], memory: list[list[Tensor]], lr: Tensor, weight_decay: float
    ) -> None:
        torch._fused_sgd_(
            parameters,
            gradients,
            memory[0] if memory else [],
            weight_decay=weight_decay,
            momentum=self.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,  # momentum starts at zero, so the first step is not special
        )


class Adam(Optimiser, name="adam"):
    """Adam: steps scaled by running means of the gradient and of its square.

    Formula:
        m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²,    θ ← θ − lr · m̂ / (√v̂ + eps),    m̂ = m / (1 − β₁ᵗ),    v̂ = v / (1 − β₂ᵗ)

    Args:
        eps: the delta of the IMAE paper, which uses 0.1 and 1; larger values are closer to SGD with momentum.

    Example:
        >>> optimisers.get("adam(lr=0.005, eps=0.1)")
        adam(lr=0.005, beta1=0.9, beta2=0.999, eps=0.1)

    Reference:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.
    """

    kernel: ClassVar[Any] = staticmethod(torch._fused_adam_)

    lr: float = setting(default=1e-3, bounds="[0, inf)")
    beta1: float = setting(default=0.9, bounds="[0, 1)")
    beta2: float = setting(default=0.999, bounds="[0, 1)")
    eps: float = setting(default=1e-8, bounds="[0, inf)")

    def state_names(self) -> tuple[str, ...]:
        return ("first", "second", "steps")

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], memory: list[list[Tensor]], lr: Tensor, weight_decay: float
    ) -> None:
        first, second, steps = memory
        torch._foreach_add_(steps, 1)
        self.kernel(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            lr=lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )


class AdamW(Adam, name="adamw"):
    """Adam with decoupled weight decay: θ ← (1 − lr · weight_decay) θ first, and nothing is added to the gradient.

    Example:
        >>> optimisers.get("adamw(lr=0.002)")
        adamw(lr=0.002, beta1=0.9, beta2=0.999, eps=1e-08)

    Reference:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    kernel = staticmethod(torch._fused_adamw_)


def _with_strides(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient with the strides of the parameter, as the fused kernels need it. Strides differ after a 1×1 convolution, for example."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


class Updater:
    """An optimiser of some parameters, with its state allocated from the start.

    Args:
        optimiser: the rule.
        parameters: names and parameters.
        weight_decay: the L2 penalty.
        device: the device of the parameters.

    Attributes:
        parameters: the parameters.
        lr: the learning rate, a tensor on the device; write to it in place.
    """

    def __init__(self, optimiser: Optimiser, parameters: Iterable[tuple[str, Tensor]], weight_decay: float, device: torch.device) -> None:
        named = dict(parameters)
        kinds = {(parameter.device.type, parameter.dtype) for parameter in named.values()}
        if len(kinds) != 1 or next(iter(kinds))[0] != device.type:
            got = ", ".join(sorted(f"{dtype} on {kind}" for kind, dtype in kinds)) or "none"
            raise invalid_parameter("parameters", type(optimiser).__name__, f"of one type and on {device.type}", got)
        if not 0 <= weight_decay < torch.inf:
            raise invalid_parameter("weight_decay", type(optimiser).__name__, "in [0, inf)", weight_decay)
        self.parameters = list(named.values())
        self.lr = torch.tensor(optimiser.lr, dtype=torch.float32, device=device)
        self._optimiser, self._weight_decay, self._names = optimiser, weight_decay, list(named)
        initial = {"steps": lambda parameter: torch.zeros((), dtype=torch.float32, device=parameter.device)}
        self._memory = {kind: list(map(initial.get(kind, torch.zeros_like), self.parameters)) for kind in optimiser.state_names()}

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        positions = [position for position, parameter in enumerate(self.parameters) if parameter.grad is not None]
        if not positions:
            return
        parameters = [self.parameters[position] for position in positions]
        gradients = [_with_strides(parameter.grad, parameter) for parameter in parameters if parameter.grad is not None]
        memory = [[tensors[position] for position in positions] for tensors in self._memory.values()]
        self._optimiser.update(parameters, gradients, memory, self.lr, self._weight_decay)

    def zero_grad(self) -> None:
        """Delete the gradients, so that the next backward pass does not add to them."""
        for parameter in self.parameters:
            parameter.grad = None

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients down to at most this L2 norm over all of them; return the norm before."""
        return nn.utils.clip_grad_norm_(self.parameters, max_norm)

    def state(self) -> dict[str, Tensor]:
        """The state of the optimiser, each tensor named after its parameter: ``"head.weight.momentum"``.

        These tensors change with every step: copy them to keep them.
        """
        return {
            f"{name}.{kind}": tensor for kind, tensors in self._memory.items() for name, tensor in zip(self._names, tensors, strict=True)
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load a saved `state`. The tensors are changed in place, so that a captured step uses them."""
        current = self.state()
        shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in (current, state)]
        wrong = sorted(name for name, _ in shapes[0].items() ^ shapes[1].items())
        if wrong:
            raise InputError(
                f"The saved state does not match {self._optimiser!r} on these parameters: {wrong[0]!r} is missing, unknown or has another "
                "shape. Use the model and the optimiser that it was saved from."
            )
        for name, tensor in current.items():
            tensor.copy_(state[name])


schedules: Registry[Schedule] = Registry("schedule")

_BLOCK = 2**15
"""Factors are computed in blocks of this many steps, because how torch rounds a power depends on its position in a tensor."""

_LENGTH = "a number of steps (an integer of at least 1) or a share of the run in (0, 1)"


def _length(value: Any, parameter: str, owner: str) -> float:
    """Accept a number of steps or a share of the run."""
    number = real(value)
    if 0 < number < 1:
        return number
    if math.isfinite(number) and number >= 1 and number == int(number):
        return int(number)
    raise invalid_parameter(parameter, owner, _LENGTH, value)


def _warmup(value: Any) -> float:
    return 0 if value == 0 and not isinstance(value, bool) else _length(value, "warmup", "a schedule")


def _milestones(value: Any) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise invalid_parameter("milestones", "MultiStep", "a tuple such as (32000, 48000) or (0.5, 0.75)", value)
    return tuple(_length(each, "milestones", "MultiStep") for each in value)


def _in_steps(length: float, total_steps: int) -> int:
    """A length in steps, at least one."""
    return int(length) if length >= 1 else max(1, round(length * total_steps))


class Schedule(Named, registry=schedules):
    """A learning-rate schedule. A subclass defines `shape`.

    Args:
        warmup: the number of warm-up steps, or their share of the run. In them the factors are multiplied by 1/warmup, 2/warmup, …, 1.
    """

    warmup: float = setting(default=0, check=_warmup, kw_only=True)

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        """The factors of some steps without warm-up. Steps are float64 and start at 0."""
        raise NotImplementedError(f"{type(self).__name__} must define shape")

    def factors(self, total_steps: int, first: int = 0, number: int | None = None) -> Tensor:
        """The factors of the base learning rate at each step: float64, shaped (number,).

        Args:
            total_steps: the number of steps of the run.
            first: the first step to compute; steps start at 0.
            number: how many steps to compute; by default all that follow.

        Example:
            >>> Constant(warmup=4).factors(6)
            tensor([0.2500, 0.5000, 0.7500, 1.0000, 1.0000, 1.0000], dtype=torch.float64)
        """
        total_steps = as_int("total_steps", type(self).__name__, total_steps, 1)
        last = total_steps if number is None else first + number
        start = first - first % _BLOCK
        step = torch.arange(start, min(total_steps, max(start + _BLOCK, last)), dtype=torch.float64)
        warmup_steps = _in_steps(self.warmup, total_steps)
        factors = self.shape(step, total_steps) * ((step + 1) / warmup_steps).clamp(max=1)
        return factors[first - start : last - start]


class Constant(Schedule, name="constant"):
    """A constant learning rate.

    Example:
        >>> schedules.get("constant").factors(3)
        tensor([1., 1., 1.], dtype=torch.float64)
    """

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        return torch.ones_like(step)


class Step(Schedule, name="step"):
    """The learning rate is multiplied by a factor at regular intervals.

    Formula:
        factor^⌊step / every⌋

    Args:
        every: the interval, in steps or as a share of the run.
        factor: what the learning rate is multiplied by each time.

    Example:
        >>> schedules.get("step(2, factor=0.5)").factors(6)
        tensor([1.0000, 1.0000, 0.5000, 0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """

    every: float = setting(check=lambda value: _length(value, "every", "Step"))
    factor: float = setting(default=0.1, bounds="(0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        length = _in_steps(self.every, total_steps)
        return self.factor ** (step / length).floor()


class MultiStep(Schedule, name="multistep"):
    """The learning rate is multiplied by a factor at each milestone.

    Formula:
        factor^(number of milestones ≤ step)

    Args:
        milestones: numbers of steps, or shares of the run.
        factor: what the learning rate is multiplied by each time.

    Example:
        >>> schedules.get("multistep((2, 0.75), factor=0.1)").factors(8)
        tensor([1.0000, 1.0000, 0.1000, 0.1000, 0.1000, 0.1000, 0.0100, 0.0100], dtype=torch.float64)
    """

    milestones: tuple[float, ...] = setting(check=_milestones)
    factor: float = setting(default=0.1, bounds="(0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        reached = torch.tensor([_in_steps(milestone, total_steps) for milestone in self.milestones])
        return self.factor ** (step >= reached.unsqueeze(1)).sum(0).double()


class Cosine(Schedule, name="cosine"):
    """The learning rate follows half a cosine over the whole run.

    Formula:
        final + (1 − final) (1 + cos(π step / total_steps)) / 2

    Args:
        final: the factor at the end.

    Example:
        >>> schedules.get("cosine").factors(4)
        tensor([1.0000, 0.8536, 0.5000, 0.1464], dtype=torch.float64)

    Reference:
        Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """

    final: float = setting(default=0.0, bounds="[0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        return self.final + (1 - self.final) * (1 + torch.cos(math.pi * step / total_steps)) / 2
