"""Noises that depend only on the class of an example."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Floats, first_positions
from noisewise.errors import InputError, invalid_parameter, listed, unknown
from noisewise.noise._rule import CircularNoise, ClassNoise, DirectedNoise, Examples, Noise, circulant, onto
from noisewise.noise._stream import Stream
from noisewise.spec import setting

CLASS_MAPS: Mapping[str, Mapping[int, int]] = {
    "cifar10": {9: 1, 2: 0, 4: 7, 3: 5, 5: 3},  # truck → automobile, bird → airplane, deer → horse, cat ↔ dog
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
}


class NoNoise(Noise, name="none"):
    """No noise: the labels are not changed.

    Example:
        >>> from noisewise.noise import corrupt
        >>> int(corrupt([0, 1, 2], "none").mask.sum())
        0
    """

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        return examples, circulant(_one_step(examples.num_classes, 0))


def _one_step(num_classes: int, step: int) -> Floats:
    """The row of a noise that moves every label by ``step`` classes."""
    row = np.zeros(num_classes)
    row[step % num_classes] = 1
    return row


class Symmetric(CircularNoise, name="symmetric"):
    """With probability `rate`, uniformly one of the OTHER classes.

    T[i, i] = 1 − r,  T[i, j] = r / (k − 1).

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2], "symmetric(0.3)").expected
        tensor([[0.7000, 0.1500, 0.1500],
                [0.1500, 0.7000, 0.1500],
                [0.1500, 0.1500, 0.7000]], dtype=torch.float64)

    Reference:
        Wang et al., IMAE for Noise-Robust Learning, 2019; van Rooyen et al., Learning with Symmetric Label Noise, NeurIPS 2015.
    """

    def steps(self, num_classes: int) -> Floats:
        return (1 - _one_step(num_classes, 0)) / (num_classes - 1)


class SymmetricInclusive(CircularNoise, name="symmetric_inclusive"):
    """With probability `rate`, uniformly one of ALL classes, so that the real rate is r (k − 1) / k.

    T[i, i] = 1 − r + r / k,  T[i, j] = r / k.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1], "symmetric_inclusive(0.4)").expected
        tensor([[0.8000, 0.2000],
                [0.2000, 0.8000]], dtype=torch.float64)

    Reference:
        Li et al., DivideMix, ICLR 2020; Liu et al., Early-Learning Regularization, NeurIPS 2020.
    """

    def steps(self, num_classes: int) -> Floats:
        return np.full(num_classes, 1 / num_classes)


class Pair(CircularNoise, name="pair"):
    """With probability `rate`, the next class: y → y + 1 mod k.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2], "pair(1)").labels
        tensor([1, 2, 0])

    Reference:
        Han et al., Co-teaching, NeurIPS 2018.
    """

    def steps(self, num_classes: int) -> Floats:
        return _one_step(num_classes, 1)


def _class_map(value: Any) -> str | dict[int, int] | dict[str, str]:
    if isinstance(value, str):
        if value not in CLASS_MAPS:
            raise unknown("class map", value, CLASS_MAPS)
        return value
    requirement = f"{' or '.join(CLASS_MAPS)}, or a dictionary from classes to other classes, like {{9: 1}} or {{'cat': 'dog'}}"
    try:
        pairs = dict(value)
        names = all(isinstance(name, str) for pair in pairs.items() for name in pair)
        pairs = pairs if names else {operator.index(source): operator.index(target) for source, target in pairs.items()}
    except (TypeError, ValueError):
        raise invalid_parameter("map", "ClassMap", requirement, value) from None
    if not pairs or any(source == target for source, target in pairs.items()) or (not names and min(map(min, pairs.items())) < 0):
        raise invalid_parameter("map", "ClassMap", requirement, value)
    return pairs


def _other_numbers(names: tuple[str, ...]) -> bool:
    """Whether class names are integers other than their positions, so that a number would be ambiguous."""
    return all(name.removeprefix("-").isdecimal() for name in names) and names != tuple(map(str, range(len(names))))


class ClassMap(DirectedNoise, name="class_map"):
    """With probability `rate`, the class in the map: "cifar10", "mnist" or a dictionary. Other classes keep their labels.

    Args:
        map: "cifar10" (truck → automobile, bird → airplane, deer → horse, cat ↔ dog), "mnist" (7 → 1, 2 → 7, 5 ↔ 6, 3 → 8), or a
            dictionary of class names, or of class numbers from 0.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2, 9], "class_map(1, {2: 0, 9: 1})", num_classes=10).labels
        tensor([0, 1, 0, 1])

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach, CVPR 2017.
    """

    rate: float = setting(bounds="[0, 1]")
    map: str | dict[int, int] | dict[str, str] = setting(check=_class_map)

    def check(self, examples: Examples) -> None:
        self._pairs(examples)

    def _pairs(self, examples: Examples) -> Mapping[int, int]:
        """The map between class numbers."""
        if isinstance(self.map, str):
            if examples.num_classes != 10:
                raise invalid_parameter("num_classes", f"the {self.map} class map", "10", examples.num_classes)
            return CLASS_MAPS[self.map]
        names = examples.classes
        if not any(isinstance(source, str) for source in self.map):
            if names is not None and _other_numbers(names):
                raise invalid_parameter("map", "ClassMap", f"by names, because the names are other numbers ({listed(names)})", self.map)
            if (highest := max(int(number) for pair in self.map.items() for number in pair)) >= examples.num_classes:
                raise invalid_parameter("map", "ClassMap", f"between classes below {examples.num_classes}, the number of classes", highest)
            return {int(source): int(target) for source, target in self.map.items()}
        if names is None:
            raise invalid_parameter("map", "ClassMap", "by numbers, because the names of the classes are not known", self.map)
        positions = first_positions(names)
        for name in (str(name) for pair in self.map.items() for name in pair):
            if name not in positions:
                raise unknown("class", name, names)
        return {positions[str(source)]: positions[str(target)] for source, target in self.map.items()}

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        pairs = self._pairs(examples)
        targets = np.arange(examples.num_classes)
        targets[list(pairs)] = list(pairs.values())
        return onto(targets)


def _row_stochastic(value: Any) -> tuple[tuple[float, ...], ...]:
    requirement = "a square matrix of probabilities whose rows sum to one, as nested sequences or a .npy, .csv or .json file"
    try:
        matrix = np.asarray(_read(Path(value)) if isinstance(value, str | Path) else value, dtype=np.float64)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{invalid_parameter('values', 'Matrix', requirement, value)} ({error})") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise invalid_parameter("values", "Matrix", requirement, f"shape {matrix.shape}")
    if not (matrix >= 0).all():
        raise invalid_parameter("values", "Matrix", requirement, float(matrix.min()))
    sums = matrix.sum(axis=1)
    if (worst := np.abs(sums - 1)).max() > 1e-6:
        raise invalid_parameter("values", "Matrix", requirement, f"row {worst.argmax()} with sum {sums[worst.argmax()]:g}")
    return tuple(map(tuple, matrix.tolist()))


def _read(path: Path) -> Any:
    match path.suffix:
        case ".npy":
            return np.load(path, allow_pickle=False)
        case ".csv":
            return np.loadtxt(path, delimiter=",")
        case ".json":
            return json.loads(path.read_text(encoding="utf-8"))
    raise ValueError(f"{path.name} does not end in .npy, .csv or .json")


class Matrix(ClassNoise, name="matrix"):
    """Any transition matrix T[i, j] = P(given j | true i), as nested sequences or a .npy, .csv or .json file.

    A file is read when the noise is made, and the repr contains the numbers, so that a run does not change with the file.

    Args:
        values: nested sequences, or the path of a .npy, .csv or .json file.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 0, 1, 1], "matrix(((0, 1), (0, 1)))").labels
        tensor([1, 1, 1, 1])
    """

    values: tuple[tuple[float, ...], ...] = setting(check=_row_stochastic)

    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(key, value)
        vars(self).pop("_repr", None)

    def __repr__(self) -> str:
        return self._repr

    @cached_property
    def _repr(self) -> str:
        """Cached, because a large matrix takes long to write."""
        return self.spec()

    def check(self, examples: Examples) -> None:
        if len(self.values) != examples.num_classes:
            requirement = f"a matrix with a row for each of {examples.num_classes} classes (or set num_classes)"
            raise invalid_parameter("values", "Matrix", requirement, f"{len(self.values)} rows")

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        return np.array(self.values)
