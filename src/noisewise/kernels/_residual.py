"""The body of a CIFAR residual network, forward and backward, as one operation.

A layer is a convolution, its batch normalisation and a rectifier. Layer 0 is the stem; every block is an odd layer followed by an even
one. Kernels also produce the sums that the next normalisation needs, so no tensor is read only to sum it. Gradients of weights are
computed on a second stream, because nothing needs them until the end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisewise.kernels import _tuning
from noisewise.kernels._switch import log_once, unready
from noisewise.models.resnet import CifarResNet, PaddedBlock, PaddedShortcut

Layer = tuple[nn.Conv2d, nn.BatchNorm2d]

LARGEST = 2**31  # numbers in a tensor; kernels use 32-bit indices
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def residual(network: CifarResNet, x: Tensor) -> Tensor | None:
    """The output of the last block, shaped (N, C, H, W); None if kernels cannot be used.

    In training mode it is differentiable once in the parameters, and running statistics change as they do in `nn.BatchNorm2d`; in
    evaluation mode it has no gradient.

    Args:
        network: the network, in training or evaluation mode.
        x: normalised images (N, channels, H, W).
    """
    if torch.compiler.is_compiling():
        return None
    reason = unready(x) or _about_call(network, x) or _about_network(network, x)
    if reason:
        log_once(reason)
        return None
    layers = _layers(network)
    if not network.training:
        return _evaluated(x, layers)
    parameters = [parameter for convolution, norm in layers for parameter in (convolution.weight, norm.weight, norm.bias)]
    return _Body.apply(x, layers, *parameters)  # type: ignore[no-any-return, no-untyped-call]


def _layers(network: Any) -> list[Layer]:
    blocks = [block for number in range(1, len(network.depths) + 1) for block in getattr(network, f"layer{number}")]
    inner = [layer for block in blocks for layer in ((block.conv1, block.bn1), (block.conv2, block.bn2))]
    return [(network.conv1, network.bn1), *inner]


def _about_call(network: CifarResNet, x: Tensor) -> str:
    """Why this call cannot use kernels, for any network; empty if it can."""
    half = torch.is_autocast_enabled(x.device.type)
    if type(x) is not Tensor or torch._C._get_tracing_state() is not None:
        return "a residual network that is traced"
    if x.requires_grad or (torch.is_grad_enabled() and not network.training):
        return "residual networks have no kernels for gradients of images, or for gradients in evaluation mode"
    if x.is_cuda and not (half and torch.get_autocast_dtype("cuda") is torch.bfloat16 and x.dtype in (torch.float32, torch.bfloat16)):
        return "residual networks have kernels only under autocast to bfloat16"
    if not x.is_cuda and (half or x.dtype is not torch.float32):
        return "residual networks can be interpreted only in float32"
    return ""


def _about_network(network: CifarResNet, x: Tensor) -> str:
    """Why this network cannot use kernels for these images; empty if it can."""
    parts = [part for name, child in network.named_children() if name != "head" for part in child.modules()]
    if nn.modules.module._has_any_global_hook() or any(getattr(part, kind) for part in parts for kind in _HOOKS):  # type: ignore[no-untyped-call]
        return "a residual network with hooks"
    if not all(_is_plain(part, network.training) for part in parts):
        return "a residual network with a modified layer, or with layers in training and evaluation mode"
    tensors = [tensor for part in parts for tensor in (*part.parameters(False), *part.buffers(False)) if tensor.is_floating_point()]
    if any(tensor.dtype is not torch.float32 or tensor.device != x.device for tensor in tensors):
        return "no kernels for a residual network that is not in float32 on the device of its images"
    if x.dim() != 4 or x.shape[1] != network.channels:
        return "no kernels for inputs that are not a batch of images"
    stride = math.prod(convolution.stride[0] for convolution, _ in _layers(network))
    if len(x) * math.prod(-(-size // stride) for size in x.shape[2:]) < 2:
        return "no kernels for batch statistics of fewer than two pixels"
    if x[:, 0].numel() * max(x.shape[1], *network.widths) >= LARGEST:
        return f"no kernels for activations with {LARGEST} numbers or more"
    return ""


def _is_plain(part: nn.Module, training: bool) -> bool:
    """Whether kernels support this layer. A subclass or a parametrisation may compute something else."""
    if type(part) is nn.Conv2d:
        shape = (part.kernel_size, part.padding, part.dilation, part.groups, part.padding_mode)
        return shape == ((3, 3), (1, 1), (1, 1), 1, "zeros") and part.bias is None and part.out_channels in _tuning.CONVOLVE
    if type(part) is nn.BatchNorm2d:
        moving = part.running_mean is not None and isinstance(part.momentum, int | float)
        return part.training == training and part.affine and moving
    return type(part) in (PaddedBlock, PaddedShortcut, nn.Identity, nn.Sequential)


class _Body(torch.autograd.Function):
    """Images and parameters in, the last activation out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: Sequence[Layer], *parameters: Tensor) -> Tensor:
        from noisewise.kernels import _convolution as kernels

        ctx.strides = [convolution.stride[0] for convolution, _ in layers]
        convolved: list[Tensor] = []
        norms: list[Tensor] = []
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            activations = [x.permute(0, 2, 3, 1).contiguous()]
            weights = _converted(parameters[::3], torch.bfloat16 if x.is_cuda else torch.float32)
            for index, (_, layer) in enumerate(layers):
                y, partials = kernels.convolve(activations[index], weights[index], ctx.strides[index])
                convolved.append(y)
                norms.append(kernels.finish(partials, y, layer))
                shortcut = activations[index - 1] if _ends_block(index) else None
                activations.append(kernels.join(y, norms[index], shortcut, ctx.strides[index - 1]))
            torch._foreach_add_([layer.num_batches_tracked for _, layer in layers], 1)  # type: ignore[misc]
        ctx.save_for_backward(*activations, *convolved, *norms, *weights)
        return activations[-1].permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from noisewise.kernels import _convolution as kernels

        saved, number = ctx.saved_tensors, len(ctx.strides)
        activations, convolved = saved[: -3 * number], saved[-3 * number : -2 * number]
        norms, weights = saved[-2 * number : -number], saved[-number:]
        sums = [norm.new_empty(2, norm.shape[1]) for norm in norms]
        shares, buffers, of_weights = _gradient_buffers(weights)
        slopes: list[Tensor] = []  # kept until the second stream has read them
        shortcut = None
        with torch.cuda.device_of(upstream):  # type: ignore[no-untyped-call]
            other = torch.cuda.Stream() if upstream.is_cuda else None  # type: ignore[no-untyped-call]
            gradient, partials = kernels.receive(upstream, activations[-1], convolved[-1], norms[-1])
            for index in reversed(range(number)):
                kernels.add(partials, sums[index], _tuning.ADDED_STATISTICS)
                slope = kernels.denormalise(gradient, convolved[index], norms[index], sums[index])
                slopes.append(slope)
                with _on_stream(other):
                    kernels.correlate(activations[index], slope, ctx.strides[index], shares[index])
                if index > 0:
                    shortcut_gradient, shortcut = (None, gradient) if _ends_block(index) else (shortcut, None)
                    before = (convolved[index - 1], norms[index - 1], activations[index])
                    gradient, partials = kernels.propagate(slope, weights[index], ctx.strides[index], *before, shortcut_gradient)
            with _on_stream(other):
                for buffer, total in buffers:
                    kernels.add(buffer, total, _tuning.ADDED_WEIGHTS)
            if other is not None:
                torch.cuda.current_stream().wait_stream(other)
        triples = zip(of_weights, sums, strict=True)
        return None, None, *(slope for weight, (beta, gamma) in triples for slope in (weight, gamma, beta))


