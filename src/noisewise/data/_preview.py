"""How a page shows one example: as a small picture, or by its first features."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from noisewise.data._dataset import Dataset
from noisewise.data._decoder import to_rgb
from noisewise.data._files import opened
from noisewise.data._stream import Stream

_VALUES = 8  # how many features without names are shown
_NAMED = 20  # how many features with names


def picture(examples: Dataset, row: int, *, side: int) -> str | None:
    """An example as a small PNG, in a data URL; None if it is not an image.

    Args:
        examples: the data set.
        row: the position of the example.
        side: the largest width and height in pixels.
    """
    from PIL import Image

    if isinstance(examples, Stream):
        with opened(examples.paths[row]) as source:
            image = to_rgb(source, None)
    elif examples.inputs.ndim == 4 and examples.inputs.shape[1] in (1, 3):
        pixels = _as_bytes(examples.inputs[row].cpu()).permute(1, 2, 0).numpy()
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    else:
        return None
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _as_bytes(pixels: Tensor) -> Tensor:
    if pixels.dtype == torch.uint8:
        return pixels
    low, high = pixels.min(), pixels.max()
    return (255 * (pixels - low) / (high - low).clamp_min(1e-12)).round().to(torch.uint8)


def features(examples: Dataset, row: int) -> list[list[str]]:
    """The first values of an example that is a row of features, as pairs of name and value; empty for anything else.

    Features without names make one pair. Where there are more values than are shown, the last one is "…".
    """
    if isinstance(examples, Stream) or examples.inputs.ndim != 2:
        return []
    shown = _VALUES if examples.features is None else _NAMED
    values = [f"{value:.4g}" for value in examples.inputs[row, :shown].tolist()]
    more = examples.inputs.shape[1] > shown
    if examples.features is None:
        return [["features", ", ".join([*values, "…"] if more else values)]]
    pairs = [[name, value] for name, value in zip(examples.features, values, strict=False)]
    return [*pairs, ["…", ""]] if more else pairs
