"""Inception networks: GoogLeNet V1 for 32×32 images, and GoogLeNet V2 (BN-Inception) for 224×224 ones.

Both follow the tables of their papers. Every convolution has no bias and is followed by batch normalisation and ReLU. There are no
auxiliary classifiers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisewise.models._base import ImageClassifier


def _unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def _halving() -> nn.MaxPool2d:
    # The padding gives the same size as a convolution with stride 2.
    return nn.MaxPool2d(3, stride=2, padding=1)


class Branches(nn.Module):
    """Parallel paths, whose outputs are concatenated along the channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([path(x) for path in self.paths], 1)


class GoogLeNet(ImageClassifier, name="googlenet"):
    """GoogLeNet V1 for 32×32 images: 5,983,402 parameters with 10 classes; embedding 1024.

    Modules 3a to 5b are those of the paper. For small images the stem is a 3×3 convolution with stride 1 without pooling, so that
    modules 3, 4 and 5 see 32×32, 16×16 and 8×8. Batch normalisation replaces local response normalisation.

    Table 4 of the GR paper names GoogLeNet V1 in the setting of MentorNet, whose published code calls a smaller network "inception".

    Args:
        dropout: 0.4 in the paper.

    Example:
        >>> GoogLeNet(num_classes=10).features(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 1024])

    Reference:
        Szegedy et al.: Going deeper with convolutions. CVPR 2015, table 1.
        Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet. ICML 2018.
    """

    def build(self) -> int:
        self.trunk = nn.Sequential(
            _unit(self.channels, 64, 3),
            _unit(64, 64, 1),
            _unit(64, 192, 3),
            _module_v1(192, 64, 96, 128, 16, 32, 32),  # 3a
            _module_v1(256, 128, 128, 192, 32, 96, 64),  # 3b
            _halving(),
            _module_v1(480, 192, 96, 208, 16, 48, 64),  # 4a
            _module_v1(512, 160, 112, 224, 24, 64, 64),  # 4b
            _module_v1(512, 128, 128, 256, 24, 64, 64),  # 4c
            _module_v1(512, 112, 144, 288, 32, 64, 64),  # 4d
            _module_v1(528, 256, 160, 320, 32, 128, 128),  # 4e
            _halving(),
            _module_v1(832, 256, 160, 320, 32, 128, 128),  # 5a
            _module_v1(832, 384, 192, 384, 48, 128, 128),  # 5b
        )
        return 1024

    def embed(self, x: Tensor) -> Tensor:
        return self.trunk(x).mean((2, 3))  # type: ignore[no-any-return]


def _module_v1(inputs: int, single: int, reduce3: int, three: int, reduce5: int, five: int, projected: int) -> Branches:
    """A row of GoogLeNet's table: #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool proj."""
    return Branches(
        _unit(inputs, single, 1),
        nn.Sequential(_unit(inputs, reduce3, 1), _unit(reduce3, three, 3)),
        nn.Sequential(_unit(inputs, reduce5, 1), _unit(reduce5, five, 5)),
        nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), _unit(inputs, projected, 1)),
    )


class BNInception(ImageClassifier, name="bninception"):
    """GoogLeNet V2, also called BN-Inception: 10,169,984 parameters without its last layer; embedding 1024.

    It is the table of the paper, for images of 224×224; other sizes work too (227×227 for MARS in the GR paper). The first convolution
    is not separable, as in the popular Caffe weights, but modules 4c and 4d have 576 channels, as in the table.

    Example:
        >>> BNInception(num_classes=625).head
        Linear(in_features=1024, out_features=625, bias=True)

    Reference:
        Ioffe, Szegedy: Batch normalization: accelerating deep network training by reducing internal covariate shift. ICML
        2015, figure 5.
    """

    def build(self) -> int:
        self.trunk = nn.Sequential(
            _unit(self.channels, 64, 7, stride=2),
            _halving(),
            _unit(64, 64, 1),
            _unit(64, 192, 3),
            _halving(),
            _module_v2(192, 64, 64, 64, 64, 96, 32),  # 3a
            _module_v2(256, 64, 64, 96, 64, 96, 64),  # 3b
            _module_v2_halving(320, 128, 160, 64, 96),  # 3c
            _module_v2(576, 224, 64, 96, 96, 128, 128),  # 4a
            _module_v2(576, 192, 96, 128, 96, 128, 128),  # 4b
            _module_v2(576, 160, 128, 160, 128, 160, 96),  # 4c
            _module_v2(576, 96, 128, 192, 160, 192, 96),  # 4d
            _module_v2_halving(576, 128, 192, 192, 256),  # 4e
            _module_v2(1024, 352, 192, 320, 160, 224, 128),  # 5a
            _module_v2(1024, 352, 192, 320, 192, 224, 128, pool=nn.MaxPool2d),  # 5b
        )
        return 1024

    def embed(self, x: Tensor) -> Tensor:
        return self.trunk(x).mean((2, 3))  # type: ignore[no-any-return]


def _double(inputs: int, reduced: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(_unit(inputs, reduced, 1), _unit(reduced, outputs, 3), _unit(outputs, outputs, 3, stride))


def _module_v2(inputs: int, *widths: int, pool: type[nn.Module] = nn.AvgPool2d) -> Branches:
    """A row of BN-Inception's table: #1×1, #3×3 reduce, #3×3, double #3×3 reduce, double #3×3, pool proj."""
    single, reduce3, three, reduce33, double, projected = widths
    return Branches(
        _unit(inputs, single, 1),
        nn.Sequential(_unit(inputs, reduce3, 1), _unit(reduce3, three, 3)),
        _double(inputs, reduce33, double),
        nn.Sequential(pool(3, stride=1, padding=1), _unit(inputs, projected, 1)),
    )


def _module_v2_halving(inputs: int, reduce3: int, three: int, reduce33: int, double: int) -> Branches:
    """A row with stride 2: no 1×1 path, and the pooled input passes through."""
    return Branches(
        nn.Sequential(_unit(inputs, reduce3, 1), _unit(reduce3, three, 3, stride=2)),
        _double(inputs, reduce33, double, stride=2),
        _halving(),
    )
