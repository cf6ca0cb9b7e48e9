"""Label noise with a name: rules that corrupt labels, and the one function that applies them.

``corrupt(labels, "symmetric(0.4)")`` returns the corrupted labels, which examples were changed, the transition matrix that was
asked for and the one that came out, and a digest of the result. Matrices are row-stochastic throughout, with the true label
first: ``T[i, j] = P(given label j | true label i)``.

Every random number comes from a generator of the noise's own, never from global state, and is the same on every platform: the
64-bit words of Philox4x64-10, whose key is the first 16 bytes (little-endian) of the SHA-256 of ``"seed/position/spec"``, where
``position`` counts the parts of a sum from 0 and ``spec`` is the part's repr. A word ``w`` is the uniform number
``((w >> 12) + 0.5) / 2**52``, strictly between 0 and 1. The first part of a sum therefore does what it does alone.

This module knows labels, and inputs as bare tensors. It must not know data sets, where they come from, or how they are used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise.errors import InputError, must, unknown
from noisewise.spec import Named, Registry, setting
from noisewise.transition import as_labels, counted

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

registry: Registry[Noise] = Registry("noise")

CLASS_MAPS: Mapping[str, Mapping[int, int]] = {
    "cifar10": {9: 1, 2: 0, 4: 7, 3: 5, 5: 3},  # truck → automobile, bird → airplane, deer → horse, cat ↔ dog
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
}

CIFAR100_SUPERCLASSES: tuple[int, ...] = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
"""The official coarse label of each of CIFAR-100's fine labels."""


class Stream:
    """Uniform numbers strictly between 0 and 1, decided by a seed and a text alone.

    Example:
        >>> Stream(0, "0/symmetric(0.4)").uniform(2)
        array([0.72490025, 0.54844396])
    """

    def __init__(self, seed: int, text: str) -> None:
        key = hashlib.sha256(f"{seed}/{text}".encode()).digest()[:16]
        self._words = np.random.Philox(key=int.from_bytes(key, "little"))

    def uniform(self, *shape: int) -> Floats:
        words = self._words.random_raw(math.prod(shape))
        # 52 bits and a half: zero and one are never drawn, so rates of 0 and 1 are exact and every quantile is finite.
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5).reshape(shape) * 2.0**-52

    def normal(self, *shape: int) -> Floats:
        return _normal_quantile(self.uniform(*shape))


def _normal_quantile(probability: Floats) -> Floats:
    return torch.special.ndtri(torch.from_numpy(probability)).numpy()  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Examples:
    """What a noise may look at: the labels so far, and what else is known of the examples.

    Args:
        labels: int64 (N,).
        num_classes: the number of classes.
        inputs: (N, …), or None.
        replaced: whose inputs are no longer their own, (N,).
        superclasses: the superclass of every class, or None.
        human: people's labels for the same examples, by name.
        other_inputs: inputs of another data set, (M, …), or None.
    """

    labels: Whole
    num_classes: int
    inputs: Tensor | None
    replaced: Flags
    superclasses: Whole | None = None
    human: Mapping[str, Any] = field(default_factory=dict)
    other_inputs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)


