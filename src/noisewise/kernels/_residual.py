"""The body of a CIFAR residual network, forward and backward, as one operation.

A layer is a convolution, its batch normalisation and a rectifier. Layer 0 is the stem; every block is an odd layer followed by an even
one. No kernel reads a tensor only to sum it: convolutions and gradients also produce the sums that normalisation needs next. Gradients of
weights are computed on a second stream, since nothing needs them until the end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisewise.kernels import _tuning
from noisewise.kernels._switch import say, unready
from noisewise.models.resnet import CifarResNet, PaddedBlock, PaddedShortcut

Layer = tuple[nn.Conv2d, nn.BatchNorm2d]

LARGEST = 2**31  # numbers in a tensor: kernels count them in 32 bits
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def residual(network: CifarResNet, x: Tensor) -> Tensor | None:
    """The output of the last block, shaped (N, C, H, W); None if kernels cannot be used.

    In training it is differentiable once in the parameters, and running statistics change as they do in `nn.BatchNorm2d`; in
    evaluation it has no gradient.

    Args:
        network: in training or evaluation mode.
        x: normalised images (N, channels, H, W).
    """
    if torch.compiler.is_compiling():
        return None
    reason = unready(x) or _about_call(network, x) or _about_network(network, x)
    if reason:
        say(reason)
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
        return "a residual network that is traced takes the torch path"
    if x.requires_grad or torch.is_grad_enabled() != network.training:
        return "residual networks have kernels for the gradients of their parameters in training, no more and no less"
    if x.is_cuda and not (half and torch.get_autocast_dtype("cuda") is torch.bfloat16 and x.dtype in (torch.float32, torch.bfloat16)):
        return "residual networks have kernels under autocast to bfloat16 only"
    if not x.is_cuda and (half or x.dtype is not torch.float32):
        return "residual networks are interpreted in float32 only"
    return ""


def _about_network(network: CifarResNet, x: Tensor) -> str:
    """Why this network cannot use kernels for these images; empty if it can."""
    parts = [part for name, child in network.named_children() if name != "head" for part in child.modules()]
    if nn.modules.module._has_any_global_hook() or any(getattr(part, kind) for part in parts for kind in _HOOKS):  # type: ignore[no-untyped-call]
        return "a residual network with hooks takes the torch path"
    if not all(_is_plain(part, network.training) for part in parts):
        return "a residual network with a layer out of the ordinary, or not in the mode of the others, takes the torch path"
    held = [tensor for part in parts for tensor in (*part.parameters(False), *part.buffers(False)) if tensor.is_floating_point()]
    if any(tensor.dtype is not torch.float32 or tensor.device != x.device for tensor in held):
        return "no kernels for a residual network that is not in float32 beside its images"
    if x.dim() != 4 or x.shape[1] != network.channels:
        return "no kernels for what is not a batch of images"
    stride = math.prod(convolution.stride[0] for convolution, _ in _layers(network))
    if len(x) * math.prod(-(-size // stride) for size in x.shape[2:]) < 2:
        return "no kernels for statistics of less than two pixels"
    if x[:, 0].numel() * max(x.shape[1], *network.widths) >= LARGEST:
        return f"no kernels for activations of {LARGEST} numbers"
    return ""


def _is_plain(part: nn.Module, training: bool) -> bool:
    """Whether kernels compute what this part of a network computes. A subclass or a parametrisation may compute something else."""
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
        made: list[Tensor] = []
        norms: list[Tensor] = []
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            activations = [x.permute(0, 2, 3, 1).contiguous()]
            weights = _converted(parameters[::3], torch.bfloat16 if x.is_cuda else torch.float32)
            for place, (_, layer) in enumerate(layers):
                y, partials = kernels.convolve(activations[place], weights[place], ctx.strides[place])
                made.append(y)
                norms.append(kernels.finish(partials, y, layer))
                shortcut = activations[place - 1] if _ends_block(place) else None
                activations.append(kernels.join(y, norms[place], shortcut, ctx.strides[place - 1]))
            torch._foreach_add_([layer.num_batches_tracked for _, layer in layers], 1)  # type: ignore[misc]
        ctx.save_for_backward(*activations, *made, *norms, *weights)
        return activations[-1].permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from noisewise.kernels import _convolution as kernels

        saved, number = ctx.saved_tensors, len(ctx.strides)
        activations, made = saved[: -3 * number], saved[-3 * number : -2 * number]
        norms, weights = saved[-2 * number : -number], saved[-number:]
        sums = [norm.new_empty(2, norm.shape[1]) for norm in norms]
        shares, rooms, of_weights = _rooms(weights)
        slopes: list[Tensor] = []  # all of them kept until the other stream has read them
        shortcut = None
        with torch.cuda.device_of(upstream):  # type: ignore[no-untyped-call]
            other = torch.cuda.Stream() if upstream.is_cuda else None  # type: ignore[no-untyped-call]
            gradient, partials = kernels.receive(upstream, activations[-1], made[-1], norms[-1])
            for place in reversed(range(number)):
                kernels.add(partials, sums[place], _tuning.ADDED_STATISTICS)
                slope = kernels.denormalise(gradient, made[place], norms[place], sums[place])
                slopes.append(slope)
                with _beside(other):
                    kernels.correlate(activations[place], slope, ctx.strides[place], shares[place])
                if place > 0:
                    passed, shortcut = (None, gradient) if _ends_block(place) else (shortcut, None)
                    before = (made[place - 1], norms[place - 1], activations[place])
                    gradient, partials = kernels.propagate(slope, weights[place], ctx.strides[place], *before, passed)
            with _beside(other):
                for room, total in rooms:
                    kernels.add(room, total, _tuning.ADDED_WEIGHTS)
            if other is not None:
                torch.cuda.current_stream().wait_stream(other)
        triples = zip(of_weights, sums, strict=True)
        return None, None, *(slope for weight, (beta, gamma) in triples for slope in (weight, gamma, beta))


def _evaluated(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """The same with running statistics, and nothing kept."""
    from noisewise.kernels import _convolution as kernels

    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        weights = _converted([convolution.weight for convolution, _ in layers], torch.bfloat16 if x.is_cuda else torch.float32)
        norms = _running([layer for _, layer in layers])
        before, now, last = x, x.permute(0, 2, 3, 1).contiguous(), 1
        for place, (convolution, _) in enumerate(layers):
            stride = convolution.stride[0]
            y, _ = kernels.convolve(now, weights[place], stride)
            before, now = now, kernels.join(y, norms[place], before if _ends_block(place) else None, last)
            last = stride
    return now.permute(0, 3, 1, 2)


def _running(layers: Sequence[Any]) -> list[Tensor]:
    """The `norm` of every layer from its running statistics; only the scale and shift, which are all that is read of it."""
    deviations = torch._foreach_add([layer.running_var for layer in layers], [layer.eps for layer in layers])
    torch._foreach_sqrt_(deviations)
    scales = torch._foreach_div([layer.weight for layer in layers], deviations)
    shifts = torch._foreach_sub([layer.bias for layer in layers], torch._foreach_mul([layer.running_mean for layer in layers], scales))
    norms = [scale.new_empty(4, len(scale)) for scale in scales]
    for row, values in ((2, scales), (3, shifts)):
        torch._foreach_copy_([norm[row] for norm in norms], values)
    return norms


def _ends_block(place: int) -> bool:
    return place > 0 and place % 2 == 0


def _converted(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Weights as kernels read them, (outputs, 3, 3, inputs), all of them by one kernel where they are laid out so already."""
    found = [torch.empty(len(weight), 3, 3, weight.shape[1], dtype=dtype, device=weight.device) for weight in weights]
    torch._foreach_copy_([weight.permute(0, 3, 1, 2) for weight in found], list(weights))
    return found


def _rooms(weights: Sequence[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]], list[Tensor]]:
    """Room for the shares of every weight's gradient, pairs of all shares and their sums, and the gradients that the sums hold.

    Layers of one width are cut into the same number of shares, so that one kernel adds up all of theirs.
    """
    shares: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}
    rooms = []
    for width in {len(weight) for weight in weights}:
        places = [place for place, weight in enumerate(weights) if len(weight) == width]
        sizes = [weights[place].numel() for place in places]
        room = torch.empty(_tuning.SHARES[width], sum(sizes), dtype=torch.float32, device=weights[0].device)
        total = torch.empty_like(room[0])
        shares |= zip(places, torch.split(room, sizes, dim=1), strict=True)
        gradients |= zip(places, torch.split(total, sizes), strict=True)
        rooms.append((room, total))
    number = range(len(weights))
    shaped = [gradients[place].view(weights[place].shape).permute(0, 3, 1, 2) for place in number]
    return [shares[place] for place in number], rooms, shaped


def _beside(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[object]:
    """Start what the block starts on another stream, after all that was started before."""
    if stream is None:
        return contextlib.nullcontext()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)
