"""Schedules: what the learning rate is multiplied with at every step, as a spec such as ``"multistep((32000, 48000))"``.

All numbers of a schedule are known before training starts, so nothing about it has to be saved or stepped. Lengths are
counted in steps (updates); a number below 1 is a share of the run instead, so that ``"multistep((0.5, 0.75))"`` fits a run of
any length. This module must not know what the learning rate is, nor who applies it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from noisewise.errors import invalid_parameter
from noisewise.spec import Named, Registry, as_int, real, setting

registry: Registry[Schedule] = Registry("schedule")

_BLOCK = 2**15
"""Steps computed together: how torch rounds a power depends on its place in a tensor, which must not depend on where an epoch begins."""

_LENGTH = "an integer of steps in [1, inf), or a share of the run in (0, 1)"


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


def _every(value: Any) -> float:
    return _length(value, "every", "Step")


def _milestones(value: Any) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise invalid_parameter("milestones", "MultiStep", "a tuple such as (32000, 48000) or (0.5, 0.75)", value)
    return tuple(_length(each, "milestones", "MultiStep") for each in value)


def _in_steps(length: float, total_steps: int) -> int:
    """A length in steps, one at least."""
    return int(length) if length >= 1 else max(1, round(length * total_steps))


class Schedule(Named, registry=registry):
    """A learning-rate schedule. An author writes `shape`.

    Args:
        warmup: over so many first steps the factors are also multiplied with 1/warmup, 2/warmup, …, 1.
    """

    warmup: float = setting(default=0, check=_warmup, kw_only=True)

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        """The factors without warm-up of some steps, counted from 0 and given as float64."""
        raise NotImplementedError(f"{type(self).__name__} must define shape")

    def factors(self, total_steps: int, first: int = 0, number: int | None = None) -> Tensor:
        """What the base learning rate is multiplied with at each step: float64, shaped (number,).

        Args:
            total_steps: the length of the run.
            first: the first step to compute, counted from 0.
            number: how many steps to compute; by default all that are left.

        Example:
            >>> Constant(warmup=4).factors(6)
            tensor([0.2500, 0.5000, 0.7500, 1.0000, 1.0000, 1.0000], dtype=torch.float64)
        """
        total_steps = as_int("total_steps", type(self).__name__, total_steps, 1)
        last = total_steps if number is None else first + number
        start = first - first % _BLOCK
        step = torch.arange(start, min(total_steps, max(start + _BLOCK, last)), dtype=torch.float64)
        rising = _in_steps(self.warmup, total_steps)
        factors = self.shape(step, total_steps) * ((step + 1) / rising).clamp(max=1)
        return factors[first - start : last - start]


class Constant(Schedule, name="constant"):
    """The learning rate stays as it is.

    Example:
        >>> registry.get("constant").factors(3)
        tensor([1., 1., 1.], dtype=torch.float64)
    """

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        return torch.ones_like(step)


class Step(Schedule, name="step"):
    """The learning rate is multiplied with a factor every so many steps.

    Formula:
        factor^⌊step / every⌋

    Args:
        every: how many steps, or which share of the run.
        factor: what the learning rate is multiplied with each time.

    Example:
        >>> registry.get("step(2, factor=0.5)").factors(6)
        tensor([1.0000, 1.0000, 0.5000, 0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """

    every: float = setting(check=_every)
    factor: float = setting(default=0.1, bounds="(0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        length = _in_steps(self.every, total_steps)
        return self.factor ** (step / length).floor()


class MultiStep(Schedule, name="multistep"):
    """The learning rate is multiplied with a factor at each milestone.

    Formula:
        factor^(number of milestones ≤ step)

    Args:
        milestones: after how many steps, or which shares of the run.
        factor: what the learning rate is multiplied with each time.

    Example:
        >>> registry.get("multistep((2, 0.75), factor=0.1)").factors(8)
        tensor([1.0000, 1.0000, 0.1000, 0.1000, 0.1000, 0.1000, 0.0100, 0.0100], dtype=torch.float64)
    """

    milestones: tuple[float, ...] = setting(check=_milestones)
    factor: float = setting(default=0.1, bounds="(0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        reached = torch.tensor([_in_steps(milestone, total_steps) for milestone in self.milestones])
        return self.factor ** (step >= reached.unsqueeze(1)).sum(0).double()


class Cosine(Schedule, name="cosine"):
    """The learning rate falls along half a cosine, over the whole run.

    Formula:
        final + (1 − final) (1 + cos(π step / total_steps)) / 2

    Args:
        final: the factor it falls towards.

    Example:
        >>> registry.get("cosine").factors(4)
        tensor([1.0000, 0.8536, 0.5000, 0.1464], dtype=torch.float64)

    Reference:
        Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """

    final: float = setting(default=0.0, bounds="[0, 1]")

    def shape(self, step: Tensor, total_steps: int) -> Tensor:
        return self.final + (1 - self.final) * (1 + torch.cos(math.pi * step / total_steps)) / 2
