"""Residual networks: the CIFAR networks of He et al., section 4.2, and ResNet-18, -34 and -50.

The latter use torchvision's layer names, so that its ImageNet weights can be loaded.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from noisewise.extensions import extension
from noisewise.models._base import ImageClassifier
from noisewise.spec import setting


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class PaddedShortcut(nn.Module):
    """Option A: every `stride`-th pixel, with new channels of zeros, half of them on either side."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before, self.after = (outputs - inputs) // 2, (outputs - inputs + 1) // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class Block(nn.Module):
    """A residual and a shortcut, which is a projection if the shape changes (option B)."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.downsample = nn.Identity() if stride == 1 and inputs == outputs else self.shortcut(inputs, outputs, stride)

    def shortcut(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.downsample(x))


class BasicBlock(Block):
    """Two 3×3 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))  # type: ignore[no-any-return]


class PaddedBlock(BasicBlock):
    """Two 3×3 convolutions, and a shortcut without parameters (option A)."""

    def shortcut(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        return PaddedShortcut(inputs, outputs, stride)


class PreActivationBlock(BasicBlock):
    """Two 3×3 convolutions, each after its own normalisation and ReLU. The shortcut starts after the first ReLU."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(inputs)

    def shortcut(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        return _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(x))
        return self.conv2(F.relu(self.bn2(self.conv1(x)))) + self.downsample(x)  # type: ignore[no-any-return]


class Bottleneck(Block):
    """1×1, 3×3 and 1×1 convolutions; the 3×3 one has the stride, as in torchvision ("version 1.5")."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, self.expansion * width, 1)
        self.bn3 = nn.BatchNorm2d(self.expansion * width)

    def residual(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))  # type: ignore[no-any-return]


class ResidualNetwork(ImageClassifier):
    """A 3×3 stem, stages of blocks and global average pooling; every stage but the first halves the image."""

    block: ClassVar[type[Block]]
    widths: ClassVar[tuple[int, ...]]
    depths: ClassVar[tuple[int, ...]]

    def stem_of(self, width: int) -> tuple[nn.Module, nn.Module]:
        """The first convolution, and the pooling that follows it."""
        return _convolution(self.channels, width, 3), nn.Identity()

    def build(self) -> int:
        width = self.widths[0]
        self.conv1, self.maxpool = self.stem_of(width)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for number, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True), start=1):
            blocks = []
            for position in range(depth):
                blocks.append(self.block(inputs, width, stride=2 if number > 1 and position == 0 else 1))
                inputs = self.block.expansion * width
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        return inputs

    def embed(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for number in range(1, len(self.depths) + 1):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((2, 3))


class CifarResNet(ResidualNetwork):
    """The CIFAR networks of He et al. 2016, section 4.2: 6n + 2 layers, three stages of n blocks, 16, 32, 64 channels.

    Shortcuts are option A, identity with zero padding, and have no parameters.

    Args:
        dropout: 0.2 in table 8 of the GR paper, which does not say where; here on the pooled embedding, as in all models.

    Reference:
        He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016.
    """

    block = PaddedBlock
    widths = (16, 32, 64)

    def embed(self, x: Tensor) -> Tensor:
        fused = extension("fused residual network")(self, x)
        return super().embed(x) if fused is None else fused.mean((2, 3))


class ResNet20(CifarResNet, name="resnet20"):
    """ResNet-20 for CIFAR: 269,722 parameters with 10 classes; embedding 64.

    Example:
        >>> import torch
        >>> ResNet20(num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    depths = (3, 3, 3)


class ResNet32(CifarResNet, name="resnet32"):
    """ResNet-32 for CIFAR: 464,154 parameters with 10 classes; embedding 64."""

    depths = (5, 5, 5)


class ResNet44(CifarResNet, name="resnet44"):
    """ResNet-44 for CIFAR: 658,586 parameters with 10 classes; embedding 64."""

    depths = (7, 7, 7)


class ResNet56(CifarResNet, name="resnet56"):
    """ResNet-56 for CIFAR: 853,018 parameters with 10 classes; embedding 64."""

    depths = (9, 9, 9)


class ResNet110(CifarResNet, name="resnet110"):
    """ResNet-110 for CIFAR: 1,727,962 parameters with 10 classes; embedding 64."""

    depths = (18, 18, 18)


class ResNet(ResidualNetwork):
    """The ImageNet networks of He et al. 2016, with the original stem or one for 32×32 images.

    Args:
        stem: "cifar": a 3×3 convolution without pooling; "imagenet": a 7×7 convolution and a 3×3 max-pooling, both with stride 2, as
            in torchvision.

    Reference:
        He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016.
    """

    stem: str = setting(default="cifar", choices=("cifar", "imagenet"), kw_only=True)

    widths = (64, 128, 256, 512)

    def stem_of(self, width: int) -> tuple[nn.Module, nn.Module]:
        if self.stem == "cifar":
            return super().stem_of(width)
        return _convolution(self.channels, width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)


class ResNet18(ResNet, name="resnet18"):
    """ResNet-18: 11,173,962 parameters with 10 classes and the CIFAR stem; embedding 512."""

    block = BasicBlock
    depths = (2, 2, 2, 2)


class PreActResNet18(ResNet, name="preact_resnet18"):
    """Pre-activation ResNet-18 as in the code of DivideMix and ELR+: 11,171,274 parameters with 10 classes; embedding 512.

    Unlike the networks of the reference, it normalises after the first convolution instead of before the pooling, and its shortcuts start
    after the first ReLU of a block.

    Reference:
        He, Zhang, Ren, Sun: Identity mappings in deep residual networks. ECCV 2016.
    """

    block = PreActivationBlock
    depths = (2, 2, 2, 2)


class ResNet34(ResNet, name="resnet34"):
    """ResNet-34: 21,328,292 parameters with 100 classes and the CIFAR stem; embedding 512."""

    block = BasicBlock
    depths = (3, 4, 6, 3)


class ResNet50(ResNet, name="resnet50"):
    """ResNet-50: 25,557,032 parameters with 1000 classes and the ImageNet stem; embedding 2048.

    Example:
        >>> ResNet50(num_classes=14, stem="imagenet").head
        Linear(in_features=2048, out_features=14, bias=True)
    """

    block = Bottleneck
    depths = (3, 4, 6, 3)
