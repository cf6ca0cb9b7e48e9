"""Random augmentation of a whole batch of images, on the device of the batch.

Every augmentation has two steps: `draw` draws random numbers for each example, and `apply` is a deterministic function of the images
and those numbers. There is no loop over examples and no copy to the host, so a training step can be captured in a CUDA graph. The
distributions are those of torchvision's transforms of Pillow images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

from noisewise.errors import invalid_parameter
from noisewise.spec import Named, Registry, setting

registry: Registry[Augmentation] = Registry("augmentation")


class Augmentation(Named, registry=registry):
    """A change to a batch of images. A sum of augmentations applies them in order.

    Example:
        >>> augmentation = registry.get("crop(4) + flip")
        >>> augmentation
        crop(padding=4) + flip(p=0.5)
        >>> images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
        >>> augmentation(images, torch.Generator().manual_seed(0)).shape
        torch.Size([8, 3, 32, 32])
    """

    random: ClassVar[bool] = True

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Change a batch; the result has the same type.

        Args:
            images: (N, channels, height, width), uint8 from 0 to 255 or floating point from 0 to 1.
            generator: a random generator on the device of the images.
        """
        if images.dim() != 4:
            raise invalid_parameter("images", self.name, "shaped (N, channels, height, width)", tuple(images.shape))
        self._check_generator(images, generator)
        return self.apply(images, *self.draw(images, generator))

    def _check_generator(self, images: Tensor, generator: Generator | None) -> None:
        if self.random and (generator is None or generator.device.type != images.device.type):
            got = None if generator is None else str(generator.device)
            raise invalid_parameter("generator", self.name, f"a torch.Generator on the device of the images, {str(images.device)!r}", got)

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        """Draw the random numbers of every example, which `apply` takes after the images."""
        return ()

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """Change the images according to the drawn numbers."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")

    def __add__(self, other: Augmentation) -> Augmentation:
        if not isinstance(other, Augmentation):
            return NotImplemented
        first, second = ((each.steps if isinstance(each, Chain) else (each,)) for each in (self, other))
        return Chain((*first, *second))


class Chain(Augmentation):
    """Augmentations one after the other: ``crop(4) + flip``."""

    steps: tuple[Augmentation, ...] = setting()

    @property
    def random(self) -> bool:  # type: ignore[override]
        return any(step.random for step in self.steps)

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        self._check_generator(images, generator)
        for step in self.steps:
            images = step(images, generator)
        return images

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.steps))


class Unchanged(Augmentation, name="none"):
    """No change."""

    random: ClassVar[bool] = False

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        return images


def _uniform(like: Tensor, shape: tuple[int, ...], low: float, high: float, generator: Generator | None) -> Tensor:
    return torch.empty(shape, device=like.device).uniform_(low, high, generator=generator)


class Crop(Augmentation, name="crop"):
    """Pad the image with zeros and crop at a random position: torchvision's ``RandomCrop(size, padding=padding)``.

    Args:
        padding: the number of zeros on every side.
        size: the side of the square; by default the size of the image.

    Example:
        >>> ones = torch.ones(1000, 1, 8, 8)
        >>> f"{float(Crop(4)(ones, torch.Generator().manual_seed(0)).mean()):.2f}"  # (1 − E|offset| / 8)²
        '0.52'
    """

    padding: int = setting(default=4, bounds="[0, inf)", integer=True)
    size: int | None = setting(default=None, bounds="[1, inf)", integer=True, kw_only=True)

    def _shape(self, images: Tensor) -> tuple[int, int]:
        height, width = images.shape[2:]
        wanted = (self.size or height, self.size or width)
        if max(wanted[0] - height, wanted[1] - width) > 2 * self.padding:
            limit = min(height, width) + 2 * self.padding
            raise invalid_parameter("size", "crop", f"at most that of the image and its padding, {limit}", self.size)
        return wanted

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        numbers = [side + 2 * self.padding - wanted + 1 for side, wanted in zip(images.shape[2:], self._shape(images), strict=True)]
        return tuple(torch.randint(number, (len(images),), generator=generator, device=images.device) for number in numbers)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        height, width = self._shape(images)
        windows = functional.pad(images, (self.padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # a view of all crops
        top, left = drawn
        return windows[torch.arange(len(images), device=images.device), :, top, left]


class CentreCrop(Augmentation, name="centre_crop"):
    """Crop a square from the centre.

    Args:
        size: the side of the square.

    Example:
        >>> registry.get("centre_crop(224)")(torch.zeros(2, 3, 256, 256)).shape
        torch.Size([2, 3, 224, 224])
    """

    random: ClassVar[bool] = False

    size: int = setting(bounds="[1, inf)", integer=True)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        height, width = images.shape[2:]
        if self.size > min(height, width):
            raise invalid_parameter("size", "centre_crop", f"at most that of the image, {(height, width)}", self.size)
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return images[:, :, top : top + self.size, left : left + self.size]


class Flip(Augmentation, name="flip"):
    """Mirror the image left to right with probability p: torchvision's ``RandomHorizontalFlip(p)``.

    Example:
        >>> Flip(1.0)(torch.tensor([[[[1, 2, 3]]]]), torch.Generator())
        tensor([[[[3, 2, 1]]]])
    """

    p: float = setting(default=0.5, bounds="[0, 1]")

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        return (torch.rand(len(images), generator=generator, device=images.device) < self.p,)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        return torch.where(drawn[0].view(-1, 1, 1, 1), images.flip(-1), images)


def _pick(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels at integer positions, which broadcast to (N, 1, height, width); zero outside of the image."""
    number, channels, height, width = images.shape
    example = torch.arange(number, device=images.device).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=images.device).view(1, -1, 1, 1)
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return images[example, channel, rows.clamp(0, height - 1), columns.clamp(0, width - 1)].mul_(inside)


