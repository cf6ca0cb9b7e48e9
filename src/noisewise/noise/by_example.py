"""Noises that use more than the class of an example: its input, or human labels."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Floats, Ints
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.noise._rule import Examples, Flipping, Noise, cumulative
from noisewise.noise._stream import Stream, normal_quantile
from noisewise.spec import setting
from noisewise.transition import as_labels


def _inputs(examples: Examples, noise: Noise) -> Tensor:
    if examples.inputs is None:
        raise invalid_parameter("inputs", noise.name, "given, because the noise uses them", None)
    return examples.inputs


def _check_finite(examples: Examples, noise: Noise) -> None:
    if not torch.isfinite(_inputs(examples, noise)).all():
        raise invalid_parameter("inputs", noise.name, "finite numbers", "NaN or infinity")


class Instance(Flipping, name="instance"):
    """Part-dependent noise: the probability of a flip and the new label depend on the input.

    q ~ N(r, 0.1²) truncated to [0, 1];  P(j | x, y) = q · softmax_{j ≠ y}(x · W_y)_j,  W_y ~ N(0, 1) shaped (features, k).

    uint8 inputs are scaled to 0 … 1. The mean of q differs from r near 0 and 1, because of the truncation: for r = 0.05 it is 0.101.
    The rounding of x · W depends on the platform, so that a label may differ if two classes tie to sixteen digits.

    Args:
        rate: r, in (0, 1). With flips="exact", round(r · n) labels are changed.

    Example:
        >>> from noisewise.noise import corrupt
        >>> inputs = torch.arange(12.0).view(4, 3)
        >>> corrupt([0, 1, 2, 0], "instance(0.5, flips='exact')", inputs=inputs).mask.sum()
        tensor(2)

    Reference:
        Xia et al., Part-dependent Label Noise, NeurIPS 2020, algorithm 2.
    """

    looks_at_inputs: ClassVar[bool] = True

    rate: float = setting(bounds="(0, 1)")

    def check(self, examples: Examples) -> None:
        _check_finite(examples, self)

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        inputs = _inputs(examples, self).reshape(len(examples), -1)
        scale = 1 / 255 if inputs.dtype == torch.uint8 else 1.0
        draws = stream.uniform(len(examples), 3)
        flipped = self.choose(self._probability(draws[:, 0]), draws[:, 1], self.rate * len(examples))
        labels = examples.labels.copy()
        for label in range(examples.num_classes):
            projection = stream.normal(inputs.shape[1], examples.num_classes)
            rows = np.flatnonzero(flipped & (examples.labels == label))
            logits = (inputs[rows].double().cpu() * scale @ torch.from_numpy(projection)).numpy()
            logits[:, label] = -np.inf
            chances = cumulative(np.exp(logits - logits.max(axis=1, keepdims=True)))
            labels[rows] = (chances <= draws[rows, 2:]).sum(axis=1)
        return replace(examples, labels=labels), None

    def _probability(self, draws: Floats) -> Floats:
        """Quantiles of the truncated normal distribution."""
        deviation = 0.1
        ends = torch.tensor([-self.rate, 1 - self.rate], dtype=torch.float64) / deviation
        low, high = torch.special.ndtr(ends).tolist()
        return np.clip(self.rate + deviation * normal_quantile(low + (high - low) * draws), 0, 1)


class Human(Noise, name="human"):
    """Human labels instead of the true ones: aggre, random1, random2, random3 or worst for CIFAR-10, fine for CIFAR-100.

    Args:
        which: the name of a set of human labels in the data set.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2], "human(worst)", human={"worst": [0, 2, 2]}).mask
        tensor([False,  True, False])

    Reference:
        Wei et al., Learning with Noisy Labels Revisited: a Study Using Real-World Human Annotations, ICLR 2022.
    """

    replaces_all = True

    which: str = setting()

    def labels(self, examples: Examples) -> Ints:
        if not examples.human:
            advice = "Use CIFAR-10N, or pass labels as corrupt(…, human={…}) in Python."
            raise InputError(f"The noise human({self.which}) needs human labels, which this data set does not have. {advice}")
        if self.which not in examples.human:
            raise unknown("set of human labels", str(self.which), examples.human)
        labels = as_labels(
            examples.human[self.which], what=f"human labels {self.which!r}", owner="corrupt", num_classes=examples.num_classes
        ).numpy()
        if len(labels) != len(examples):
            requirement = f"one label for each of the {len(examples)} examples"
            raise invalid_parameter("human", f"human({self.which})", requirement, f"{len(labels)} labels")
        return labels

    def check(self, examples: Examples) -> None:
        self.labels(examples)

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        return replace(examples, labels=self.labels(examples)), None


class OpenSet(Flipping, name="open_set"):
    """With probability `rate`, the input is replaced by one that belongs to no class; the label stays.

    Args:
        rate: the probability, in [0, 1].
        source: "noise": uniform random numbers between the smallest and the largest input. "other": an example of `other_inputs`; each
            is used once before any is used again.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 1, 2, 3], "open_set(0.5, flips='exact')", inputs=torch.arange(4.0)).mask.sum()
        tensor(2)

    Reference:
        Wang et al., Iterative Learning with Open-set Noisy Labels, CVPR 2018; "abnormal examples" in IMAE, 2019.
    """

    looks_at_inputs: ClassVar[bool] = True

    rate: float = setting(bounds="[0, 1]")
    source: str = setting(default="noise", choices=("noise", "other"))

    def check(self, examples: Examples) -> None:
        inputs, other = _inputs(examples, self), examples.other_inputs
        if self.source == "noise":
            _check_finite(examples, self)
            return
        if other is None or not len(other) or other.shape[1:] != inputs.shape[1:] or other.dtype != inputs.dtype:
            got = None if other is None else f"{other.dtype} shaped {tuple(other.shape)}"
            raise invalid_parameter("other_inputs", self.name, f"{inputs.dtype}, at least one, each shaped {tuple(inputs.shape[1:])}", got)

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
            for part in torch.split(positions, 1024):
                inputs[part] = _uniform_like(inputs[part], low, high, stream)
        return replace(examples, inputs=inputs, replaced=examples.replaced | chosen), np.eye(examples.num_classes)


def _uniform_like(inputs: Tensor, low: float, high: float, stream: Stream) -> Tensor:
    draws = torch.from_numpy(stream.uniform(*inputs.shape))
    if inputs.is_floating_point():
        return (low + (high - low) * draws).to(inputs)
    return (low + (high - low + 1) * draws).floor().to(inputs)
