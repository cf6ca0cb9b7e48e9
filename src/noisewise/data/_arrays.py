"""A data set from arrays the user has in memory. It must not know files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
            0 to 1, or (N, height, width) as uint8; or features as any numbers, (N, …). All but uint8 images become float32.
        labels: one per input, integers or text.
        classes: the names of the classes in their order; by default those that occur, sorted. Give the training set's to a
            test set, so that both count the classes alike.
        true_labels: the labels known to be right, if they are.
        ids: what you call every example, each once.
        name: what to call the data set.

    Returns:
        The data set, on the device the inputs are on.

    Example:
        >>> from_arrays([[5.1, 3.5], [6.7, 3.0], [5.9, 3.2]], ["setosa", "virginica", "setosa"])
        Dataset(arrays: 3 × (2,) torch.float32, 2 classes)
    """
    tensor = as_inputs(inputs)
    given = Column(labels, "the labels")
    truth = None if true_labels is None else Column(true_labels, "the true labels")
    for column in (given, truth, None if ids is None else Column(ids, "the ids")):
        if column is not None and len(column.values) != len(tensor):
            raise InputError(
                f"There must be one value for each of the {len(tensor)} inputs in {column.name}. Got {len(column.values)} instead."
            )
    numbered, true_numbered, names = encode(given, truth, classes)
    return Dataset(
        tensor,
        numbered.to(tensor.device),
        names,
        true_labels=None if true_numbered is None else true_numbered.to(tensor.device),
        ids=None if ids is None else Column(ids, "the ids").ids(),
        name=name,
    )


def as_inputs(inputs: Any) -> Tensor:
    """Inputs as a data set holds them: uint8 images with the channels first, or float32 numbers, all of them finite."""
    tensor = _tensor(inputs)
    if tensor.dim() < 2 or not tensor.numel():
        raise invalid_parameter("inputs", "from_arrays", "shaped (N, …) with at least one example and one feature", tuple(tensor.shape))
    if tensor.dtype == torch.uint8 and tensor.dim() == 3:
        return tensor.unsqueeze(1)
    if tensor.dtype != torch.uint8 or tensor.dim() != 4:
        tensor = tensor.float()
        _check_finite(tensor)
    return tensor.permute(0, 3, 1, 2).contiguous() if tensor.dim() == 4 and _channels_are_last(tensor) else tensor


def as_tensor(inputs: Any, fractions: torch.dtype) -> Tensor:
    """Inputs as a tensor of the type and in the layout they have.

    Args:
        inputs: a tensor, an array or a list.
        fractions: the type that fractions of an array or a list get, where numpy's own is all they have: float64.
    """
    given = _dense(inputs)
    if isinstance(given, Tensor):
        return given
    widest = given.dtype.kind == "f" and given.dtype.itemsize >= 8
    tensor = _shared(given.astype(np.float64 if widest else given.dtype.newbyteorder("="), copy=False))
    return tensor.to(fractions) if widest else tensor


def _channels_are_last(images: Tensor) -> bool:
    """Whether the last dimension is that of one or three channels; of bytes, which are images for sure, also of two or four."""
    rows, columns, last = images.shape[1:]
    if last in (1, 3):
        return rows not in (1, 3)
    return images.dtype == torch.uint8 and last in (2, 4) and min(rows, columns) > 8


def match_dtype(inputs: Tensor, kind: str, what: str, *, scaled: bool = True) -> Tensor:
    """Inputs beside others of some type: where those are bytes, integers up to 255 are bytes too.

    Args:
        inputs: of any type.
        kind: of the others, as torch calls it.
        what: the inputs are called.
        scaled: whether bytes count from 0 to 1, so that numbers from 0 to 1 will do as well.
    """
    if kind != str(torch.uint8) or inputs.dtype == torch.uint8 or inputs.is_meta:
        return inputs
    low, high = (float(end) for end in torch.aminmax(inputs))
    if scaled and low >= 0 and high <= 1:
        return inputs
    if low >= 0 and high <= 255 and torch.equal(inputs, inputs.round()):
        return inputs.to(torch.uint8)
    raise InputError(
        f"{what} must be bytes{', or numbers from 0 to 1,' if scaled else ''} where those trained on are bytes. "
        f"Got {inputs.dtype} from {low:g} to {high:g} instead."
    )


def _check_finite(tensor: Tensor) -> None:
    finite = torch.isfinite(tensor).flatten(1).all(1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        place = (~torch.isfinite(tensor[row])).nonzero()[0].tolist()
        where = f"column {place[0]}" if len(place) == 1 else f"place {tuple(place)}"
        raise InputError(
            f"Row {row}, {where} of the inputs is {tensor[row][tuple(place)].item()}, not a finite number; fill it in or leave the row out."
        )


def _tensor(inputs: Any) -> Tensor:
    given = _dense(inputs)
    if isinstance(given, Tensor):
        return given
    return _shared(given if given.dtype == np.uint8 else given.astype(np.float32))


def _shared(array: np.ndarray) -> Tensor:
    """A tensor in the memory of an array, where it can be."""
    return torch.from_numpy(array if array.flags.writeable and array.flags.c_contiguous else array.copy())


def _dense(inputs: Any) -> Tensor | np.ndarray:
    """Inputs as a tensor or an array of numbers."""
    if isinstance(inputs, list | tuple) and len(inputs) and all(isinstance(one, Tensor) for one in inputs):
        if len({one.shape for one in inputs}) > 1:
            raise _several_shapes()
        inputs = torch.stack([one.detach() for one in inputs])
    if isinstance(inputs, Tensor) and inputs.layout == torch.strided and not inputs.is_nested:
        if inputs.is_complex():
            raise invalid_parameter("inputs", "from_arrays", "numbers", str(inputs.dtype))
        return inputs.detach()
    for densify in ("to_dense", "toarray"):  # a sparse tensor's, or a sparse matrix's of scipy
        if hasattr(inputs, densify):
            raise invalid_parameter("inputs", "from_arrays", f"dense, as inputs.{densify}() gives them", type(inputs).__name__)
    if isinstance(inputs, np.ma.MaskedArray) and inputs.dtype.names is None and np.ma.is_masked(inputs):
        raise invalid_parameter("inputs", "from_arrays", "without masked entries, which have no value", "a masked array")
    try:
        array = np.asarray(inputs)
    except ValueError:
        raise _several_shapes() from None
    if array.dtype == object:  # as a DataFrame with columns of several types gives it
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise invalid_parameter("inputs", "from_arrays", "numbers", f"{array.dtype} such as {array.flat[0] if array.size else None!r}")
    return array


def _several_shapes() -> InputError:
    return InputError("The inputs must all have the same shape. Got rows of several lengths; pad them or cut them to one.")


def is_frame(source: Any) -> bool:
    """Whether something is a DataFrame of pandas or polars, or of a class made from one."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "polars") for kind in type(source).__mro__)


def columns_of(frame: Any) -> tuple[list[str], list[Any]]:
    """The names and the values of all columns; names that are no text, like numbers, as text. The index is no column.

    Args:
        frame: a DataFrame.
    """
    if hasattr(frame, "get_columns"):  # of polars, which has no index
        return list(frame.columns), [column.to_numpy() for column in frame.get_columns()]
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]  # by place, as a name may occur twice
    return list(map(str, frame.columns)), [column.to_numpy(object if column.dtype.kind in "mM" else None) for column in columns]
