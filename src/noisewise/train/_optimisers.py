"""Optimisers: how a gradient changes the parameters, as a spec such as ``"sgd(lr=0.1, momentum=0.9)"`` and as an `Updater`.

The rules are torch's own, in its fused kernels: one pass over all parameters, with the learning rate read from a tensor on the
device. So a step waits for nothing, allocates nothing, and a CUDA graph can hold it while a schedule changes the rate. This
module must not know how gradients come about, nor how the learning rate changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import Named, Registry, setting

registry: Registry[Optimiser] = Registry("optimiser")


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid_parameter("nesterov", "SGD", "True or False", value)
    return value


class Optimiser(Named, registry=registry):
    """A rule for changing parameters. An author writes `remembers` and `update`.

    Args:
        lr: the learning rate that a schedule starts from.
    """

    lr: float = setting(default=0.1, bounds="[0, inf)")

    def remembers(self) -> tuple[str, ...]:
        """The names of what the rule keeps for each parameter; a number if called "steps", else shaped like the parameter."""
        raise NotImplementedError(f"{type(self).__name__} must define remembers")

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], memory: list[list[Tensor]], lr: Tensor, weight_decay: float
    ) -> None:
        """Change parameters and memory in place, without waiting for the device."""
        raise NotImplementedError(f"{type(self).__name__} must define update")

    def make(self, parameters: Iterable[tuple[str, Tensor]], weight_decay: float = 0.0, device: torch.device | str = "cpu") -> Updater:
        """The rule at work on these parameters.

        Args:
            parameters: names and parameters, as `nn.Module.named_parameters` gives them, on the device and of one type.
            weight_decay: the L2 penalty, added to the gradient as torch does; AdamW's shrinks the parameters instead.
            device: where the learning rate lives.

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
    """Stochastic gradient descent, with momentum unless it is 0.

    Formula:
        v ← momentum · v + g + weight_decay · θ,    θ ← θ − lr · v    (Nesterov: θ ← θ − lr · (g + weight_decay · θ + momentum · v))

    Example:
        >>> registry.get("sgd(lr=0.01, nesterov=True)")
        sgd(lr=0.01, momentum=0.9, nesterov=True)
    """

    momentum: float = setting(default=0.9, bounds="[0, 1)")
    nesterov: bool = setting(default=False, check=_yes_or_no)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.nesterov and self.momentum == 0:
            raise invalid_parameter("momentum", "SGD", "in (0, 1) when nesterov is True", self.momentum)

    def remembers(self) -> tuple[str, ...]:
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
            is_first_step=False,  # momentum starts at zero, which makes the first step like any other
        )


class Adam(Optimiser, name="adam"):
    """Adam: steps measured by running means of the gradient and of its square.

    Formula:
        m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²,    θ ← θ − lr · m̂ / (√v̂ + eps),    m̂ = m / (1 − β₁ᵗ),    v̂ = v / (1 − β₂ᵗ)

    Args:
        eps: what the IMAE paper calls delta, 0.1 or 1 there: the larger, the closer to SGD with momentum.

    Example:
        >>> registry.get("adam(lr=0.005, eps=0.1)")
        adam(lr=0.005, beta1=0.9, beta2=0.999, eps=0.1)

    Reference:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.
    """

    kernel: ClassVar[Any] = staticmethod(torch._fused_adam_)

    lr: float = setting(default=1e-3, bounds="[0, inf)")
    beta1: float = setting(default=0.9, bounds="[0, 1)")
    beta2: float = setting(default=0.999, bounds="[0, 1)")
    eps: float = setting(default=1e-8, bounds="[0, inf)")

    def remembers(self) -> tuple[str, ...]:
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
        >>> registry.get("adamw(lr=0.002)")
        adamw(lr=0.002, beta1=0.9, beta2=0.999, eps=1e-08)

    Reference:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    kernel = staticmethod(torch._fused_adamw_)


