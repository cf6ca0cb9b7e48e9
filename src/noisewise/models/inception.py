"""Inception networks: GoogLeNet V1 for 32×32 images, and GoogLeNet V2 (BN-Inception) for 224×224 ones.

Both are the tables of their papers. Every convolution is followed by batch normalisation and ReLU and has no bias; the
auxiliary classifiers are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisewise.models._base import ImageClassifier


def _unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def _halving() -> nn.MaxPool2d:
    # Padded, so that an image of any size comes out as large as from a convolution with stride 2.
    return nn.MaxPool2d(3, stride=2, padding=1)


class Branches(nn.Module):
    """Paths through the same input, side by side in the output's channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([path(x) for path in self.paths], 1)


class GoogLeNet(ImageClassifier, name="googlenet"):
    """GoogLeNet V1 for 32×32 images: 5,983,402 parameters with 10 classes; embedding 1024.

    Modules 3a to 5b are the paper's. What is changed for small images: the stem's 7×7 convolution with stride 2 is a 3×3 one
    with stride 1 and its two poolings are gone, so that modules 3 see 32×32, modules 4 16×16 and modules 5 8×8. What is
    changed for today's learning rates: batch normalisation in place of local response normalisation and auxiliary classifiers.

    The GR paper's table 4 names GoogLeNet V1 and MentorNet's setting. MentorNet's published code runs a network of two 5×5
    convolutions and three linear layers under the name "inception"; this is the network that the papers name.

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

    The paper's table, for images of 224×224; others work too (the GR paper crops 227×227 for MARS). The first convolution is a
    plain one, as in the widely used Caffe weights; the paper's own was separable. Where those weights widen modules 4c and 4d
    to 608 channels, this keeps the table's 576.

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


def _module_v2(
    inputs: int,
    single: int,
    reduce3: int,
    three: int,
    reduce33: int,
    double: int,
    projected: int,
    pool: type[nn.AvgPool2d] | type[nn.MaxPool2d] = nn.AvgPool2d,
) -> Branches:
    """A row of BN-Inception's table: #1×1, #3×3 reduce, #3×3, double #3×3 reduce, double #3×3, pool proj."""
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
