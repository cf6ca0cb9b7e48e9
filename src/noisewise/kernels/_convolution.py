# mypy: ignore-errors
"""The kernels of a residual network's body, 3×3 convolutions with batch normalisation, and functions that launch them.

Images are stored as (N, H, W, C), weights as (outputs, 3, 3, inputs), so that a convolution is one matrix product

    y[pixel, output] = Σ over (tap, input) of x[pixel moved by tap, input] · w[output, tap, input]

whose first factor is gathered as it is read. Inputs are normalised and rectified in a separate pass before, because each is read nine
times. A convolution writes its statistics as one row of partial sums per program, and a small kernel adds the rows in a fixed order, so
results do not depend on which program runs first. Products, sums and statistics are float32. A layer's `norm` has four rows over the
channels: mean, 1 / deviation, and the scale and shift of the normalisation.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from noisewise.kernels import _tuning
from noisewise.kernels._ahead import launch

TAPS = tl.constexpr(9)


@triton.jit
def _gather(
    source,
    pixel,
    pair,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """The inputs of every pixel for every (tap, channel) pair, 0 outside the image; the channel varies fastest in `pair`."""
    image = (pixel // (HEIGHT * WIDTH))[:, None]
    row = (pixel // WIDTH % HEIGHT)[:, None]
    column = (pixel % WIDTH)[:, None]
    tap = (pair // CHANNELS)[None, :]
    channel = (pair % CHANNELS)[None, :]
    if TRANSPOSED:
        down = row + 1 - tap // 3
        across = column + 1 - tap % 3
        inside = (down >= 0) & (across >= 0) & (down % STRIDE == 0) & (across % STRIDE == 0)
        down //= STRIDE
        across //= STRIDE
    else:
        down = row * STRIDE + tap // 3 - 1
        across = column * STRIDE + tap % 3 - 1
        inside = (down >= 0) & (across >= 0)
    inside = inside & (down < FROM_HEIGHT) & (across < FROM_WIDTH) & (pixel < pixels)[:, None] & (tap < TAPS)
    offset = ((image * FROM_HEIGHT + down) * FROM_WIDTH + across) * CHANNELS + channel
    return tl.load(source + offset, mask=inside, other=0.0)


@triton.jit
def _operands(
    source,
    weight,
    pixel,
    first,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    STRIDE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """The inputs of pixels and the weights for DEPTH pairs of a tap and a channel."""
    to = tl.arange(0, TO)[None, :]
    pair = first + tl.arange(0, DEPTH)
    seen = _gather(source, pixel, pair, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, STRIDE, TRANSPOSED)
    offset = (pair % FROM * TAPS + pair // FROM)[:, None] * TO + to if TRANSPOSED else to * (TAPS * FROM) + pair[:, None]
    by = tl.load(weight + offset, mask=(pair < TAPS * FROM)[:, None], other=0.0)
    return seen.to(by.dtype), by


@triton.jit
def _product(
    source,
    weight,
    pixel,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    STRIDE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A convolution, or its transpose, at some pixels, DEPTH pairs of a tap and a channel at a time.

    With one stage, operands are loaded into registers, one step ahead. Then eight of the nine reads of a pixel come from the cache of its
    multiprocessor. With more stages, copies in the background fill shared memory, and all reads pass that cache by.
    """
    total = tl.zeros([BLOCK, TO], tl.float32)
    if STAGES == 1:
        seen, by = _operands(source, weight, pixel, 0, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, TO, STRIDE, TRANSPOSED, DEPTH)
        for first in range(DEPTH, TAPS * FROM, DEPTH):
            following, following_by = _operands(
                source, weight, pixel, first, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, TO, STRIDE, TRANSPOSED, DEPTH
            )
            total = tl.dot(seen, by, total, input_precision="ieee")
            seen, by = following, following_by
        total = tl.dot(seen, by, total, input_precision="ieee")
    else:
        for first in tl.range(0, TAPS * FROM, DEPTH, num_stages=STAGES):
            seen, by = _operands(
                source, weight, pixel, first, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, TO, STRIDE, TRANSPOSED, DEPTH
            )
            total = tl.dot(seen, by, total, input_precision="ieee")
    return total


