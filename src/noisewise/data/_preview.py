"""Show one example on a page: a small picture, or its first features."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from noisewise.data._dataset import Dataset
from noisewise.data._decoder import to_rgb
from noisewise.data._encoding import Cells, Encoding, as_text
from noisewise.data._files import opened
from noisewise.data._stream import Stream

_UNNAMED = 8  # the number of features without names that are shown
_NAMED = 20  # the number of features with names
_LONGEST = 2000  # characters of a cell


def picture(examples: Dataset, row: int, *, side: int) -> str | None:
    """An example as the data URL of a PNG of at most ``side`` × ``side`` pixels; None if it is not an image."""
    from PIL import Image

    examples = examples.shown
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


def features(examples: Dataset, row: int, *, named: int = _NAMED, longest: int = _LONGEST) -> list[list[str]]:
    """The first features of an example as pairs of name and value; empty if it is not a row of features.

    Features without names are one pair. Of those with names, at most `named` are shown, of their text at most `longest` characters. If some
    are left out, "…" is the last.
    """
    examples = examples.shown
    if isinstance(examples, Stream) or examples.inputs.ndim != 2:
        return []
    if examples.encoding is None and not examples.inputs.shape[1]:
        cells = [[name, _cell(column, row, longest)] for name, column in list(examples.cells.items())[:named]]
        return [*cells, ["…", ""]] if len(examples.cells) > named else cells
    if examples.encoding is not None and examples.cells:
        return _as_read(examples, examples.encoding, row, named, longest)
    shown = _UNNAMED if examples.features is None else named
    values = [f"{value:.4g}" for value in examples.inputs[row, :shown].tolist()]
    more = examples.inputs.shape[1] > shown
    if examples.features is None:
        return [["features", ", ".join([*values, "…"] if more else values)]]
    pairs = [[name, value] for name, value in zip(examples.features, values, strict=False)]
    return [*pairs, ["…", ""]] if more else pairs


def _as_read(examples: Dataset, encoding: Encoding, row: int, named: int, longest: int) -> list[list[str]]:
    """The cells of a row as they came, in the order of the table; gaps are empty."""
    unchanged = {name: place for place, name in enumerate(encoding.used)} if encoding.plain else {}
    pairs = []
    for column in encoding.columns[:named]:
        if column.name in examples.cells:
            pairs.append([column.name, _cell(examples.cells[column.name], row, longest)])
        elif column.name in unchanged:
            pairs.append([column.name, f"{float(examples.inputs[row, unchanged[column.name]]):.4g}"])
    return [*pairs, ["…", ""]] if len(encoding.columns) > named else pairs


def _cell(column: Cells, row: int, longest: int) -> str:
    text = as_text(column[row : row + 1])[0] or ""
    return text if len(text) <= longest else f"{text[:longest]}…"
