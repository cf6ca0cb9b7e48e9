"""The base classes of noises.

Matrices are row-stochastic, with the true label first: ``T[i, j] = P(given label j | true label i)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from noisewise.arrays import Flags, Floats, Ints
from noisewise.errors import invalid_parameter
from noisewise.noise._stream import Stream
from noisewise.spec import Named, Registry, setting

registry: Registry[Noise] = Registry("noise")
"""The noises by name."""


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples a noise is applied to.

    Args:
        labels: the current labels, int64 (N,).
        num_classes: the number of classes.
        inputs: (N, …), or None.
        replaced: which inputs a noise has replaced, (N,).
        superclasses: the superclass of every class, or None.
        human: human labels for the same examples, by name.
        other_inputs: inputs of another data set, (M, …), or None.
        classes: the name of every class, or None if they have only numbers.
        tracklets: the number of the tracklet of every example, or None.
    """

    labels: Ints
    num_classes: int
    inputs: Tensor | None
    replaced: Flags
    superclasses: Ints | None = None
    human: Mapping[str, Any] = field(default_factory=dict)
    other_inputs: Tensor | None = None
    classes: tuple[str, ...] | None = None
    tracklets: Ints | None = None

    def __len__(self) -> int:
        return len(self.labels)


class Noise(Named, registry=registry):
    """A rule that corrupts labels. A sum such as ``symmetric(0.4) + open_set(0.1)`` applies one after the other."""

    replaces_all: ClassVar[bool] = False
    """Whether it replaces every label, so that it must come first in a sum."""

    looks_at_inputs: ClassVar[bool] = False
    """Whether it needs the inputs."""

    def check(self, examples: Examples) -> None:
        """Raise `InputError` if something the noise needs is missing; called before anything is changed."""

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        """Return the corrupted examples, and the transition matrix, or None if the noise depends on more than the class."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Noise, ...]:
        """The noises of a sum, in order."""
        return (self,)

    def __add__(self, other: Noise) -> Noise:
        return Sum(self.parts + other.parts) if isinstance(other, Noise) else NotImplemented


def _human_first(parts: tuple[Noise, ...]) -> tuple[Noise, ...]:
    if any(part.replaces_all for part in parts[1:]):
        raise invalid_parameter("parts", "a sum of noises", "such that human labels come first, because they replace all labels", parts)
    return parts


class Sum(Noise):
    """Noises one after the other."""

    terms: tuple[Noise, ...] = setting(check=_human_first)

    @property
    def parts(self) -> tuple[Noise, ...]:
        return self.terms

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


class Flipping(Noise):
    """A noise that changes each example with some probability.

    Args:
        flips: "independent": every example changes independently. "exact": exactly the expected number of examples changes. For most
            noises that is round(r · n), where n is the number of examples the noise can change; for `symmetric_inclusive`, which may
            draw the same class, round(r (k − 1)/k · n).
    """

    flips: str = setting(default="independent", choices=("independent", "exact"), kw_only=True)

    def choose(self, probability: Floats, draws: Floats, expected: float) -> Flags:
        """Which examples change: those whose draw is below their probability, or the `expected` number that are closest to it."""
        if self.flips == "independent":
            return draws < probability
        distance = np.divide(draws, probability, out=np.full_like(draws, np.inf), where=probability > 0)
        distance[probability == 1] = 0  # certain changes come first
        number = round(round(expected, 6))  # a half must stay a half in spite of rounding errors
        chosen = np.zeros(len(draws), dtype=bool)
        chosen[np.argsort(distance, kind="stable")[:number]] = True
        return chosen


class ClassNoise(Flipping):
    """A noise that depends only on the class, and is defined by its transition matrix. Subclasses implement `transition`.

    Two numbers are drawn for each example in turn, so that with independent flips an example does not depend on later ones.
    """

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        """T[i, j] = P(given j | true i), shaped (num_classes, num_classes)."""
        raise NotImplementedError

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        matrix = self.transition(examples, stream)
        draws = stream.uniform(len(examples), 2)
        staying = matrix.diagonal()
        # A class without another target stays, even if rounding made its diagonal slightly smaller than one.
        leaves = np.array([np.count_nonzero(row) for row in matrix]) > (staying != 0)
        leaving = np.where(leaves, 1 - staying, 0.0)[examples.labels]
        flipped = np.flatnonzero(self.choose(leaving, draws[:, 0], float(leaving.sum())))
        labels = examples.labels.copy()
        labels[flipped] = _draw_other(matrix, labels[flipped], draws[flipped, 1])
        return replace(examples, labels=labels), matrix


def _draw_other(matrix: Floats, labels: Ints, draws: Floats) -> Ints:
    """Draw a different label for each label, from its row of the matrix."""
    result = np.empty_like(labels)
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], np.arange(len(matrix) + 1))
    for label in np.unique(labels):
        row = matrix[label].copy()
        row[label] = 0
        examples = order[edges[label] : edges[label + 1]]
        result[examples] = np.searchsorted(cumulative(row), draws[examples], side="right")
    return result


def cumulative(weights: Floats) -> Floats:
    """Cumulative sums over the last dimension that end in exactly 1, so that every draw hits a positive weight."""
    sums = np.cumsum(weights, axis=-1)
    return sums / sums[..., -1:]


class DirectedNoise(ClassNoise):
    """A noise that changes a label with probability `rate`, to a class that depends on its class. Subclasses implement `directions`.

    T = (1 − rate) · I + rate · D.

    Args:
        rate: the probability, in [0, 1].
    """

    rate: float = setting(bounds="[0, 1]")

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        """D[i, j]: the distribution of the new labels of class i; for a class that does not change, the row of the identity matrix."""
        raise NotImplementedError

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        matrix = self.rate * self.directions(examples, stream)
        matrix.flat[:: len(matrix) + 1] += 1 - self.rate
        return matrix


class CircularNoise(DirectedNoise):
    """A directed noise that is the same for all classes, so that one row defines it. Subclasses implement `steps`."""

    def steps(self, num_classes: int) -> Floats:
        """D[0]: the probabilities that a label moves 0, 1, 2, … classes forward, modulo the number of classes."""
        raise NotImplementedError

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        row = self.rate * self.steps(examples.num_classes)
        row[0] += 1 - self.rate
        return circulant(row)


def circulant(row: Floats) -> Floats:
    """The matrix whose rows are shifted copies of one row, as a view of two rows.

    Example:
        >>> circulant(np.array([0.5, 0.3, 0.2]))
        array([[0.5, 0.3, 0.2],
               [0.2, 0.5, 0.3],
               [0.3, 0.2, 0.5]])
    """
    return np.lib.stride_tricks.sliding_window_view(np.concatenate([row, row]), len(row))[:0:-1]


def onto(targets: Ints) -> Floats:
    """The directions of a noise with one target for every class."""
    matrix = np.zeros((len(targets), len(targets)))
    matrix[np.arange(len(targets)), targets] = 1
    return matrix