@triton.jit
def _convolve(
    source,
    weight,
    result,
    partials,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A convolution at BLOCK pixels, the sum of the results, and their squared distances from their mean, so that nothing cancels."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = _product(source, weight, pixel, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, TO, STRIDE, False, BLOCK, DEPTH, STAGES)
    channel = tl.arange(0, TO)
    valid = (pixel < pixels)[:, None]
    rounded = total.to(result.dtype.element_ty)
    tl.store(result + pixel[:, None] * TO + channel[None, :], rounded, mask=valid)
    each = rounded.to(tl.float32)
    whole = tl.sum(each, axis=0)
    mean = whole / tl.minimum(BLOCK, pixels - tl.program_id(0) * BLOCK).to(tl.float32)
    apart = tl.where(valid, each - mean[None, :], 0.0)
    into = partials + tl.program_id(0) * 2 * TO + channel
    tl.store(into, whole)
    tl.store(into + TO, tl.sum(apart * apart, axis=0))


@triton.jit
def _finish(
    partials,
    gamma,
    beta,
    running_mean,
    running_var,
    norm,
    rows,
    pixels,
    momentum,
    eps,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Batch statistics of COLUMNS channels from partial sums of BLOCK pixels each (Chan, Golub, LeVeque)."""
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    factor, offset = tl.load(gamma + channel), tl.load(beta + channel)  # loaded early to hide latency
    old_mean, old_var = tl.load(running_mean + channel), tl.load(running_var + channel)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, rows, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None]
        total += tl.sum(tl.load(partials + row * 2 * CHANNELS + channel[None, :], mask=row < rows, other=0.0), axis=0)
    mean = total / pixels
    squares = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, rows, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None]
        pointer = partials + row * 2 * CHANNELS + channel[None, :]
        number = tl.maximum(tl.minimum(BLOCK, pixels - row * BLOCK), 1).to(tl.float32)
        apart = tl.load(pointer, mask=row < rows, other=0.0) / number - mean[None, :]
        within = tl.load(pointer + CHANNELS, mask=row < rows, other=0.0)
        squares += tl.sum(tl.where(row < rows, within + number * apart * apart, 0.0), axis=0)
    inverse = tl.rsqrt(squares / pixels + eps)
    scale = factor * inverse
    tl.store(norm + channel, mean)
    tl.store(norm + CHANNELS + channel, inverse)
    tl.store(norm + 2 * CHANNELS + channel, scale)
    tl.store(norm + 3 * CHANNELS + channel, offset - mean * scale)
    tl.store(running_mean + channel, old_mean * (1.0 - momentum) + momentum * mean)
    tl.store(running_var + channel, old_var * (1.0 - momentum) + momentum * squares / (pixels - 1))


@triton.jit
def _join(
    y,
    norm,
    shortcut,
    result,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """relu(normalised y + shortcut). The shortcut is every STRIDE-th pixel of the block's input, padded with zero channels."""
    pixel = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    valid = pixel < pixels
    offset = pixel * CHANNELS + channel
    total = tl.load(y + offset, mask=valid, other=0.0).to(tl.float32) * tl.load(norm + 2 * CHANNELS + channel)
    total += tl.load(norm + 3 * CHANNELS + channel)
    if shortcut is not None:
        image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
        own = channel - (CHANNELS - FROM) // 2
        source = ((image * FROM_HEIGHT + row * STRIDE) * FROM_WIDTH + column * STRIDE) * FROM + own
        total += tl.load(shortcut + source, mask=valid & (own >= 0) & (own < FROM), other=0.0).to(tl.float32)
    rectified = tl.where(total < 0.0, 0.0, total)  # a maximum would hide NaN
    tl.store(result + offset, rectified.to(result.dtype.element_ty), mask=valid)


@triton.jit
def _leave(gradient, active, seen, norm, result, partials, offset, valid, channel, CHANNELS: tl.constexpr):
    """Store the gradient before a rectifier, and its sums: plain, and times the normalised y."""
    rounded = tl.where(active <= 0.0, 0.0, gradient).to(result.dtype.element_ty)
    tl.store(result + offset, rounded, mask=valid)
    each = rounded.to(tl.float32)
    mean, inverse = tl.load(norm + channel)[None, :], tl.load(norm + CHANNELS + channel)[None, :]
    into = partials + tl.program_id(0) * 2 * CHANNELS + channel
    tl.store(into, tl.sum(each, axis=0))
    tl.store(into + CHANNELS, tl.sum(each * ((seen.to(tl.float32) - mean) * inverse), axis=0))


@triton.jit
def _receive(
    upstream,
    activation,
    y,
    norm,
    result,
    partials,
    pixels,
    image_stride,
    channel_stride,
    row_stride,
    column_stride,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of the last activation, in any layout, taken through its rectifier."""
    pixel = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    channel = tl.arange(0, CHANNELS)
    valid = pixel < pixels
    offset = pixel * CHANNELS + channel[None, :]
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    pointer = upstream + image * image_stride + row * row_stride + column * column_stride + channel[None, :] * channel_stride
    gradient = tl.load(pointer, mask=valid, other=0.0).to(tl.float32)
    active = tl.load(activation + offset, mask=valid, other=0.0)
    seen = tl.load(y + offset, mask=valid, other=0.0)
    _leave(gradient, active, seen, norm, result, partials, offset, valid, channel, CHANNELS)


@triton.jit
def _add(partials, result, rows, columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of the rows of a matrix, ROWS at a time and in order."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, rows, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None]
        valid = (row < rows) & (column < columns)[None, :]
        total += tl.sum(tl.load(partials + row * row_stride + column[None, :], mask=valid, other=0.0), axis=0)
    tl.store(result + column, total, mask=column < columns)


@triton.jit
def _denormalise(gradient, y, norm, sums, result, pixels, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """∂L/∂y = scale · (∂L/∂z − mean ∂L/∂z − ŷ · mean (∂L/∂z ŷ)), z = γ ŷ + β; the two sums are ∂L/∂β and ∂L/∂γ."""
    pixel = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    valid = pixel < pixels
    offset = pixel * CHANNELS + channel
    hat = (tl.load(y + offset, mask=valid, other=0.0).to(tl.float32) - tl.load(norm + channel)) * tl.load(norm + CHANNELS + channel)
    share = 1.0 / pixels
    common = share * tl.load(sums + channel) + hat * (share * tl.load(sums + CHANNELS + channel))
    upstream = tl.load(gradient + offset, mask=valid, other=0.0).to(tl.float32)
    slope = tl.load(norm + 2 * CHANNELS + channel) * (upstream - common)
    tl.store(result + offset, slope.to(result.dtype.element_ty), mask=valid)


@triton.jit
def _propagate(
    gradient,
    weight,
    y,
    norm,
    activation,
    shortcut,
    result,
    partials,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient before a convolution and the rectifier in front of it, plus that of the shortcut at the start of a block.

    What is needed after the product is loaded before it, to hide latency.
    """
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, TO)
    valid = (pixel < pixels)[:, None]
    offset = pixel[:, None] * TO + channel[None, :]
    active = tl.load(activation + offset, mask=valid, other=0.0)
    seen = tl.load(y + offset, mask=valid, other=0.0)
    if shortcut is not None:
        image, row, column = (pixel // (HEIGHT * WIDTH))[:, None], (pixel // WIDTH % HEIGHT)[:, None], (pixel % WIDTH)[:, None]
        source = ((image * FROM_HEIGHT + row // STRIDE) * FROM_WIDTH + column // STRIDE) * FROM + (FROM - TO) // 2 + channel[None, :]
        from_shortcut = tl.load(shortcut + source, mask=valid & (row % STRIDE == 0) & (column % STRIDE == 0), other=0.0)
    total = _product(gradient, weight, pixel, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, TO, STRIDE, True, BLOCK, DEPTH, STAGES)
    if shortcut is not None:
        total += from_shortcut.to(tl.float32)
    _leave(total, active, seen, norm, result, partials, offset, valid, channel, TO)


@triton.jit
def _correlate(
    source,
    gradient,
    partials,
    pixels,
    row_stride,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FROM_HEIGHT: tl.constexpr,
    FROM_WIDTH: tl.constexpr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A partial sum of a weight's gradient, for DEPTH pairs of a tap and a channel and a part of the pixels."""
    pair = tl.program_id(1) * DEPTH + tl.arange(0, DEPTH)
    channel = tl.arange(0, TO)[None, :]
    total = tl.zeros([DEPTH, TO], tl.float32)
    for first in tl.range(tl.program_id(0) * BLOCK, pixels, tl.num_programs(0) * BLOCK, num_stages=STAGES):
        pixel = first + tl.arange(0, BLOCK)
        slope = tl.load(gradient + pixel[:, None] * TO + channel, mask=(pixel < pixels)[:, None], other=0.0)
        seen = _gather(source, pixel, pair, pixels, HEIGHT, WIDTH, FROM_HEIGHT, FROM_WIDTH, FROM, STRIDE, False)
        total = tl.dot(tl.trans(seen.to(slope.dtype)), slope, total, input_precision="ieee")
    into = partials + tl.program_id(0) * row_stride + channel * (TAPS * FROM) + pair[:, None]
    tl.store(into, total, mask=(pair < TAPS * FROM)[:, None])


def _pixels(images: Tensor) -> int:
    return images.numel() // images.shape[3]


def _cut(result: Tensor, source: Tensor, stride: int, tile: _tuning.Tile) -> dict[str, int]:
    """The compile-time sizes of a kernel."""
    height, width, to = result.shape[1:]
    from_height, from_width, channels = source.shape[1:]
    sizes = {"HEIGHT": height, "WIDTH": width, "FROM_HEIGHT": from_height, "FROM_WIDTH": from_width, "FROM": channels, "TO": to}
    depth = min(tile.depth, triton.next_power_of_2(9 * channels))
    return {**sizes, "STRIDE": stride, "BLOCK": tile.pixels, "DEPTH": depth, "STAGES": tile.stages, "num_warps": tile.warps}


def _per_program(images: Tensor) -> tuple[int, int]:
    """Pixels per program of an elementwise kernel, and the number of programs."""
    block = _tuning.ELEMENTS[images.shape[3]] // images.shape[3]
    return block, triton.cdiv(_pixels(images), block)


def _partial_sums(images: Tensor, rows: int) -> Tensor:
    """Memory for two partial sums per channel and program."""
    return torch.empty(rows, 2 * images.shape[3], dtype=torch.float32, device=images.device)


def convolve(source: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """A convolution and its partial statistics."""
    images, height, width, _ = source.shape
    shape = (images, (height - 1) // stride + 1, (width - 1) // stride + 1, weight.shape[0])
    result = torch.empty(shape, dtype=weight.dtype, device=source.device)
    tile = _tuning.CONVOLVE[weight.shape[0]]
    partials = _partial_sums(result, triton.cdiv(_pixels(result), tile.pixels))
    cut = _cut(result, source, stride, tile)
    launch(_convolve, (len(partials),), source, weight, result, partials, _pixels(result), **cut)
    return result, partials


def finish(partials: Tensor, y: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """A layer's `norm` from the partial statistics of its convolution; updates its running statistics in place."""
    channels = y.shape[3]
    norm = torch.empty(4, channels, dtype=torch.float32, device=y.device)
    kept = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
    sizes = {"CHANNELS": channels, "BLOCK": _tuning.CONVOLVE[channels].pixels, "ROWS": _rows_at_once(partials)}
    sizes |= {"COLUMNS": _tuning.ADDED_STATISTICS, "num_warps": _tuning.ADDED_WARPS}
    grid = (channels // _tuning.ADDED_STATISTICS,)
    launch(_finish, grid, partials, *kept, norm, len(partials), _pixels(y), layer.momentum, layer.eps, **sizes)
    return norm


def join(y: Tensor, norm: Tensor, shortcut: Tensor | None, stride: int) -> Tensor:
    """A layer's activation; with a shortcut at the end of a block."""
    result = torch.empty_like(y)
    block, programs = _per_program(y)
    height, width, channels = y.shape[1:]
    from_height, from_width, own = (y if shortcut is None else shortcut).shape[1:]
    sizes = {"HEIGHT": height, "WIDTH": width, "FROM_HEIGHT": from_height, "FROM_WIDTH": from_width}
    sizes |= {"FROM": own, "CHANNELS": channels, "STRIDE": stride, "BLOCK": block}
    launch(_join, (programs,), y, norm, shortcut, result, _pixels(y), **sizes)
    return result


def receive(upstream: Tensor, activation: Tensor, y: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    """Take the gradient of the last activation, (N, C, H, W) with any strides, through its rectifier; also its partial sums."""
    result = torch.empty_like(activation)
    block, programs = _per_program(y)
    partials = _partial_sums(y, programs)
    height, width, channels = y.shape[1:]
    arguments = (upstream, activation, y, norm, result, partials, _pixels(y), *upstream.stride())
    launch(_receive, (programs,), *arguments, HEIGHT=height, WIDTH=width, CHANNELS=channels, BLOCK=block)
    return result, partials


def add(partials: Tensor, result: Tensor, columns: int) -> None:
    """Write the sum of the rows of a matrix to `result`; a program adds up `columns` columns."""
    arguments = (partials, result, *partials.shape, partials.stride(0))
    grid = (triton.cdiv(result.numel(), columns),)
    launch(_add, grid, *arguments, ROWS=_rows_at_once(partials), COLUMNS=columns, num_warps=_tuning.ADDED_WARPS)


def _rows_at_once(partials: Tensor) -> int:
    return min(_tuning.ADDED_ROWS, triton.next_power_of_2(len(partials)))


def denormalise(gradient: Tensor, y: Tensor, norm: Tensor, sums: Tensor) -> Tensor:
    """The gradient before a batch normalisation."""
    result = torch.empty_like(gradient)
    block, programs = _per_program(y)
    launch(_denormalise, (programs,), gradient, y, norm, sums, result, _pixels(y), CHANNELS=y.shape[3], BLOCK=block)
    return result


def propagate(
    gradient: Tensor, weight: Tensor, stride: int, y: Tensor, norm: Tensor, activation: Tensor, shortcut: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient before a convolution and the rectifier in front of it, and its partial sums.

    Args:
        y: the convolution of the layer before, and `norm` its statistics.
        activation: the activation of the layer before.
        shortcut: the gradient of the shortcut, at the start of a block.
    """
    result = torch.empty_like(y)
    tile = _tuning.PROPAGATE[y.shape[3]]
    partials = _partial_sums(y, triton.cdiv(_pixels(y), tile.pixels))
    cut = _cut(y, gradient, stride, tile)
    launch(_propagate, (len(partials),), gradient, weight, y, norm, activation, shortcut, result, partials, _pixels(y), **cut)
    return result, partials


def correlate(source: Tensor, gradient: Tensor, stride: int, partials: Tensor) -> None:
    """Partial sums of a weight's gradient, one per row of `partials`, from the convolution's input and the gradient of its output."""
    cut = _cut(gradient, source, stride, _tuning.CORRELATE[gradient.shape[3]])
    grid = (len(partials), triton.cdiv(9 * source.shape[3], cut["DEPTH"]))
    launch(_correlate, grid, source, gradient, partials, _pixels(gradient), partials.stride(0), **cut)
