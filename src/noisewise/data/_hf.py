"""A data set from a Hugging Face `datasets.Dataset`, without importing that library."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode
from noisewise.data._dataset import Dataset
from noisewise.data._decoder import open_image, to_rgb
from noisewise.data._encoding import Encoding
from noisewise.data._files import without_pillow_warnings
from noisewise.data._folder import as_size
from noisewise.data._table import from_table
from noisewise.errors import InputError, invalid_parameter, reason, unknown


def from_hf(
    dataset: Any,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    image: str | None = None,
    id: str | None = None,
    true_label: str | None = None,
    classes: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
    encoding: Encoding | None = None,
    encoded: bool = True,
) -> Dataset:
    """Read a Hugging Face data set into memory.

    Args:
        dataset: one split, as `datasets.load_dataset(…, split="train")` returns it.
        label: the column of labels.
        features: the columns to learn from, or columns of vectors of one length and of numbers; by default all that are not named here.
        columns: what columns contain, where the guess is wrong; see `from_table`.
        drop: columns to leave out.
        text: columns of text.
        image: the column of images to learn from; by default the only column of images, unless features are given.
        id: a column with a unique name for every example.
        true_label: a column of true labels.
        classes: the names of the classes in order; by default those of the column of labels.
        size: the side, or (height, width), to resize images to; not needed if all images have one size.
        encoding: the encoding of a training set; see `from_table`.
        encoded: whether to make inputs of the cells; see `from_table`.

    Returns:
        The data set, in the order of the rows.
    """
    if not hasattr(dataset, "column_names") or not isinstance(dataset.column_names, list) or not len(dataset):
        requirement = "one split of a Hugging Face data set with at least one row, like dataset['train']"
        raise invalid_parameter("dataset", "from_hf", requirement, type(dataset).__name__)
    source = dataset.with_format(None)
    features = [features] if isinstance(features, str) else features
    for name in (label, image, id, true_label, *(features or ())):
        if name is not None and name not in source.column_names:
            raise unknown("column of the data set", name, source.column_names)
    class_names = classes or getattr(source.features[label], "names", None)
    images = [name for name in source.column_names if type(source.features[name]).__name__ == "Image"]
    if image is None and features is None and len(images) == 1:
        image = images[0]
    if image is None and not any(map(_has_vectors, (source.features[name] for name in features or ()))):
        drop = [*([drop] if isinstance(drop, str) else drop or ()), *(images if features is None else ())]
        wishes: dict[str, Any] = {"features": features, "columns": columns, "drop": drop, "text": text}
        wishes |= {"encoding": encoding, "encoded": encoded}
        return from_table(source, label=label, id=id, true_label=true_label, classes=class_names, **wishes)
    truth = None if true_label is None else _column(source, true_label)
    numbered, true_numbered, names = encode(_column(source, label), truth, class_names)
    ids = None if id is None else _column(source, id).ids()
    if image is not None:
        inputs = _images(source, image, size)
    else:
        vectors = (_column(source, name).numbers() for name in features or ())
        inputs = torch.from_numpy(np.concatenate([values.reshape(len(values), -1) for values in vectors], 1))
    return Dataset(inputs, numbered, names, true_labels=true_numbered, ids=ids, name=str(getattr(source, "builder_name", None) or "hf"))


def _has_vectors(feature: Any) -> bool:
    """Whether a column has lists or arrays."""
    return not hasattr(feature, "dtype") or type(feature).__name__.startswith("Array")


def _column(source: Any, name: str) -> Column:
    return Column(list(source[name]), f"column {name!r} of the data set")


def _images(source: Any, name: str, size: int | tuple[int, int] | None) -> Tensor:
    common = None if size is None else as_size(size)
    column = Column((), f"column {name!r} of the data set")
    kind = type(source.features[name])
    if kind.__name__ == "Image":  # decoded here, because `datasets` would open any format and size
        source = source.cast_column(name, kind(decode=False))
    inputs = torch.empty(0)
    for row in range(len(source)):
        try:
            stored = source[row][name]
            file = str(stored["path"]) if stored["bytes"] is None else io.BytesIO(stored["bytes"])
            with without_pillow_warnings(), open_image(file) as opened:
                pixels = torch.from_numpy(np.array(to_rgb(opened, common))).permute(2, 0, 1)
        except Exception as error:  # a damaged image can fail in any way its decoder can
            raise column.error(row, f"has an unreadable image ({reason(error)})", "leave the row out") from error
        if row == 0:
            inputs = torch.empty((len(source), *pixels.shape), dtype=torch.uint8)
        if pixels.shape != inputs.shape[1:]:
            sizes = f"{tuple(inputs.shape[2:])} in row 0 and {tuple(pixels.shape[1:])} in row {row}"
            raise InputError(f"The images of {column.name} have different sizes: {sizes}; set 'size' to resize them.")
        inputs[row] = pixels
    return inputs
