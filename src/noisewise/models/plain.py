"""The plain convolutional networks of the curriculum paper: four layers for MNIST, eight for CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from noisewise.errors import invalid_parameter
from noisewise.models._base import INITIALISATIONS, ImageClassifier
from noisewise.spec import setting


class PlainNetwork(ImageClassifier):
    """Groups of 3×3 convolutions, each followed by a 2×2 max-pooling, and one hidden linear layer.

    Convolutions and linear layers have biases; each is followed by batch normalisation, unless norm is "none", and ReLU.

    Reference:
        Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.
    """

    size: int = setting(default=32, bounds="[8, inf)", integer=True, kw_only=True)
    init: str = setting(default="kaiming_uniform", choices=tuple(INITIALISATIONS), kw_only=True)

    norm: str = setting(default="batch", choices=("batch", "none"), kw_only=True)

    groups: ClassVar[tuple[tuple[int, ...], ...]]
    hidden: ClassVar[int]

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        settings = super().settings_for(shape)
        if shape[1] != shape[2]:
            raise invalid_parameter("shape", cls.__name__, "that of a square image", tuple(shape))
        return {**settings, "size": shape[1]}

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.shape[2:] != (self.size, self.size):
            raise invalid_parameter("x", type(self).__name__, f"shaped (N, {self.channels}, {self.size}, {self.size})", tuple(x.shape))

    def build(self) -> int:
        layers: list[nn.Module] = []
        normalised = self.norm == "batch"
        inputs = self.channels
        for group in self.groups:
            for width in group:
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width) if normalised else nn.Identity(), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        pixels = (self.size // 2 ** len(self.groups)) ** 2
        last = nn.BatchNorm1d(self.hidden) if normalised else nn.Identity()
        layers += [nn.Flatten(), nn.Linear(inputs * pixels, self.hidden), last, nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        return self.hidden

    def embed(self, x: Tensor) -> Tensor:
        return self.trunk(x)  # type: ignore[no-any-return]


class CNN4(PlainNetwork, name="cnn4"):
    """The 4-layer CNN for MNIST: 422,090 parameters with 10 classes; embedding 128.

    Args:
        channels: 1 for MNIST.
        size: the height and width of an image, 28 for MNIST.
        norm: "batch" for batch normalisation after every layer, or "none".

    Example:
        >>> import torch
        >>> CNN4(num_classes=10).features(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """

    channels: int = setting(default=1, bounds="[1, inf)", integer=True, kw_only=True)
    size: int = setting(default=28, bounds="[4, inf)", integer=True, kw_only=True)

    groups = ((32,), (64,))
    hidden = 128


class CNN8(PlainNetwork, name="cnn8"):
    """The 8-layer CNN for CIFAR-10: 1,639,794 parameters with 10 classes; embedding 256.

    Args:
        size: the height and width of an image, 32 for CIFAR.
        norm: "batch" for batch normalisation after every layer, or "none".

    Example:
        >>> import torch
        >>> CNN8(num_classes=10).features(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """

    groups = ((64, 64), (128, 128), (196, 196))
    hidden = 256