class Noise(Named, registry=registry):
    """A rule that corrupts labels. Noises add: ``symmetric(0.4) + open_set(0.1)`` does one, then the other."""

    def check(self, examples: Examples) -> None:
        """Raise `InputError` if the rule lacks something it needs; called before anything is changed."""

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        """The examples after the rule, and its transition matrix, or None where that depends on more than the class."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Noise, ...]:
        """The rules it is a sum of, in order."""
        return (self,)

    def __add__(self, other: Noise) -> Noise:
        return Sum(self.parts + other.parts) if isinstance(other, Noise) else NotImplemented


def _human_first(parts: tuple[Noise, ...]) -> tuple[Noise, ...]:
    if any(isinstance(part, Human) for part in parts[1:]):
        raise must("parts", "a sum of noises", "such that human labels come first, because they replace all labels", parts)
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
        flips: "independent": every example is changed with its probability, on its own. "exact": exactly as many examples are
            changed as are expected to be, rounded: round(r · n), where n counts the examples that the rule can change.
    """

    flips: str = setting(default="independent", choices=("independent", "exact"), kw_only=True)

    def choose(self, probability: Floats, draws: Floats, expected: float) -> Flags:
        """Which examples change: those whose draw is below their probability, or the `expected` number that come nearest to it."""
        if self.flips == "independent":
            return draws < probability
        distance = np.divide(draws, probability, out=np.full_like(draws, np.inf), where=probability > 0)
        number = round(round(expected, 6))  # a sum of probabilities carries rounding errors: a half must still be a half
        chosen = np.zeros(len(draws), dtype=bool)
        chosen[np.argsort(distance, kind="stable")[:number]] = True
        return chosen


class ClassNoise(Flipping):
    """A noise that looks at the class alone, and so is its transition matrix. Write `transition`.

    Two numbers are drawn for one example after the other: whether it flips, and where to. Under independent flips, then, the
    examples that follow an example do not matter to it.
    """

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        """T[i, j] = P(given j | true i), shaped (num_classes, num_classes)."""
        raise NotImplementedError

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        matrix = self.transition(examples, stream)
        draws = stream.uniform(len(examples), 2)
        # A class with nowhere to go stays, though rounding may have left its diagonal a hair below one.
        leaves = (matrix - np.diag(matrix.diagonal())).any(axis=1)
        leaving = np.where(leaves, 1 - matrix.diagonal(), 0.0)[examples.labels]
        flipped = np.flatnonzero(self.choose(leaving, draws[:, 0], float(leaving.sum())))
        labels = examples.labels.copy()
        labels[flipped] = _draw_other(matrix, labels[flipped], draws[flipped, 1])
        return replace(examples, labels=labels), matrix


def _draw_other(matrix: Floats, labels: Whole, draws: Floats) -> Whole:
    """A label from each label's row of the matrix, given that it is another one."""
    result = np.empty_like(labels)
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], np.arange(len(matrix) + 1))
    for label in np.unique(labels):
        row = matrix[label].copy()
        row[label] = 0
        here = order[edges[label] : edges[label + 1]]
        result[here] = np.searchsorted(_cumulative(row), draws[here], side="right")
    return result


def _cumulative(weights: Floats) -> Floats:
    """Sums from the left over the last dimension, ending in exactly 1, so that no draw falls behind the last or into a zero."""
    sums = np.cumsum(weights, axis=-1)
    return sums / sums[..., -1:]


class DirectedNoise(ClassNoise):
    """A noise that with probability `rate` moves a label in a direction of its class. Write `directions`.

    T = (1 − rate) · I + rate · D.

    Args:
        rate: the probability, in [0, 1].
    """

    rate: float = setting(bounds="[0, 1]")

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        """D[i, j]: where the labels of class i go, row-stochastic; the identity for a class that stays."""
        raise NotImplementedError

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        return (1 - self.rate) * np.eye(examples.num_classes) + self.rate * self.directions(examples, stream)


class NoNoise(Noise, name="none"):
    """The labels as they are.

    Example:
        >>> int(corrupt([0, 1, 2], "none").mask.sum())
        0
    """

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        return examples, np.eye(examples.num_classes)