class Rotation(Augmentation, name="rotation"):
    """Rotate the image about its centre by an angle uniform in [−degrees, degrees]: torchvision's ``RandomRotation(degrees)``.

    Each pixel is the nearest one of the image, or zero outside.

    Args:
        degrees: the largest angle.

    Example:
        >>> Rotation(90).apply(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([90.0]))
        tensor([[[[2, 4],
                  [1, 3]]]])
    """

    degrees: float = setting(bounds="[0, 360]")

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        return (_uniform(images, (len(images),), -self.degrees, self.degrees, generator),)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        height, width = images.shape[2:]
        rows = torch.arange(height, device=images.device).view(1, 1, -1, 1)
        columns = torch.arange(width, device=images.device).view(1, 1, 1, -1)
        angle = torch.deg2rad(drawn[0]).view(-1, 1, 1, 1)
        # From the centre of the image to the centre of each pixel of the result, rotated back.
        down, right = rows + (0.5 - height / 2), columns + (0.5 - width / 2)
        across = torch.cos(angle) * right - torch.sin(angle) * down + width / 2
        along = torch.sin(angle) * right + torch.cos(angle) * down + height / 2
        return _pick(images, along.floor().long(), across.floor().long())


def _floats(parameter: str, owner: str, requirement: str, accept: Callable[[tuple[float, ...]], bool]) -> Any:
    """A check of a setting that is a sequence of numbers."""

    def check(value: Any) -> tuple[float, ...]:
        try:
            numbers = tuple(map(float, value))
        except (TypeError, ValueError):
            numbers = ()
        if not numbers or not accept(numbers):
            raise invalid_parameter(parameter, owner, requirement, value)
        return numbers

    return check


def _pair(parameter: str, highest: float) -> Any:
    requirement = f"a pair (low, high) with 0 < low <= high <= {highest:g}"
    return _floats(parameter, "ResizedCrop", requirement, lambda pair: len(pair) == 2 and 0 < pair[0] <= pair[1] <= highest)


