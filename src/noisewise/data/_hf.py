"""A data set from a Hugging Face `datasets.Dataset`. It asks the object for its columns and never imports that library."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode
from noisewise.data._dataset import Dataset
from noisewise.data._decoder import open_image, to_rgb
from noisewise.data._files import without_pillow_warnings
from noisewise.data._folder import one_size
from noisewise.errors import InputError, invalid_parameter, listed, reason, unknown


def from_hf(
    dataset: Any,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    image: str | None = None,
    id: str | None = None,
    true_label: str | None = None,
    classes: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Read a Hugging Face data set into memory.

    Args:
        dataset: one split, as `datasets.load_dataset(…, split="train")` gives it.
        label: the column of labels.
        features: the columns of numbers to learn from, or of vectors of one length.
        image: the column of images to learn from; by default the column of images there is, unless features are named.
        id: a column that names every example, each once.
        true_label: a column of labels known to be right.
        classes: the names of the classes in their order; by default those the column of labels comes with.
        size: the side, or (height, width), to resize images to; it may be left out where all have one size.

    Returns:
        The data set, in the order of the rows.
    """
    if not hasattr(dataset, "column_names") or not isinstance(dataset.column_names, list):
        raise invalid_parameter("dataset", "from_hf", "one split of a Hugging Face data set, like dataset['train']", type(dataset).__name__)
    if not len(dataset):
        raise invalid_parameter("dataset", "from_hf", "a data set with at least one row", dataset)
    source = dataset.with_format(None)
    features = [features] if isinstance(features, str) else features
    for name in (label, image, id, true_label, *(features or ())):
        if name is not None and name not in source.column_names:
            raise unknown("column of the data set", name, source.column_names)
    given = _column(source, label)
    truth = None if true_label is None else _column(source, true_label)
    numbered, true_numbered, names = encode(given, truth, classes or getattr(source.features[label], "names", None))
    ids = None if id is None else _column(source, id).ids()
    pictures = [name for name in source.column_names if type(source.features[name]).__name__ == "Image"]
    if image is None and features is None and len(pictures) == 1:
        image = pictures[0]
    if image is not None:
        inputs = _images(source, image, size)
    elif features:
        columns = (_column(source, name).numbers() for name in features)  # of numbers, or of vectors
        inputs = torch.from_numpy(np.concatenate([values.reshape(len(values), -1) for values in columns], 1))
    else:
        wanted = f"given, or else image, as not exactly one of the columns {listed(source.column_names)} holds images"
        raise invalid_parameter("features", "from_hf", wanted, features)
    return Dataset(inputs, numbered, names, true_labels=true_numbered, ids=ids, name=str(getattr(source, "builder_name", None) or "hf"))


def _column(source: Any, name: str) -> Column:
    return Column(list(source[name]), f"column {name!r} of the data set")


def _images(source: Any, name: str, size: int | tuple[int, int] | None) -> Tensor:
    wanted = None if size is None else one_size(size)
    inputs: Tensor | None = None
    column = Column((), f"column {name!r} of the data set")
    kind = type(source.features[name])
    if kind.__name__ == "Image":  # decoded here, as `datasets` would open any format and size
        source = source.cast_column(name, kind(decode=False))
    for row in range(len(source)):
        try:
            with without_pillow_warnings(), open_image(_file(source[row][name])) as opened:
                image = to_rgb(opened, wanted)
        except Exception as error:  # a damaged image can fail in any way its decoder can
            raise column.wrong(row, f"holds no image that can be read ({reason(error)})", "leave the row out") from error
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        if inputs is None:
            inputs = torch.empty((len(source), *pixels.shape), dtype=torch.uint8)
        if pixels.shape != inputs.shape[1:]:
            raise InputError(
                f"The images of {column.name} must have one size where none is asked for. Got {tuple(inputs.shape[2:])} for row 0 "
                f"and {tuple(pixels.shape[1:])} for row {row}; set 'size' to resize them."
            )
        inputs[row] = pixels
    assert inputs is not None
    return inputs


def _file(stored: dict[str, Any]) -> BinaryIO | str:
    return str(stored["path"]) if stored["bytes"] is None else io.BytesIO(stored["bytes"])