class Symmetric(DirectedNoise, name="symmetric"):
    """With probability `rate`, uniformly one of the OTHER classes.

    T[i, i] = 1 − r,  T[i, j] = r / (k − 1).

    Example:
        >>> corrupt([0, 1, 2], "symmetric(0.3)").asked
        tensor([[0.7000, 0.1500, 0.1500],
                [0.1500, 0.7000, 0.1500],
                [0.1500, 0.1500, 0.7000]], dtype=torch.float64)

    Reference:
        Wang et al., IMAE for Noise-Robust Learning, 2019; van Rooyen et al., Learning with Symmetric Label Noise, NeurIPS 2015.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        return (1 - np.eye(examples.num_classes)) / (examples.num_classes - 1)


class SymmetricInclusive(DirectedNoise, name="symmetric_inclusive"):
    """With probability `rate`, uniformly one of ALL classes, so that the real rate is r (k − 1) / k.

    T[i, i] = 1 − r + r / k,  T[i, j] = r / k.

    Example:
        >>> corrupt([0, 1], "symmetric_inclusive(0.4)").asked
        tensor([[0.8000, 0.2000],
                [0.2000, 0.8000]], dtype=torch.float64)

    Reference:
        Li et al., DivideMix, ICLR 2020; Liu et al., Early-Learning Regularization, NeurIPS 2020.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        return np.full((examples.num_classes,) * 2, 1 / examples.num_classes)


def _onto(targets: Whole) -> Floats:
    """The directions of a rule that sends every class to one class."""
    return np.eye(len(targets))[targets]


