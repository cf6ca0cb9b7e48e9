"""What the losses that are corrected by a transition matrix share: the matrix, and numbers that are computed from it once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Floats
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import can_keep
from noisewise.losses._base import Loss, registry
from noisewise.noise import ClassNoise, Matrix, Noise, NoNoise, matrix_of
from noisewise.noise import registry as noises


def class_noise(owner: str) -> Callable[[Any], Noise]:
    """A check that accepts a noise that depends on the class alone, its spec, or a transition matrix."""

    def check(value: Any) -> Noise:
        if isinstance(value, Loss) or (isinstance(value, str) and value.partition("(")[0].strip() in registry.available()):
            example = f"{owner.lower()}('symmetric(0.4)', loss=ce)"
            raise invalid_parameter("noise", owner, f"the noise; it comes before the loss, as in {example}", value)
        matrix: Any = value.detach().cpu() if isinstance(value, Tensor) else value
        noise = noises.get(value) if isinstance(value, str | Noise) else Matrix(matrix)
        if not all(isinstance(part, ClassNoise | NoNoise) for part in noise.parts):
            raise invalid_parameter(
                "noise", owner, "a noise that depends only on the class, such as 'symmetric(0.4)', or a transition matrix", value
            )
        return noise

    return check


class Corrected(Loss):
    """A loss with a transition matrix. A subclass has the settings `noise` and `loss`, and defines `constants`."""

    noise: Noise
    loss: Loss

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._constants: dict[Any, Tensor] = {}
        self._noise_repr = self.noise, repr(self.noise)

    def constants(self, matrix: Floats) -> Floats:
        """What the loss needs of the transition matrix."""
        raise NotImplementedError

    def constants_for(self, scores: Tensor) -> Tensor:
        """The constants in the type of the scores and on their device. They are computed once."""
        where = operator.index(scores.shape[1]), scores.dtype, scores.device  # an int, also where a compiler has a symbol
        if torch.compiler.is_compiling():
            noise, text = self._noise_repr
            return _constants_of(self.name, text if noise is self.noise else repr(self.noise), *where)
        constants = self._constants.get((self.noise, *where))
        if constants is None:
            constants = _compute(self, *where)
            if can_keep():
                self._constants[self.noise, *where] = constants
        return constants

    def transition(self, classes: int) -> Floats:
        """The transition matrix T. It must not depend on the seed, and every label must occur."""
        matrix, other = (matrix_of(self.noise, classes, seed) for seed in (0, 1))
        assert matrix is not None, "it depends on the class alone"
        if not np.array_equal(matrix, other):  # type: ignore[arg-type]
            raise InputError(f"The matrix of {self.noise!r} is drawn with the seed of a run. Give {self.name} the matrix itself.")
        if not matrix.any(axis=0).all():
            never = int(matrix.any(axis=0).argmin())
            owner = type(self).__name__
            raise invalid_parameter("noise", owner, "such that every label occurs", f"{self.noise!r}, which never gives label {never}")
        return matrix

    def _literal(self, key: str) -> Any:
        return repr(self.noise) if key == "noise" else super()._literal(key)


def _compute(loss: Corrected, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(loss.constants(loss.transition(classes))).to(device, dtype)


def _constants_of(name: str, noise: str, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant for torch.compile, which cannot trace noises."""
    loss: Any = registry.make(name, noise)
    return _compute(loss, classes, dtype, device)


# As torch.compiler.assume_constant_result sets it; the decorator would import the whole compiler.
_constants_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
