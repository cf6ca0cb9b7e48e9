"""Noises that stay inside the superclass of an example: the given superclasses, or those of CIFAR-100."""

from __future__ import annotations

import numpy as np

from noisewise.arrays import Floats, Ints
from noisewise.errors import invalid_parameter
from noisewise.noise._rule import DirectedNoise, Examples, onto
from noisewise.noise._stream import Stream

CIFAR100_SUPERCLASSES: tuple[int, ...] = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
"""The official coarse label of each of CIFAR-100's fine labels."""


class SuperclassNoise(DirectedNoise):
    """A noise that changes labels to other classes of the same superclass. A class that is alone in its superclass keeps its labels."""

    def superclasses(self, examples: Examples) -> Ints:
        if examples.superclasses is not None:
            return examples.superclasses
        if examples.num_classes == len(CIFAR100_SUPERCLASSES):
            return np.array(CIFAR100_SUPERCLASSES)
        raise invalid_parameter("superclasses", self.name, f"given, one for each of the {examples.num_classes} classes", None)

    def check(self, examples: Examples) -> None:
        self.superclasses(examples)

    def members(self, examples: Examples) -> list[Ints]:
        """The classes of every superclass."""
        superclasses = self.superclasses(examples)
        return [np.flatnonzero(superclasses == superclass) for superclass in np.unique(superclasses)]


class SuperclassCircular(SuperclassNoise, name="superclass_circular"):
    """With probability `rate`, the next class of the same superclass; the last one becomes the first.

    By default the superclasses are those of CIFAR-100, if there are 100 classes.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2, 3], "superclass_circular(1)", superclasses=[0, 1, 0, 1]).labels
        tensor([2, 3, 0, 1])

    Reference:
        Ou and Zhang, A Curriculum View of Robust Loss Functions, 2023; after Patrini et al., CVPR 2017.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        targets = np.arange(examples.num_classes)
        for members in self.members(examples):
            targets[members] = np.roll(members, -1)
        return onto(targets)


class SuperclassCircularLegacy(SuperclassCircular, name="superclass_circular_legacy"):
    """With probability `rate`, the next class within a block of five consecutive labels.

    Most published code does this for CIFAR-100, whose labels are in alphabetical order: only 6 of the 100 flips stay inside the true
    superclass (apple → aquarium_fish → baby …). Use it only to compare with published numbers.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 3, 4], "superclass_circular_legacy(1)", num_classes=100).labels
        tensor([1, 4, 0])

    Reference:
        The published code of Patrini et al., CVPR 2017, and of Ma et al., Normalized Loss Functions, ICML 2020.
    """

    def superclasses(self, examples: Examples) -> Ints:
        if examples.num_classes % 5:
            raise invalid_parameter("num_classes", self.name, "a multiple of 5", examples.num_classes)
        return np.arange(examples.num_classes) // 5


class SuperclassUniform(SuperclassNoise, name="superclass_uniform"):
    """With probability `rate`, uniformly one of the other classes of the same superclass.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2], "superclass_uniform(0.4)", superclasses=[0, 0, 0]).expected[0]
        tensor([0.6000, 0.2000, 0.2000], dtype=torch.float64)

    Reference:
        Robust Discriminative Representation Learning via Gradient Rescaling: an Emphasis Regularisation Perspective, appendix D, 2019.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        matrix = np.eye(examples.num_classes)
        for members in self.members(examples):
            if len(members) > 1:
                matrix[np.ix_(members, members)] = (1 - np.eye(len(members))) / (len(members) - 1)
        return matrix


class SuperclassSwap(SuperclassNoise, name="superclass_swap"):
    """With probability `rate`, the other one of two random classes in every superclass, which depend on the seed.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2, 3], "superclass_swap(1)", superclasses=[0, 1, 0, 1]).labels
        tensor([2, 3, 0, 1])

    Reference:
        Wang et al., IMAE for Noise-Robust Learning, table 4, 2019.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        targets = np.arange(examples.num_classes)
        draws = stream.uniform(examples.num_classes)
        for members in self.members(examples):
            two = members[np.argsort(draws[members], kind="stable")[:2]]
            targets[two] = two[::-1]
        return onto(targets)