class Pair(DirectedNoise, name="pair"):
    """With probability `rate`, the next class: y → y + 1 mod k.

    Example:
        >>> corrupt([0, 1, 2], "pair(1)").labels
        tensor([1, 2, 0])

    Reference:
        Han et al., Co-teaching, NeurIPS 2018.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        return _onto(np.roll(np.arange(examples.num_classes), -1))


def _class_map(value: Any) -> str | dict[int, int]:
    if isinstance(value, str):
        if value not in CLASS_MAPS:
            raise unknown("class map", value, CLASS_MAPS)
        return value
    requirement = f"{' or '.join(CLASS_MAPS)}, or a dictionary from classes to other classes, like {{9: 1, 2: 0}}"
    try:
        pairs = {operator.index(source): operator.index(target) for source, target in dict(value).items()}
    except (TypeError, ValueError):
        raise must("map", "ClassMap", requirement, value) from None
    if not pairs or any(source == target or min(source, target) < 0 for source, target in pairs.items()):
        raise must("map", "ClassMap", requirement, value)
    return pairs


class ClassMap(DirectedNoise, name="class_map"):
    """With probability `rate`, the class that the map names; classes not in the map keep their labels.

    Args:
        map: "cifar10" (truck → automobile, bird → airplane, deer → horse, cat ↔ dog), "mnist" (7 → 1, 2 → 7, 5 ↔ 6, 3 → 8), or a
            dictionary.

    Example:
        >>> corrupt([0, 1, 2, 9], "class_map(1, {2: 0, 9: 1})", num_classes=10).labels
        tensor([0, 1, 0, 1])

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach, CVPR 2017.
    """

    rate: float = setting(bounds="[0, 1]")
    map: str | dict[int, int] = setting(check=_class_map)

    def check(self, examples: Examples) -> None:
        if isinstance(self.map, str):
            if examples.num_classes != 10:
                raise must("num_classes", f"the {self.map} class map", "10", examples.num_classes)
        elif (highest := max(max(pair) for pair in self.map.items())) >= examples.num_classes:
            raise must("map", "ClassMap", f"between classes below {examples.num_classes}, the number of classes", highest)

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        pairs = CLASS_MAPS[self.map] if isinstance(self.map, str) else self.map
        targets = np.arange(examples.num_classes)
        targets[list(pairs)] = list(pairs.values())
        return _onto(targets)


class SuperclassNoise(DirectedNoise):
    """A noise inside the superclasses. A class alone in its superclass keeps its labels."""

    def superclasses(self, examples: Examples) -> Whole:
        if examples.superclasses is not None:
            return examples.superclasses
        if examples.num_classes == len(CIFAR100_SUPERCLASSES):
            return np.array(CIFAR100_SUPERCLASSES)
        raise must("superclasses", self.name, f"given, one for each of the {examples.num_classes} classes", None)

    def check(self, examples: Examples) -> None:
        self.superclasses(examples)

    def members(self, examples: Examples) -> list[Whole]:
        """The classes of every superclass."""
        superclasses = self.superclasses(examples)
        return [np.flatnonzero(superclasses == superclass) for superclass in np.unique(superclasses)]


class SuperclassCircular(SuperclassNoise, name="superclass_circular"):
    """With probability `rate`, the next class of the same superclass, the last one going to the first.

    Superclasses are those given, or CIFAR-100's where there are 100 classes and none are given.

    Example:
        >>> corrupt([0, 1, 2, 3], "superclass_circular(1)", superclasses=[0, 1, 0, 1]).labels
        tensor([2, 3, 0, 1])

    Reference:
        Ou and Zhang, A Curriculum View of Robust Loss Functions, 2023; after Patrini et al., CVPR 2017.
    """

    def directions(self, examples: Examples, stream: Stream) -> Floats:
        targets = np.arange(examples.num_classes)
        for members in self.members(examples):
            targets[members] = np.roll(members, -1)
        return _onto(targets)


class SuperclassCircularLegacy(SuperclassCircular, name="superclass_circular_legacy"):
    """With probability `rate`, the next class within a block of five consecutive labels.

    What most published code does for CIFAR-100, whose labels are in alphabetical order: only 6 of the 100 flips stay inside the
    true superclass (apple → aquarium_fish → baby …). For comparison with those numbers only.

    Example:
        >>> corrupt([0, 3, 4], "superclass_circular_legacy(1)", num_classes=100).labels
        tensor([1, 4, 0])

    Reference:
        The published code of Patrini et al., CVPR 2017, and of Ma et al., Normalized Loss Functions, ICML 2020.
    """

    def superclasses(self, examples: Examples) -> Whole:
        if examples.num_classes % 5:
            raise must("num_classes", self.name, "a multiple of 5", examples.num_classes)
        return np.arange(examples.num_classes) // 5


class SuperclassUniform(SuperclassNoise, name="superclass_uniform"):
    """With probability `rate`, uniformly one of the other classes of the same superclass.

    Example:
        >>> corrupt([0, 1, 2], "superclass_uniform(0.4)", superclasses=[0, 0, 0]).asked[0]
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
    """Two random classes of every superclass, chosen by the seed, are flipped to each other with probability `rate`.

    Example:
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
        return _onto(targets)


def _row_stochastic(value: Any) -> tuple[tuple[float, ...], ...]:
    requirement = "a square matrix of probabilities whose rows sum to one, as nested sequences or a .npy, .csv or .json file"
    try:
        matrix = np.asarray(_read(Path(value)) if isinstance(value, str | Path) else value, dtype=np.float64)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{must('values', 'Matrix', requirement, value)} ({error})") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise must("values", "Matrix", requirement, f"shape {matrix.shape}")
    if not (matrix >= 0).all():
        raise must("values", "Matrix", requirement, float(matrix.min()))
    sums = matrix.sum(axis=1)
    if (worst := np.abs(sums - 1)).max() > 1e-6:
        raise must("values", "Matrix", requirement, f"row {worst.argmax()} with sum {sums[worst.argmax()]:g}")
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
    """Any noise of the class alone, by its transition matrix T[i, j] = P(given j | true i).

    A file is read when the noise is made, and its repr holds the numbers: what a run was asked for does not change with a file.

    Args:
        values: nested sequences, or the path of a .npy, .csv or .json file.

    Example:
        >>> corrupt([0, 0, 1, 1], "matrix(((0, 1), (0, 1)))").labels
        tensor([1, 1, 1, 1])
    """

    values: tuple[tuple[float, ...], ...] = setting(check=_row_stochastic)

    def check(self, examples: Examples) -> None:
        if len(self.values) != examples.num_classes:
            raise must(
                "values", "Matrix", f"shaped like the {examples.num_classes} classes (say num_classes=…)", f"{len(self.values)} rows"
            )

    def transition(self, examples: Examples, stream: Stream) -> Floats:
        return np.array(self.values)


def _inputs(examples: Examples, noise: Noise) -> Tensor:
    if examples.inputs is None:
        raise must("inputs", noise.name, "given, because it looks at them", None)
    return examples.inputs


class Instance(Flipping, name="instance"):
    """Part-dependent noise: how likely an example flips, and where to, depends on its input.

    q ~ N(r, 0.1²) truncated to [0, 1];  P(j | x, y) = q · softmax_{j ≠ y}(x · W_y)_j,  W_y ~ N(0, 1) shaped (features, k).

    Bytes count as numbers from 0 to 1. The mean of q is r only where the truncation is far: for r = 0.05 it is 0.101 instead. The
    products x · W are rounded as the machine's linear algebra rounds them, so that a label could differ between platforms where
    two classes tie to sixteen digits.

    Args:
        rate: r, in (0, 1). With flips="exact", round(r · n) labels are changed.

    Example:
        >>> inputs = torch.arange(12.0).view(4, 3)
        >>> corrupt([0, 1, 2, 0], "instance(0.5, flips='exact')", inputs=inputs).mask.sum()
        tensor(2)

    Reference:
        Xia et al., Part-dependent Label Noise, NeurIPS 2020, algorithm 2.
    """

    rate: float = setting(bounds="(0, 1)")

    def check(self, examples: Examples) -> None:
        if not torch.isfinite(_inputs(examples, self)).all():
            raise must("inputs", self.name, "finite numbers", "NaN or infinity")

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        inputs = _inputs(examples, self).reshape(len(examples), -1)
        scale = 1 / 255 if inputs.dtype == torch.uint8 else 1.0
        draws = stream.uniform(len(examples), 3)
        flipped = self.choose(self._probability(draws[:, 0]), draws[:, 1], self.rate * len(examples))
        labels = examples.labels.copy()
        for label in range(examples.num_classes):
            projection = stream.normal(inputs.shape[1], examples.num_classes)
            here = np.flatnonzero(flipped & (examples.labels == label))
            pull = (inputs[here].double().cpu() * scale @ torch.from_numpy(projection)).numpy()
            pull[:, label] = -np.inf
            chances = _cumulative(np.exp(pull - pull.max(axis=1, keepdims=True)))
            labels[here] = (chances <= draws[here, 2:]).sum(axis=1)
        return replace(examples, labels=labels), None

    def _probability(self, draws: Floats) -> Floats:
        """Quantiles of the truncated normal distribution."""
        deviation = 0.1
        ends = torch.tensor([-self.rate, 1 - self.rate], dtype=torch.float64) / deviation
        low, high = torch.special.ndtr(ends).tolist()
        return np.clip(self.rate + deviation * _normal_quantile(low + (high - low) * draws), 0, 1)


class Human(Noise, name="human"):
    """The labels people gave, in place of the true ones.

    Args:
        which: whose: the data set's names for them. CIFAR-10N has aggre, random1, random2, random3 and worst; CIFAR-100N has fine.

    Example:
        >>> corrupt([0, 1, 2], "human(worst)", human={"worst": [0, 2, 2]}).mask
        tensor([False,  True, False])

    Reference:
        Wei et al., Learning with Noisy Labels Revisited: a Study Using Real-World Human Annotations, ICLR 2022.
    """

    which: str = setting()

    def labels(self, examples: Examples) -> Whole:
        if not examples.human:
            raise must("human", f"human({self.which})", "given: people's labels by name", {})
        if self.which not in examples.human:
            raise unknown("set of human labels", str(self.which), examples.human)
        given = examples.human[self.which]
        labels = as_labels(given, what=f"human labels {self.which!r}", owner="corrupt", num_classes=examples.num_classes).numpy()
        if len(labels) != len(examples):
            raise must("human", f"human({self.which})", f"one label for each of the {len(examples)} examples", f"{len(labels)} labels")
        return labels

    def check(self, examples: Examples) -> None:
        self.labels(examples)

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        return replace(examples, labels=self.labels(examples)), None


class OpenSet(Flipping, name="open_set"):
    """With probability `rate`, an example's input is replaced by something that belongs to no class; its label stays.

    Args:
        rate: the probability, in [0, 1].
        source: "noise": every number drawn uniformly between the smallest and the largest of the inputs. "other": an example of
            `other_inputs`, each used once before any is used again.

    Example:
        >>> corrupt([0, 1, 2, 3], "open_set(0.5, flips='exact')", inputs=torch.arange(4.0)).mask.sum()
        tensor(2)

    Reference:
        Wang et al., Iterative Learning with Open-set Noisy Labels, CVPR 2018; "abnormal examples" in IMAE, 2019.
    """

    rate: float = setting(bounds="[0, 1]")
    source: str = setting(default="noise", choices=("noise", "other"))

    def check(self, examples: Examples) -> None:
        inputs, other = _inputs(examples, self), examples.other_inputs
        if self.source == "noise":
            return
        if other is None or not len(other) or other.shape[1:] != inputs.shape[1:] or other.dtype != inputs.dtype:
            got = None if other is None else f"{other.dtype} shaped {tuple(other.shape)}"
            raise must("other_inputs", self.name, f"{inputs.dtype}, at least one, each shaped {tuple(inputs.shape[1:])}", got)

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        inputs = _inputs(examples, self).clone()
        number = len(examples)
        chosen = self.choose(np.full(number, self.rate), stream.uniform(number), self.rate * number)
        positions = torch.from_numpy(np.flatnonzero(chosen))
        if self.source == "other":
            assert examples.other_inputs is not None
            order = np.argsort(stream.uniform(len(examples.other_inputs)), kind="stable")
            inputs[positions] = examples.other_inputs[np.resize(order, len(positions))].to(inputs.device)
        else:
            low, high = inputs.min().item(), inputs.max().item()
            for some in torch.split(positions, 1024):
                inputs[some] = _uniform_like(inputs[some], low, high, stream)
        return replace(examples, inputs=inputs, replaced=examples.replaced | chosen), np.eye(examples.num_classes)


def _uniform_like(inputs: Tensor, low: float, high: float, stream: Stream) -> Tensor:
    draws = torch.from_numpy(stream.uniform(*inputs.shape))
    if inputs.is_floating_point():
        return (low + (high - low) * draws).to(inputs)
    return (low + (high - low + 1) * draws).floor().to(inputs)


@dataclass(frozen=True, eq=False, repr=False)
class Corruption:
    """What `corrupt` made.

    Args:
        labels: the labels after the noise, int64 (N,).
        mask: which examples are not what their label says: the label was changed or the input replaced, (N,).
        asked: the transition matrix the noise stands for, float64, or None where it depends on more than the class.
        realised: the transition matrix that came out, float64; the identity's row for a class with no example.
        digest: SHA-256 of labels, mask, replaced inputs, noise and seed.
        noise: the spec of the noise; the registry reads it back.
        seed: the seed.
        inputs: the inputs, where the noise replaced some; otherwise None.
    """

    labels: Tensor
    mask: Tensor
    asked: Tensor | None
    realised: Tensor
    digest: str
    noise: str
    seed: int
    inputs: Tensor | None = None

    @property
    def rate(self) -> float:
        """The share of the examples that were changed."""
        return float(self.mask.double().mean())

    def __repr__(self) -> str:
        return f"Corruption({self.noise}, seed {self.seed}: {int(self.mask.sum())} of {len(self.mask)} changed, {self.digest[:12]})"


def corrupt(
    labels: Any,
    noise: str | Noise,
    *,
    num_classes: int | None = None,
    seed: int = 0,
    inputs: Tensor | None = None,
    superclasses: Sequence[int] | None = None,
    human: Mapping[str, Any] | None = None,
    other_inputs: Tensor | None = None,
) -> Corruption:
    """Corrupt labels with a named noise.

    Args:
        labels: the true labels: a tensor, an array or a list of whole numbers, (N,).
        noise: a spec such as ``"symmetric(0.4)"`` or ``"pair(0.2, flips='exact') + open_set(0.1)"``, or a `Noise`.
        num_classes: the number of classes; by default the number of `superclasses`, or else the largest label plus one.
        seed: any whole number. The same labels, noise and seed give the same result on every platform.
        inputs: the inputs, (N, …), for the noises that look at them.
        superclasses: the superclass of every class, for the superclass noises; CIFAR-100's by default where there are 100 classes.
        human: people's labels for the same examples by name, for ``"human(…)"``.
        other_inputs: another data set's inputs, (M, …), for ``"open_set(…, source='other')"``.

    Returns:
        The labels, what was changed, both transition matrices and a digest; see `Corruption`.

    Example:
        >>> corrupt(torch.arange(1000) % 10, "symmetric(0.4, flips='exact')", seed=1)
        Corruption(symmetric(0.4, flips='exact'), seed 1: 400 of 1000 changed, 96071e4a1dae)
    """
    rule = registry.get(noise)
    if not isinstance(rule, Noise):
        raise must("noise", "corrupt", 'a noise or its spec, like "symmetric(0.4)"', noise)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise must("seed", "corrupt", "a whole number", seed)
    examples = _examples(labels, num_classes, inputs, superclasses, human or {}, other_inputs)
    for part in rule.parts:
        part.check(examples)
    true = examples.labels
    matrices = []
    for position, part in enumerate(rule.parts):
        examples, matrix = part.corrupt(examples, Stream(int(seed), f"{position}/{part!r}"))
        matrices.append(matrix)
    known = [matrix for matrix in matrices if matrix is not None]
    mask = (examples.labels != true) | examples.replaced
    device = labels.device if isinstance(labels, Tensor) else "cpu"
    return Corruption(
        labels=torch.from_numpy(examples.labels).to(device),
        mask=torch.from_numpy(mask).to(device),
        asked=torch.from_numpy(functools.reduce(np.matmul, known)) if len(known) == len(matrices) else None,
        realised=counted(true, examples.labels, examples.num_classes),
        digest=_digest(examples, mask, repr(rule), int(seed)),
        noise=repr(rule),
        seed=int(seed),
        inputs=examples.inputs if examples.replaced.any() else None,
    )


def _examples(
    labels: Any,
    num_classes: int | None,
    inputs: Tensor | None,
    superclasses: Sequence[int] | None,
    human: Mapping[str, Any],
    other_inputs: Tensor | None,
) -> Examples:
    groups = None if superclasses is None else as_labels(superclasses, what="superclasses", owner="corrupt").numpy()
    if num_classes is None:
        num_classes = int(as_labels(labels, owner="corrupt").max()) + 1 if groups is None else len(groups)
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise must("num_classes", "corrupt", "a whole number of at least 2", num_classes)
    if groups is not None and len(groups) != num_classes:
        raise must("superclasses", "corrupt", f"one for each of the {num_classes} classes", f"{len(groups)} of them")
    true = as_labels(labels, owner="corrupt", num_classes=int(num_classes)).numpy()
    if inputs is not None and (not isinstance(inputs, Tensor) or inputs.shape[:1] != true.shape):
        raise must("inputs", "corrupt", f"a tensor of one input for each of the {len(true)} labels", getattr(inputs, "shape", inputs))
    return Examples(true, int(num_classes), inputs, np.zeros(len(true), dtype=bool), groups, human, other_inputs)


def _digest(examples: Examples, mask: Flags, noise: str, seed: int) -> str:
    digest = hashlib.sha256(examples.labels.astype("<i8").tobytes())
    digest.update(mask.tobytes())
    digest.update(f"{noise}/{seed}".encode())
    if examples.inputs is not None and examples.replaced.any():
        replaced = examples.inputs[torch.from_numpy(examples.replaced)].cpu().contiguous()
        digest.update(replaced.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
