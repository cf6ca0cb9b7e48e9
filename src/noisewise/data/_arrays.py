"""A data set from arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.data._column import Column, encode
from noisewise.data._dataset import Dataset
from noisewise.errors import InputError, invalid_parameter


def from_arrays(
    inputs: Any,
    labels: Any,
    *,
    classes: Sequence[str] | None = None,
    true_labels: Any = None,
    ids: Sequence[Any] | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a data set of numpy arrays, torch tensors or lists.

    Args:
        inputs: images, (N, channels, height, width) or (N, height, width, channels) with 1 or 3 channels, as uint8 or as numbers from
            0 to 1, or (N, height, width) as uint8; or features as any numbers, (N, …). Everything except uint8 images becomes float32.
        labels: one per input, integers or text.
        classes: the names of the classes in order; by default those that occur, sorted. For a test set pass the classes of the
            training set.
        true_labels: the true labels, if they are known.
        ids: a unique name for every example.
        name: the name of the data set.

    Returns:
        The data set, on the device of the inputs.

    Example:
        >>> from_arrays([[5.1, 3.5], [6.7, 3.0], [5.9, 3.2]], ["setosa", "virginica", "setosa"])
        Dataset(arrays: 3 × (2,) torch.float32, 2 classes)
    """
    return _labelled(as_inputs(inputs), labels, classes, true_labels, ids, name)


def from_texts(
    texts: Sequence[str],
    labels: Any,
    *,
    classes: Sequence[str] | None = None,
    true_labels: Any = None,
    ids: Sequence[Any] | None = None,
    name: str = "texts",
) -> Dataset:
    """Make a data set of texts, which are shown to people but are no inputs yet; for the arguments see `from_arrays`."""
    cells = np.empty(len(texts), object)
    cells[:] = list(texts)
    return replace(_labelled(torch.empty(len(texts), 0), labels, classes, true_labels, ids, name), cells={"text": cells})


def _labelled(
    tensor: Tensor, labels: Any, classes: Sequence[str] | None, true_labels: Any, ids: Sequence[Any] | None, name: str
) -> Dataset:
    given = Column(labels, "the labels")
    truth = None if true_labels is None else Column(true_labels, "the true labels")
    names = None if ids is None else Column(ids, "the ids")
    for column in (given, truth, names):
        if column is not None and len(column.values) != len(tensor):
            got = len(column.values)
            raise InputError(f"There must be one value for each of the {len(tensor)} inputs in {column.name}. Got {got} instead.")
    numbered, true_numbered, class_names = encode(given, truth, classes)
    return Dataset(
        tensor,
        numbered.to(tensor.device),
        class_names,
        true_labels=None if true_numbered is None else true_numbered.to(tensor.device),
        ids=None if names is None else names.ids(),
        name=name,
    )


def as_inputs(inputs: Any) -> Tensor:
    """Convert inputs to uint8 images with the channels first, or to finite float32 numbers."""
    dense = _dense(inputs)
    if isinstance(dense, np.ndarray):
        dense = _to_torch(dense if dense.dtype == np.uint8 else dense.astype(np.float32))
    if dense.dim() < 2 or not dense.numel():
        raise invalid_parameter("inputs", "from_arrays", "shaped (N, …) with at least one example and one feature", tuple(dense.shape))
    if dense.dtype == torch.uint8 and dense.dim() == 3:
        return dense.unsqueeze(1)
    if dense.dtype != torch.uint8 or dense.dim() != 4:
        dense = dense.float()
        _check_finite(dense)
    return dense.permute(0, 3, 1, 2).contiguous() if dense.dim() == 4 and _channels_are_last(dense) else dense


def as_tensor(inputs: Any, dtype: torch.dtype) -> Tensor:
    """Convert inputs to a tensor without changing their layout.

    Args:
        inputs: a tensor, an array or a list; all types are kept except float64 of arrays and lists.
        dtype: the type that replaces float64.
    """
    dense = _dense(inputs)
    if isinstance(dense, Tensor):
        return dense
    tensor = _to_torch(dense.astype(dense.dtype.newbyteorder("="), copy=False))
    return tensor.to(dtype) if tensor.dtype == torch.float64 else tensor


def _channels_are_last(images: Tensor) -> bool:
    """Whether the last dimension is one or three channels; for uint8, which is always an image, also two or four."""
    rows, columns, last = images.shape[1:]
    if last in (1, 3):
        return rows not in (1, 3)
    return images.dtype == torch.uint8 and last in (2, 4) and min(rows, columns) > 8


def _check_finite(tensor: Tensor) -> None:
    finite = torch.isfinite(tensor).flatten(1).all(1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        index = (~torch.isfinite(tensor[row])).nonzero()[0].tolist()
        where = f"column {index[0]}" if len(index) == 1 else f"position {tuple(index)}"
        value = tensor[row][tuple(index)].item()
        raise InputError(f"Row {row}, {where} of the inputs is {value}, not a finite number; fill it in or leave the row out.")


def _to_torch(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of an array, if possible."""
    return torch.from_numpy(array if array.flags.writeable and array.flags.c_contiguous else array.copy())


def _dense(inputs: Any) -> Tensor | np.ndarray:
    """Inputs as a tensor, or as an array of numbers."""
    if hasattr(inputs, "toarray"):  # a sparse matrix of scipy
        raise invalid_parameter("inputs", "from_arrays", "dense, like inputs.toarray()", type(inputs).__name__)
    if np.ma.isMaskedArray(inputs) and np.ma.is_masked(inputs):
        raise invalid_parameter("inputs", "from_arrays", "without masked entries", "a masked array")
    try:
        if isinstance(inputs, list | tuple) and inputs and isinstance(inputs[0], Tensor):
            inputs = torch.stack(list(inputs))
        if isinstance(inputs, Tensor):
            return inputs.detach()
        array = np.asarray(inputs)
    except (RuntimeError, ValueError):
        raise InputError("The inputs must all have the same shape. Got several shapes; pad or cut them to one.") from None
    if array.dtype == object:  # from a DataFrame with columns of several types
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise invalid_parameter("inputs", "from_arrays", "numbers", f"{array.dtype} such as {array.flat[0] if array.size else None!r}")
    return array
