"""Abnormal tracklets: noises that change all frames of a tracklet, a sequence of one person in front of one camera."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from noisewise.arrays import Floats, Ints
from noisewise.errors import InputError, invalid_parameter
from noisewise.noise._rule import Examples, Flipping, Noise
from noisewise.noise._stream import Stream
from noisewise.spec import setting

_EDGE = 8  # the background is this part of the width on each side


def _tracklets(examples: Examples, noise: Noise) -> Ints:
    """The tracklet of every example, numbered from 0."""
    if examples.tracklets is None:
        advice = "Use mars or pku_reid, or pass them as corrupt(…, tracklets=…) in Python."
        raise InputError(f"The noise {noise!r} needs the tracklets of the examples, which this data set does not have. {advice}")
    return np.unique(examples.tracklets, return_inverse=True)[1].reshape(-1)


class TrackletNoise(Flipping):
    """A noise that changes a tracklet with probability `rate`.

    Args:
        rate: the probability, in [0, 1]. With flips="exact", round(rate · number of tracklets) tracklets are changed.
    """

    rate: float = setting(bounds="[0, 1]")

    def check(self, examples: Examples) -> None:
        _tracklets(examples, self)


class WrongIdentity(TrackletNoise, name="wrong_identity"):
    """With probability `rate`, all frames of a tracklet get the label of one other person, drawn uniformly.

    Example:
        >>> from noisewise.noise import corrupt
        >>> corrupt([0, 0, 1, 1, 2, 2], "wrong_identity(0.34, flips='exact')", tracklets=[0, 0, 1, 1, 2, 2]).labels
        tensor([0, 0, 1, 1, 1, 1])

    Reference:
        Wang et al., IMAE for Noise-Robust Learning, 2019, supplement, section 5: abnormal examples of MARS.
    """

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        tracklets = _tracklets(examples, self)
        number = int(tracklets.max(initial=-1)) + 1
        draws = stream.uniform(number, 2)
        chosen = self.choose(np.full(number, self.rate), draws[:, 0], self.rate * number)
        steps = np.where(chosen, 1 + np.floor(draws[:, 1] * (examples.num_classes - 1)).astype(np.int64), 0)
        return replace(examples, labels=(examples.labels + steps[tracklets]) % examples.num_classes), None


class NoPerson(TrackletNoise, name="no_person"):
    """With probability `rate`, the frames of a tracklet show no person, as if a tracker followed the background; the label stays.

    Each frame is replaced by its own background: the left and the right edge of the image, an eighth of the width each, repeated as
    mirror images. A few pixels of a person can remain at the edges.

    Example:
        >>> from noisewise.noise import corrupt
        >>> image = torch.arange(8).view(1, 1, 1, 8)
        >>> corrupt([0], "no_person(1)", num_classes=2, inputs=image, tracklets=[0]).inputs
        tensor([[[[0, 0, 0, 0, 7, 7, 7, 7]]]])

    Reference:
        Wang et al., IMAE for Noise-Robust Learning, 2019, supplement, section 5: images of MARS with background only.
    """

    looks_at_inputs: ClassVar[bool] = True

    def check(self, examples: Examples) -> None:
        super().check(examples)
        if examples.inputs is None or examples.inputs.dim() != 4:
            got = None if examples.inputs is None else f"shape {tuple(examples.inputs.shape)}"
            raise invalid_parameter("inputs", self.name, "images shaped (N, channels, height, width)", got)

    def corrupt(self, examples: Examples, stream: Stream) -> tuple[Examples, Floats | None]:
        tracklets = _tracklets(examples, self)
        number = int(tracklets.max(initial=-1)) + 1
        chosen = self.choose(np.full(number, self.rate), stream.uniform(number), self.rate * number)[tracklets]
        assert examples.inputs is not None
        inputs = examples.inputs.clone()
        frames = torch.from_numpy(chosen).to(inputs.device)
        inputs[frames] = inputs[frames][..., torch.from_numpy(_background(inputs.shape[-1])).to(inputs.device)]
        return replace(examples, inputs=inputs, replaced=examples.replaced | chosen), np.eye(examples.num_classes)


def _background(width: int) -> Ints:
    """The column of the background that replaces every column of an image.

    Example:
        >>> _background(16).tolist()
        [0, 1, 1, 0, 0, 1, 1, 0, 15, 14, 14, 15, 15, 14, 14, 15]
    """
    edge = max(1, width // _EDGE)
    there_and_back = np.concatenate([np.arange(edge), np.arange(edge)[::-1]])
    left = np.resize(there_and_back, (width + 1) // 2)
    return np.concatenate([left, width - 1 - left[: width // 2][::-1]])