class ResizedCrop(Augmentation, name="resized_crop"):
    """Crop a random part of the image and resize it to a square: torchvision's ``RandomResizedCrop(size, scale, ratio)``.

    The first of ten random crops that fits the image is used; if none does, the largest crop in the centre with an allowed ratio.
    Resizing is bilinear and antialiased, as in Pillow.

    Args:
        size: the side of the result.
        scale: the smallest and the largest share of the area, drawn uniformly.
        ratio: the smallest and the largest width / height, drawn uniformly on a logarithmic scale.

    Example:
        >>> half = ResizedCrop(size=16, scale=(0.5, 0.5), ratio=(1, 1))
        >>> top, left, height, width = half.draw(torch.zeros(3, 1, 32, 32), torch.Generator())
        >>> height, width  # 32 · √0.5 = 22.6
        (tensor([23., 23., 23.]), tensor([23., 23., 23.]))
    """

    tries: ClassVar[int] = 10

    size: int = setting(default=224, bounds="[1, inf)", integer=True)
    scale: tuple[float, float] = setting(default=(0.08, 1.0), check=_pair("scale", 1))
    ratio: tuple[float, float] = setting(default=(3 / 4, 4 / 3), check=_pair("ratio", 1000))

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        number, _, height, width = images.shape
        area = height * width * _uniform(images, (number, self.tries), *self.scale, generator)
        ratio = _uniform(images, (number, self.tries), math.log(self.ratio[0]), math.log(self.ratio[1]), generator).exp()
        heights, widths = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
        fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        some = fits.any(1)
        middle_height, middle_width = self._middle(height, width)
        part_height = torch.where(some, heights.gather(1, first).squeeze(1), middle_height)
        part_width = torch.where(some, widths.gather(1, first).squeeze(1), middle_width)
        where = torch.rand((2, number), generator=generator, device=images.device)
        top = torch.where(some, (where[0] * (height - part_height + 1)).floor(), (height - middle_height) // 2)
        left = torch.where(some, (where[1] * (width - part_width + 1)).floor(), (width - middle_width) // 2)
        return top, left, part_height, part_width

    def _middle(self, height: int, width: int) -> tuple[int, int]:
        low, high = self.ratio
        if width / height < low:
            return round(width / low), width
        if width / height > high:
            return height, round(height * high)
        return height, width

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        top, left, height, width = drawn
        pixels = images if images.is_floating_point() else images.float()
        vertical = self._weights(top, height, images.shape[2]).to(pixels.dtype).unsqueeze(1)
        horizontal = self._weights(left, width, images.shape[3]).to(pixels.dtype).unsqueeze(1)
        resized = vertical @ pixels @ horizontal.mT
        return (resized if images.is_floating_point() else resized.round().clamp(0, 255)).to(images.dtype)

    def _weights(self, start: Tensor, length: Tensor, side: int) -> Tensor:
        """The weight of every pixel of a line of the image in every pixel of the result: (N, size, side).

        The filter is a triangle, as wide as the scale for shrinking and two pixels wide for growing, cut at the edges of the crop.
        """
        start, length = start.view(-1, 1, 1), length.view(-1, 1, 1)
        step = length / self.size
        centre = (torch.arange(self.size, device=start.device).view(1, -1, 1) + 0.5) * step
        pixel = torch.arange(side, device=start.device).view(1, 1, -1) - start
        weight = (1 - (pixel + 0.5 - centre).abs() / step.clamp(min=1)).clamp(min=0)
        weight = weight * ((pixel >= 0) & (pixel < length))
        return weight / weight.sum(2, keepdim=True)


class Jitter(Augmentation, name="jitter"):
    """Change brightness, contrast and saturation in a random order: torchvision's ``ColorJitter``.

    Each is a blend f · image + (1 − f) · base, clipped to the range of the type, with f uniform in [max(0, 1 − x), 1 + x]; the base
    is black for brightness, the mean grey of the image for contrast, and the grey of each pixel for saturation.

    Example:
        >>> Jitter(brightness=0.4).apply(torch.tensor([[[[0.5]]]]), torch.tensor([[1.4, 1.0, 1.0]]), torch.tensor([[0, 1, 2]]))
        tensor([[[[0.7000]]]])
    """

    brightness: float = setting(default=0.0, bounds="[0, inf)")
    contrast: float = setting(default=0.0, bounds="[0, inf)")
    saturation: float = setting(default=0.0, bounds="[0, inf)")

    def draw(self, images: Tensor, generator: Generator | None) -> tuple[Tensor, ...]:
        strengths = (self.brightness, self.contrast, self.saturation)
        factors = [_uniform(images, (len(images),), max(0.0, 1 - x), 1 + x, generator) for x in strengths]
        order = torch.rand((len(images), len(strengths)), generator=generator, device=images.device).argsort(1)
        return torch.stack(factors, 1), order

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        factors, order = drawn
        integer = not images.is_floating_point()
        pixels = images.float() if integer else images
        for which in order.unbind(1):
            factor = factors.gather(1, which.unsqueeze(1)).to(pixels.dtype).view(-1, 1, 1, 1)
            base = self._base(pixels, which.view(-1, 1, 1, 1), integer)
            pixels = (base + factor * (pixels - base)).clamp(0, 255 if integer else 1)
            if integer:
                pixels = pixels.floor()  # as Pillow does after each change
        return pixels.to(images.dtype)

    def _base(self, pixels: Tensor, which: Tensor, integer: bool) -> Tensor:
        grey = _grey(pixels, integer)
        mean = grey.mean((1, 2, 3), keepdim=True)
        if integer:
            mean = (mean + 0.5).floor()
        return torch.where(which == 0, 0.0, torch.where(which == 1, mean, grey))


def _grey(pixels: Tensor, integer: bool) -> Tensor:
    if pixels.shape[1] == 1:
        return pixels
    if pixels.shape[1] != 3:
        raise invalid_parameter("images", "jitter", "of one or three channels", tuple(pixels.shape))
    red, green, blue = (channel.unsqueeze(1) for channel in pixels.unbind(1))
    if not integer:
        return 0.299 * red + 0.587 * green + 0.114 * blue
    # Pillow's fixed point; every product and sum here is below 2²⁴ and so exact in float32.
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536).floor()


class Normalise(Augmentation, name="normalise"):
    """Scale images or features to mean 0 and variance 1: (x − mean) / std per channel, where uint8 is first scaled to 0 … 1.

    Args:
        mean: the mean of every channel, or of every feature.
        std: the standard deviation of every channel or feature.

    Example:
        >>> images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
        >>> Normalise.of(images)
        normalise((0.5,), (0.5,))
        >>> Normalise.of(images)(images)
        tensor([[[[-1.,  1.]]]])
    """

    random: ClassVar[bool] = False

    mean: tuple[float, ...] = setting(
        check=_floats("mean", "Normalise", "a sequence of numbers, one per channel", lambda mean: all(map(math.isfinite, mean)))
    )
    std: tuple[float, ...] = setting(
        check=_floats("std", "Normalise", "a sequence of positive numbers, one per channel", lambda std: all(0 < x < math.inf for x in std))
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(self.mean) != len(self.std):
            raise invalid_parameter("std", "Normalise", f"as long as mean, {len(self.mean)}", self.std)
        self._buffers: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, inputs: Tensor) -> Normalise:
        """Fit the mean and standard deviation to inputs; a constant channel is only shifted."""
        if inputs.dim() < 2 or not inputs.numel():
            raise invalid_parameter("inputs", "Normalise.of", "shaped (N, channels, …) with at least one example", tuple(inputs.shape))
        scale = 255.0 if inputs.dtype == torch.uint8 else 1.0
        mean, variance = _moments_of_bytes(inputs) if inputs.dtype == torch.uint8 else _moments(inputs)
        std = variance.sqrt()
        std = torch.where(std > 1e-12 * mean.abs(), std, scale)
        return cls(tuple((mean / scale).flatten().tolist()), tuple((std / scale).flatten().tolist()))

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        if images.dim() < 2 or images.shape[1] != len(self.mean):
            raise invalid_parameter("images", "normalise", f"of {len(self.mean)} channels, as mean and std are", tuple(images.shape))
        return self.apply(images)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        scale = 255.0 if images.dtype == torch.uint8 else 1.0
        pixels = images if images.is_floating_point() else images.float()
        mean, std = self._constants(scale, pixels)
        return (pixels - mean) / std

    def _constants(self, scale: float, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation on the device, cached because a CUDA graph cannot capture a copy from the host."""
        key = (scale, like.dtype, like.device, like.dim())
        if key not in self._buffers:
            numbers = torch.tensor((self.mean, self.std), dtype=torch.float64).mul(scale).to(like.device, like.dtype)
            mean, std = numbers.view(2, 1, -1, *[1] * (like.dim() - 2))
            self._buffers[key] = mean, std
        return self._buffers[key]


def _moments_of_bytes(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and variance of each channel of uint8 inputs, from how often each of the 256 values occurs: fast and exact."""
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in inputs.transpose(0, 1)]).double()
    values, number = torch.arange(256, device=inputs.device), inputs[:, 0].numel()
    mean = (counts * values).sum(1, keepdim=True) / number
    return mean, (counts * (values - mean).square()).sum(1, keepdim=True) / number


def _moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and variance of each channel, in parts, so that the data set need not fit in memory as float64."""

    def average(function: Callable[[Tensor], Tensor]) -> Tensor:
        parts = -(-inputs.numel() // 2**24)
        sums = (function(part.transpose(0, 1).flatten(1).double()).sum(1, keepdim=True) for part in inputs.chunk(parts))
        return sum(sums, torch.zeros((), device=inputs.device)) * (inputs.shape[1] / inputs.numel())

    mean = average(lambda values: values)
    return mean, average(lambda values: (values - mean).square())
