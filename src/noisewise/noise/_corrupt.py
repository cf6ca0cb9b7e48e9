"""Apply a noise to labels, or get its transition matrix."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Flags, Floats, Ints
from noisewise.errors import invalid_parameter
from noisewise.noise._rule import Examples, Noise, registry
from noisewise.noise._stream import Stream
from noisewise.spec import as_int
from noisewise.transition import as_labels, counted


@dataclass(frozen=True, eq=False, repr=False)
class Corruption:
    """The result of `corrupt`.

    Args:
        labels: the labels after the noise, int64 (N,).
        mask: which examples have a changed label or a replaced input, (N,).
        true: the labels before the noise, (N,).
        matrices: the transition matrices of the parts of a sum of noises, or None if one depends on more than the class.
        num_classes: the number of classes.
        digest: SHA-256 of labels, mask, replaced inputs, noise and seed.
        noise: the spec of the noise.
        seed: the seed.
        inputs: the inputs if the noise replaced some, otherwise None.
        replaced: which inputs were replaced, (N,), or None if none were.
    """

    labels: Tensor
    mask: Tensor
    true: Ints
    matrices: tuple[Floats, ...] | None
    num_classes: int
    digest: str
    noise: str
    seed: int
    inputs: Tensor | None = None
    replaced: Tensor | None = None

    @cached_property
    def expected(self) -> Tensor | None:
        """The transition matrix of the noise, float64, or None if the noise depends on more than the class."""
        return None if self.matrices is None else torch.from_numpy(_product(self.matrices))

    @cached_property
    def realised(self) -> Tensor:
        """The transition matrix of the result, float64; a class without examples has the row of the identity matrix."""
        return counted(self.true, self.labels, self.num_classes)

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
    classes: Sequence[str] | None = None,
    tracklets: Any = None,
) -> Corruption:
    """Corrupt labels with a named noise.

    Args:
        labels: the true labels: a tensor, an array or a list of integers, (N,).
        noise: a spec such as ``"symmetric(0.4)"`` or ``"pair(0.2, flips='exact') + open_set(0.1)"``, or a `Noise`.
        num_classes: the number of classes; by default the number of `superclasses`, or else the largest label plus one.
        seed: any integer. The same labels, noise and seed give the same result on every platform.
        inputs: the inputs, (N, …), for the noises that use them.
        superclasses: the superclass of every class, for the superclass noises; by default those of CIFAR-100 if there are 100 classes.
        human: human labels for the same examples by name, for ``"human(…)"``.
        other_inputs: inputs of another data set, (M, …), for ``"open_set(…, source='other')"``.
        classes: the name of every class, in order, for noises that name classes.
        tracklets: the number of the tracklet of every example, (N,), for noises that change whole tracklets.

    Returns:
        The labels, which examples changed, both transition matrices and a digest; see `Corruption`.

    Example:
        >>> corrupt(torch.arange(1000) % 10, "symmetric(0.4, flips='exact')", seed=1)
        Corruption(symmetric(0.4, flips='exact'), seed 1: 400 of 1000 changed, 96071e4a1dae)
    """
    rule = registry.get(noise)
    if not isinstance(rule, Noise):
        raise invalid_parameter("noise", "corrupt", 'a noise or its spec, like "symmetric(0.4)"', noise)
    seed = as_int("seed", "corrupt", seed)
    examples = _examples(labels, num_classes, inputs, superclasses, human or {}, other_inputs, classes, tracklets)
    true = examples.labels
    examples, matrices = _applied(rule, examples, seed)
    mask = (examples.labels != true) | examples.replaced
    device = labels.device if isinstance(labels, Tensor) else "cpu"
    return Corruption(
        labels=torch.from_numpy(examples.labels).to(device),
        mask=torch.from_numpy(mask).to(device),
        true=true,
        matrices=matrices,
        num_classes=examples.num_classes,
        digest=_digest(examples, mask, repr(rule), seed),
        noise=repr(rule),
        seed=seed,
        inputs=examples.inputs if examples.replaced.any() else None,
        replaced=torch.from_numpy(examples.replaced).to(device) if examples.replaced.any() else None,
    )


def matrix_of(noise: Noise, num_classes: int, seed: int = 0) -> Floats | None:
    """The transition matrix of a noise for a number of classes, or None if it depends on more than the class.

    Args:
        noise: a noise that needs only the labels.
        num_classes: the number of classes.
        seed: the seed, for noises that draw their matrix.

    Example:
        >>> matrix_of(registry.get("pair(0.25)"), 2)
        array([[0.75, 0.25],
               [0.25, 0.75]])
    """
    matrices = _applied(noise, Examples(np.arange(num_classes), num_classes, None, np.zeros(num_classes, dtype=bool)), seed)[1]
    return None if matrices is None else _product(matrices)


def _product(matrices: tuple[Floats, ...]) -> Floats:
    return functools.reduce(np.matmul, map(np.ascontiguousarray, matrices))


def _applied(rule: Noise, examples: Examples, seed: int) -> tuple[Examples, tuple[Floats, ...] | None]:
    """Check all parts of a noise, then apply them; return the examples and the transition matrices of the parts."""
    for part in rule.parts:
        part.check(examples)
    matrices = []
    for position, part in enumerate(rule.parts):
        examples, matrix = part.corrupt(examples, Stream(seed, f"{position}/{part!r}"))
        matrices.append(matrix)
    known = tuple(matrix for matrix in matrices if matrix is not None)
    return examples, known if len(known) == len(matrices) else None


def _examples(
    labels: Any,
    num_classes: int | None,
    inputs: Tensor | None,
    superclasses: Sequence[int] | None,
    human: Mapping[str, Any],
    other_inputs: Tensor | None,
    classes: Sequence[str] | None,
    tracklets: Any,
) -> Examples:
    groups = None if superclasses is None else as_labels(superclasses, what="superclasses", owner="corrupt").numpy()
    if num_classes is None:
        known = groups if groups is not None else classes
        num_classes = int(as_labels(labels, owner="corrupt").max()) + 1 if known is None else len(known)
    num_classes = as_int("num_classes", "corrupt", num_classes, 2)
    if groups is not None and len(groups) != num_classes:
        raise invalid_parameter("superclasses", "corrupt", f"one for each of the {num_classes} classes", f"{len(groups)} of them")
    true = as_labels(labels, owner="corrupt", num_classes=num_classes).numpy()
    if inputs is not None and (not isinstance(inputs, Tensor) or inputs.shape[:1] != true.shape):
        got = getattr(inputs, "shape", inputs)
        raise invalid_parameter("inputs", "corrupt", f"a tensor with one input for each of the {len(true)} labels", got)
    if classes is not None and len(classes) != num_classes:
        raise invalid_parameter("classes", "corrupt", f"one name for each of the {num_classes} classes", f"{len(classes)} of them")
    names = None if classes is None else tuple(map(str, classes))
    if tracklets is not None:
        tracklets = as_labels(tracklets, what="tracklets", owner="corrupt").numpy()
        if len(tracklets) != len(true):
            raise invalid_parameter("tracklets", "corrupt", f"one for each of the {len(true)} labels", f"{len(tracklets)} of them")
    return Examples(true, num_classes, inputs, np.zeros(len(true), dtype=bool), groups, human, other_inputs, names, tracklets)


def _digest(examples: Examples, mask: Flags, noise: str, seed: int) -> str:
    digest = hashlib.sha256(examples.labels.astype("<i8").tobytes())
    digest.update(mask.tobytes())
    digest.update(f"{noise}/{seed}".encode())
    if examples.inputs is not None and examples.replaced.any():
        replaced = examples.inputs[torch.from_numpy(examples.replaced)].cpu().contiguous()
        digest.update(replaced.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
