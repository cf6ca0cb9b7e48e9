"""The residual and Inception networks computed from their tensors with plain torch functions: what the models are compared with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from noisewise import models

# Szegedy et al. 2015, table 1: #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool proj; and the channels of the output.
GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32, 256),
    "3b": (128, 128, 192, 32, 96, 64, 480),
    "4a": (192, 96, 208, 16, 48, 64, 512),
    "4b": (160, 112, 224, 24, 64, 64, 512),
    "4c": (128, 128, 256, 24, 64, 64, 512),
    "4d": (112, 144, 288, 32, 64, 64, 528),
    "4e": (256, 160, 320, 32, 128, 128, 832),
    "5a": (256, 160, 320, 32, 128, 128, 832),
    "5b": (384, 192, 384, 48, 128, 128, 1024),
}


# Ioffe & Szegedy 2015, figure 5: #1×1, #3×3 reduce, #3×3, double #3×3 reduce, double #3×3, pool proj (0: passed through).
BN_INCEPTION = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 96),
    "4d": (96, 128, 192, 160, 192, 96),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}


def residual_scores(
    tensors: dict[str, torch.Tensor], x: torch.Tensor, *, head: str, imagenet: bool = False, pre_activation: bool = False
) -> torch.Tensor:
    """He et al. 2016 in evaluation mode, from named tensors alone; without a projection the shortcut is option A.

    With `pre_activation` the blocks are those of DivideMix's network, whose shortcut starts after the first ReLU.
    """

    def normalised(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, variance, scale, shift = (
            tensors[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift

    def convolved(x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        weight = tensors[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=(weight.shape[-1] - 1) // 2)

    def shortcut(x: torch.Tensor, block: str, outputs: int, stride: int) -> torch.Tensor:
        if f"{block}.downsample.0.weight" in tensors:
            return normalised(convolved(x, f"{block}.downsample.0", stride), f"{block}.downsample.1")
        padded = x.new_zeros(len(x), outputs, math.ceil(x.shape[2] / stride), math.ceil(x.shape[3] / stride))
        first = (outputs - x.shape[1]) // 2
        for row in range(padded.shape[2]):
            for column in range(padded.shape[3]):
                padded[:, first : first + x.shape[1], row, column] = x[:, :, row * stride, column * stride]
        return padded

    x = normalised(convolved(x, "conv1", 2 if imagenet else 1), "bn1").clamp(min=0)
    if imagenet:
        x = F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-math.inf), 3, 2)
    stage, position = 1, 0
    while f"layer{stage}.0.conv1.weight" in tensors:
        block, stride = f"layer{stage}.{position}", 2 if stage > 1 and position == 0 else 1
        if f"{block}.conv1.weight" not in tensors:
            stage, position = stage + 1, 0
            continue
        position += 1
        if pre_activation:
            x = normalised(x, f"{block}.bn1").clamp(min=0)
            y = normalised(convolved(x, f"{block}.conv1", stride), f"{block}.bn2").clamp(min=0)
            projection = f"{block}.downsample"
            x = convolved(y, f"{block}.conv2") + (convolved(x, projection, stride) if f"{projection}.weight" in tensors else x)
            continue
        bottleneck = f"{block}.conv3.weight" in tensors
        y = normalised(convolved(x, f"{block}.conv1", 1 if bottleneck else stride), f"{block}.bn1").clamp(min=0)
        y = normalised(convolved(y, f"{block}.conv2", stride if bottleneck else 1), f"{block}.bn2")
        if bottleneck:
            y = normalised(convolved(y.clamp(min=0), f"{block}.conv3"), f"{block}.bn3")
        x = (y + shortcut(x, block, y.shape[1], stride)).clamp(min=0)
    return x.mean((2, 3)) @ tensors[f"{head}.weight"].T + tensors[f"{head}.bias"]


def inception_scores(model: models.Classifier, x: torch.Tensor) -> torch.Tensor:
    """The two tables in evaluation mode, from the model's convolutions and normalisations in the order of their columns."""
    convolutions = (layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    norms = (layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))

    def unit(x: torch.Tensor, kernel: int, stride: int = 1) -> torch.Tensor:
        convolution, norm = next(convolutions), next(norms)
        assert convolution.weight.shape[-1] == kernel
        x = F.conv2d(x, convolution.weight, stride=stride, padding=(kernel - 1) // 2)
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).clamp(min=0)

    def pooled(x: torch.Tensor, stride: int) -> torch.Tensor:
        windows = F.pad(x, (1, 1, 1, 1), value=-math.inf).unfold(2, 3, stride).unfold(3, 3, stride)
        return windows.amax((-1, -2))

    def averaged(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).mean((-1, -2))

    if isinstance(model, models.GoogLeNet):
        x = unit(unit(unit(x, 3), 1), 3)
        for name in GOOGLENET:
            x = pooled(x, 2) if name in ("4a", "5a") else x
            x = torch.cat([unit(x, 1), unit(unit(x, 1), 3), unit(unit(x, 1), 5), unit(pooled(x, 1), 1)], 1)
    else:
        x = pooled(unit(unit(pooled(unit(x, 7, 2), 2), 1), 3), 2)
        for name in BN_INCEPTION:
            if name in ("3c", "4e"):
                x = torch.cat([unit(unit(x, 1), 3, 2), unit(unit(unit(x, 1), 3), 3, 2), pooled(x, 2)], 1)
            else:
                pool = pooled(x, 1) if name == "5b" else averaged(x)
                x = torch.cat([unit(x, 1), unit(unit(x, 1), 3), unit(unit(unit(x, 1), 3), 3), unit(pool, 1)], 1)
    assert next(convolutions, None) is None
    return x.mean((2, 3)) @ model.head.weight.T + model.head.bias
