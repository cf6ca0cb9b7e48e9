"""One way in: whatever the user has, `read` finds out what it is and calls the reader of it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from noisewise.data._arrays import from_arrays, is_frame
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._folder import from_folder, gather
from noisewise.data._hf import from_hf
from noisewise.data._loader import from_loader
from noisewise.data._official import Official, OfficialFiles, files, load
from noisewise.data._official import registry as official
from noisewise.data._table import TABLE_SUFFIXES, from_table, is_table
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.spec import name_of


def read(source: Any, **options: Any) -> Dataset:
    """Read what you have.

    Args:
        source: a `Dataset`; the path of a CSV, Parquet or Excel file or a DataFrame of pandas or polars (`from_table`), or the path of a
            folder (`from_folder`); a pair of inputs and labels, or a torch TensorDataset of them (`from_arrays`); a torch DataLoader
            (`from_loader`); `ImageFiles`; a Hugging Face data set (`from_hf`); or the name of an official data set, like
            "cifar10n(worst)" (`load`). Text that names an official data set is never taken for a path: write "./mnist".
        **options: what the reader named above takes besides.

    Returns:
        The data set; one that was read from a path or by a name can tell how to read it again, see `Dataset.source`.

    Example:
        >>> read(([[0.5], [1.5]], ["cat", "dog"]), name="pets")
        Dataset(pets: 2 × (1,) torch.float32, 2 classes)
        >>> read("digits", split="test")
        Dataset(digits: 360 × (1, 8, 8) torch.uint8, 10 classes, 0.00 % wrong)
    """
    if isinstance(source, Dataset):
        return _call("A data set that is read already", _as_it_is, source, **options)
    if isinstance(source, ImageFiles):
        return _call("A list of image files", _image_files, source, **options)
    if isinstance(source, DataLoader):
        return _call("A DataLoader", from_loader, source, **options)
    if isinstance(source, TensorDataset):
        return _call("A TensorDataset", from_arrays, *_pair(source), **options)
    if isinstance(source, tuple | list) and len(source) == 2:
        return _call("A pair of arrays", from_arrays, *source, **options)
    if isinstance(source, Official) or (isinstance(source, str) and is_official(source)):
        return _official(source, **options).read_from({"source": str(source), **_in_plain_data(options)})
    if is_frame(source):
        return _call("A DataFrame", from_table, source, **options)
    if isinstance(source, str | os.PathLike):
        return _path(source, **options).read_from(_in_plain_data({"source": Path(source), **options}))
    if type(source).__module__.partition(".")[0] == "datasets":
        return _call("A Hugging Face data set", from_hf, source, **options)
    kinds = "a path, a pair (inputs, labels), a data set or the name of one, a DataFrame, a TensorDataset or a DataLoader"
    raise invalid_parameter("source", "read", kinds, type(source).__name__)


def is_official(text: str) -> bool:
    """Whether text names an official data set, whatever its settings."""
    return name_of(text) in official


def _in_plain_data(given: Any) -> Any:
    """What a reader was given as JSON can hold it, every path from the root, so that it holds in another folder."""
    if isinstance(given, dict):
        return {name: _in_plain_data(value) for name, value in given.items() if value is not None}
    if isinstance(given, os.PathLike):
        return str(Path(given).absolute())
    if isinstance(given, str | int):
        return given
    return list(map(_in_plain_data, given)) if isinstance(given, Iterable) else float(given)


def _call(what: str, reader: Callable[..., Dataset], *args: Any, **options: Any) -> Dataset:
    taken = _options(reader)
    if others := [repr(name) for name in options if name not in taken]:
        raise InputError(f"{what} is read without {', '.join(others)}; leave that out.")
    return reader(*args, **options)


def _options(reader: Callable[..., Dataset]) -> list[str]:
    return [name for name, parameter in inspect.signature(reader).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]


def _as_it_is(source: Dataset) -> Dataset:
    return source


def _pair(source: TensorDataset) -> tuple[Tensor, Tensor]:
    if len(source.tensors) != 2:
        raise invalid_parameter("source", "read", "a TensorDataset of two tensors, inputs and labels", f"{len(source.tensors)} tensors")
    inputs, labels = source.tensors
    return inputs, labels


def _image_files(
    source: ImageFiles, *, size: int | tuple[int, int] | None = None, memory: float = 4.0, unreadable: str = "refuse"
) -> Dataset:
    return gather(source, size, memory, unreadable)


def _official(spec: str | Official, **options: Any) -> Dataset:
    data = official.get(spec)
    if isinstance(data, OfficialFiles):
        return _call(f"The data set {data.name!r}", _official_files, data, **options)
    return _call(f"The data set {data.name!r}", _official_arrays, data, **options)


def _official_arrays(data: Official, *, split: str = "train", root: str | Path | None = None) -> Dataset:
    return load(data, split, root)


def _official_files(
    data: OfficialFiles,
    *,
    split: str = "train",
    root: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    memory: float = 4.0,
    unreadable: str = "refuse",
) -> Dataset:
    return gather(files(data, split, root), size or data.image_size, memory, unreadable)


def _path(source: str | os.PathLike[str], **options: Any) -> Dataset:
    path = Path(source)
    if path.is_dir():
        return _call(f"The folder {str(path)!r}", from_folder, path, **options)
    if is_table(path):
        return _call(f"The table {str(path)!r}", from_table, path, **options)
    hint = unknown("data set", str(source), official.available())
    raise InputError(f"{hint} It is no folder and no file that ends in {', '.join(sorted(TABLE_SUFFIXES))} either.")


READ_OPTIONS = frozenset(
    name for reader in (from_arrays, from_folder, from_hf, from_loader, from_table, _official_files) for name in _options(reader)
)
"""All that `read` takes besides the source."""