def _evaluated(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """The body in evaluation mode, with running statistics."""
    from noisewise.kernels import _convolution as kernels

    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        weights = _converted([convolution.weight for convolution, _ in layers], torch.bfloat16 if x.is_cuda else torch.float32)
        norms = _running([layer for _, layer in layers])
        before, now, last = x, x.permute(0, 2, 3, 1).contiguous(), 1
        for index, (convolution, _) in enumerate(layers):
            stride = convolution.stride[0]
            y, _ = kernels.convolve(now, weights[index], stride)
            before, now = now, kernels.join(y, norms[index], before if _ends_block(index) else None, last)
            last = stride
    return now.permute(0, 3, 1, 2)


def _running(layers: Sequence[Any]) -> list[Tensor]:
    """The `norm` of every layer from its running statistics; only scale and shift, because `join` reads nothing else."""
    deviations = torch._foreach_add([layer.running_var for layer in layers], [layer.eps for layer in layers])
    torch._foreach_sqrt_(deviations)
    scales = torch._foreach_div([layer.weight for layer in layers], deviations)
    shifts = torch._foreach_sub([layer.bias for layer in layers], torch._foreach_mul([layer.running_mean for layer in layers], scales))
    norms = [scale.new_empty(4, len(scale)) for scale in scales]
    for row, values in ((2, scales), (3, shifts)):
        torch._foreach_copy_([norm[row] for norm in norms], values)
    return norms


def _ends_block(index: int) -> bool:
    return index > 0 and index % 2 == 0


def _converted(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights as (outputs, 3, 3, inputs), which kernels read."""
    converted = [torch.empty(len(weight), 3, 3, weight.shape[1], dtype=dtype, device=weight.device) for weight in weights]
    torch._foreach_copy_([weight.permute(0, 3, 1, 2) for weight in converted], list(weights))
    return converted


def _gradient_buffers(weights: Sequence[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]], list[Tensor]]:
    """Memory for the partial sums of every weight's gradient, pairs of partial sums and totals, and views of the totals as gradients.

    Layers of the same width have the same number of partial sums, so that one kernel adds up those of all of them.
    """
    shares: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}
    buffers = []
    for width in {len(weight) for weight in weights}:
        layers = [index for index, weight in enumerate(weights) if len(weight) == width]
        sizes = [weights[index].numel() for index in layers]
        buffer = torch.empty(_tuning.SHARES[width], sum(sizes), dtype=torch.float32, device=weights[0].device)
        total = torch.empty_like(buffer[0])
        shares |= zip(layers, torch.split(buffer, sizes, dim=1), strict=True)
        gradients |= zip(layers, torch.split(total, sizes), strict=True)
        buffers.append((buffer, total))
    shaped = [gradients[index].view(weight.shape).permute(0, 3, 1, 2) for index, weight in enumerate(weights)]
    return [shares[index] for index in range(len(weights))], buffers, shaped


def _on_stream(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[object]:
    """Run the block on another stream, after everything that was started before."""
    if stream is None:
        return contextlib.nullcontext()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)
