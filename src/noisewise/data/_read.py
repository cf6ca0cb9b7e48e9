"""`read` chooses the reader for a source and calls it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, TensorDataset

from noisewise.data._arrays import from_arrays, from_texts
from noisewise.data._dataset import Dataset
from noisewise.data._embed import Embedder, NamedEmbedder, VectorFile, as_cache, as_embedder, embedded
from noisewise.data._files import ImageFiles
from noisewise.data._folder import from_folder, load_or_stream
from noisewise.data._hf import from_hf
from noisewise.data._loader import from_loader
from noisewise.data._official import Official, OfficialFiles, files, load
from noisewise.data._official import registry as official
from noisewise.data._table import TABLE_SUFFIXES, from_table, is_frame, is_hf, is_table
from noisewise.data._vectors import is_vectors
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.spec import name_of


def read(source: Any, *, embed: Any = None, embed_cache: Any = None, download: bool = False, **options: Any) -> Dataset:
    """Read data of any supported kind.

    Args:
        source: a `Dataset`; the path of a CSV, Parquet or Excel file or a DataFrame of pandas or polars (`from_table`), or the path of a
            folder (`from_folder`); a pair of inputs and labels, or a torch TensorDataset of them (`from_arrays`); a torch DataLoader
            (`from_loader`); `ImageFiles`; a Hugging Face data set (`from_hf`); or the name of an official data set, like
            "cifar10n(worst)" (`load`). Text that names an official data set is never read as a path: write "./mnist" for a folder.
        embed: where to take embeddings from, which become the inputs: a file with a row for every example, in the order of the data
            (.npy, .npz or .safetensors); a torch module that maps a batch of inputs to vectors; or the name of a pretrained model, such as
            "transformers:folder" or "timm:vit_small_patch16_224@weights.safetensors". People are still shown the images, texts or rows.
        embed_cache: the folder that keeps computed embeddings; by default ``runs/embeddings``.
        download: whether a model given by name may be downloaded. Without it, only local files are used.
        **options: the options of the reader named above.

    Returns:
        The data set. If it was read from a path or by name, `Dataset.source` says how to read it again.

    Example:
        >>> read(([[0.5], [1.5]], ["cat", "dog"]), name="pets")
        Dataset(pets: 2 × (1,) torch.float32, 2 classes)
        >>> read("digits", split="test")
        Dataset(digits: 360 × (1, 8, 8) torch.uint8, 10 classes, 0.00 % wrong)
    """
    if embed is not None:
        return _read_embedded(source, as_embedder(embed, download=download), embed_cache, options)
    for name, value in {"embed_cache": embed_cache, "download": download or None}.items():
        if value is not None:
            raise invalid_parameter(name, "read", "left out without 'embed'", value)
    kind, reader, *args = _reader(source)
    if others := [repr(name) for name in options if name not in _options(reader)]:
        raise InputError(f"{kind} is read without {', '.join(others)}; leave that out.")
    data: Dataset = reader(*args, **options)
    options = {name: value for name, value in options.items() if name not in ("encoding", "encoded")}
    if isinstance(source, Official) or (isinstance(source, str) and is_official(source)):
        return data.read_from(_as_json({"source": str(source), **options}))
    return data.read_from(_as_json({"source": Path(source), **options})) if isinstance(source, str | os.PathLike) else data


def _read_embedded(source: Any, embedder: Embedder, cache: Any, options: dict[str, Any]) -> Dataset:
    """Read what is embedded, and replace its inputs by the embeddings."""
    if isinstance(embedder, NamedEmbedder) and embedder.takes == "texts" and _is_texts(source):
        originals = from_texts(*source, **options)
    else:
        originals = read(source, **_reading_originals(source, embedder, options))
    data = embedded(originals, embedder, cache, options.get("text") or options.get("features"))
    if originals.source is None:
        return data
    arguments = {name: value for name, value in originals.source.items() if name in options or name == "source"}
    kept = {} if isinstance(embedder, VectorFile) else {"embed_cache": str(as_cache(cache).folder)}
    return data.read_from({**arguments, "embed": embedder.spec, **kept})


def _reading_originals(source: Any, embedder: Embedder, options: dict[str, Any]) -> dict[str, Any]:
    """The options for reading what is embedded. Images stay on disk, and rows are not encoded, unless the model needs them."""
    if embedder.takes == "inputs":
        return options
    known, added = _options(_reader(source)[1]), dict[str, Any]()
    if "encoded" in known:
        added["encoded"] = False
    if options.get("image") is not None or ("size" in known and "label" not in known):
        size = embedder.size if isinstance(embedder, NamedEmbedder) else (1, 1)  # images that are only shown are read from their files
        added |= {"memory": 0.0, **({} if size is None else {"size": size})}
    return {name: value for name, value in added.items() if name in known} | options


def _is_texts(source: Any) -> bool:
    """Whether a source is a pair of texts and labels."""
    pair = isinstance(source, tuple | list) and len(source) == 2
    return pair and len(source[0]) > 0 and all(isinstance(text, str) for text in source[0])


def _reader(source: Any) -> tuple[Any, ...]:
    """The kind of a source for errors, the function that reads it, and the arguments of that function."""
    if isinstance(source, Dataset):
        return "A data set in memory", lambda data: data, source
    if isinstance(source, ImageFiles):
        return "A list of image files", load_or_stream, source
    if isinstance(source, DataLoader):
        return "A DataLoader", from_loader, source
    if isinstance(source, TensorDataset):
        if len(source.tensors) != 2:
            raise invalid_parameter("source", "read", "a TensorDataset of inputs and labels", f"{len(source.tensors)} tensors")
        return "A TensorDataset", from_arrays, *source.tensors
    if isinstance(source, tuple | list) and len(source) == 2:
        return "A pair of arrays", from_arrays, *source
    if isinstance(source, Official) or (isinstance(source, str) and is_official(source)):
        data = official.get(source)
        return f"The data set {data.name!r}", _official_files if isinstance(data, OfficialFiles) else load, data
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return f"The folder {str(path)!r}", from_folder, path
        if is_table(path):
            return f"The table {str(path)!r}", from_table, path
        if is_vectors(path):
            given = "Give the table or folder with the labels, and this file as 'embed' (--features on the command line)."
            raise InputError(f"The file of embeddings {str(path)!r} has no labels. {given}")
        hint = unknown("data set", str(source), official.available())
        raise InputError(f"{hint} It is not a folder either, nor a file that ends in {', '.join(sorted(TABLE_SUFFIXES))}.")
    if is_frame(source):
        return "A DataFrame", from_table, source
    if is_hf(source):
        return "A Hugging Face data set", from_hf, source
    kinds = "a path, a pair (inputs, labels), a data set or the name of one, a DataFrame, a TensorDataset or a DataLoader"
    raise invalid_parameter("source", "read", kinds, type(source).__name__)


def is_official(text: str) -> bool:
    """Whether a text is the name or spec of an official data set."""
    return name_of(text) in official


def _as_json(value: Any) -> Any:
    """Convert options to what JSON can store, with absolute paths, so that they work from every folder."""
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items() if item is not None}
    if isinstance(value, os.PathLike):
        return str(Path(value).absolute())
    if isinstance(value, str | int):
        return value
    return list(map(_as_json, value)) if isinstance(value, Iterable) else float(value)


def _options(reader: Callable[..., Dataset]) -> list[str]:
    return [name for name, parameter in inspect.signature(reader).parameters.items() if parameter.default is not parameter.empty]


def _official_files(
    data: OfficialFiles,
    *,
    split: str = "train",
    root: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    memory: float = 4.0,
    unreadable: str = "refuse",
) -> Dataset:
    return load_or_stream(files(data, split, root), size=size or data.image_size, memory=memory, unreadable=unreadable)


READ_OPTIONS = frozenset(
    name for reader in (read, from_arrays, from_folder, from_hf, from_loader, from_table, _official_files) for name in _options(reader)
)
"""The names of all options of `read`."""