def _as_laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient with the parameter's strides, which the fused kernels ask for.

    Autograd lets them differ where a dimension has size 1 and a stride means nothing, as in a 1×1 convolution.
    """
    if gradient.stride() == parameter.stride():
        return gradient
    pairs = zip(parameter.shape, gradient.stride(), parameter.stride(), strict=True)
    if all(size == 1 or given == wanted for size, given, wanted in pairs):
        return gradient.as_strided(parameter.shape, parameter.stride())
    return torch.empty_like(parameter).copy_(gradient)


class Updater:
    """An optimiser at work on some parameters, with everything it remembers allocated from the start.

    Args:
        optimiser: the rule.
        parameters: names and parameters.
        weight_decay: how strongly parameters are pulled to zero.
        device: where the parameters are.

    Attributes:
        parameters: the parameters, in the order given.
        lr: the learning rate, a number on the device that every step reads: write to it in place.
    """

    def __init__(self, optimiser: Optimiser, parameters: Iterable[tuple[str, Tensor]], weight_decay: float, device: torch.device) -> None:
        named = dict(parameters)
        kinds = {(parameter.device.type, parameter.dtype) for parameter in named.values()}
        if len(kinds) != 1 or next(iter(kinds))[0] != device.type:
            held = ", ".join(sorted(f"{dtype} on {place}" for place, dtype in kinds)) or "none"
            raise invalid_parameter("parameters", type(optimiser).__name__, f"some, of one type and on {device.type}", held)
        if not 0 <= weight_decay < torch.inf:
            raise invalid_parameter("weight_decay", type(optimiser).__name__, "in [0, inf)", weight_decay)
        self.parameters = list(named.values())
        self.lr = torch.tensor(optimiser.lr, dtype=torch.float32, device=device)
        self._optimiser, self._weight_decay, self._names = optimiser, weight_decay, list(named)
        self._memory = {kind: [self._blank(kind, parameter) for parameter in self.parameters] for kind in optimiser.remembers()}

    @staticmethod
    def _blank(kind: str, parameter: Tensor) -> Tensor:
        if kind == "steps":
            return torch.zeros((), dtype=torch.float32, device=parameter.device)
        return torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        moved = [position for position, parameter in enumerate(self.parameters) if parameter.grad is not None]
        if not moved:
            return
        parameters = [self.parameters[position] for position in moved]
        gradients = [_as_laid_out(parameter.grad, parameter) for parameter in parameters if parameter.grad is not None]
        memory = [[kept[position] for position in moved] for kept in self._memory.values()]
        self._optimiser.update(parameters, gradients, memory, self.lr, self._weight_decay)

    def zero_grad(self) -> None:
        """Forget the gradients: the next backward pass writes new ones instead of adding to old ones."""
        for parameter in self.parameters:
            parameter.grad = None

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients down so that all of them together have at most this L2 norm; return the norm they had."""
        return nn.utils.clip_grad_norm_(self.parameters, max_norm)

    def state(self) -> dict[str, Tensor]:
        """What the optimiser remembers, each tensor named after its parameter: ``"head.weight.momentum"``.

        These are the live tensors, laid out in memory like their parameters: copy what must not change with the next step.
        """
        return {f"{name}.{kind}": tensor for kind, kept in self._memory.items() for name, tensor in zip(self._names, kept, strict=True)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave earlier; the tensors are written in place, so a captured step sees them."""
        held = self.state()
        wrong = sorted(
            name for name in held.keys() | state.keys() if name not in held or name not in state or held[name].shape != state[name].shape
        )
        if wrong:
            raise InputError(
                f"The saved state does not fit {self._optimiser!r} on these parameters. Got a missing, surplus or misshapen {wrong[0]!r} "
                f"({len(wrong)} such); load it with the model and the optimiser it was saved from."
            )
        for name, tensor in held.items():
            tensor.copy_(state[name])
