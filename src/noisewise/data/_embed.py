"""Embeddings as the inputs of a data set: from a file, or computed once by a pretrained model and kept in a cache.

The images, texts or rows themselves stay with the data set as `Dataset.originals`, which people are shown. Libraries of pretrained models
are known to `noisewise.integrations` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noisewise.data._arrays import as_inputs
from noisewise.data._dataset import Dataset, digest, digest_of
from noisewise.data._encoding import Question, as_text
from noisewise.data._encoding._kinds import contents_of
from noisewise.data._files import decode
from noisewise.data._folder import images_below
from noisewise.data._stream import Stream, batches
from noisewise.data._table import has_named_columns, read_cells
from noisewise.data._vectors import LIBRARIES, VECTOR_SUFFIXES, Vectors, check_vectors, is_vectors, read_vectors
from noisewise.errors import InputError, invalid_parameter, listed, reason
from noisewise.extensions import extension
from noisewise.output import make_folder, written_whole

_BATCH = 128
_CACHE = Path("runs/embeddings")
_FORMS = f"a file that ends in {', '.join(VECTOR_SUFFIXES)}, a torch module, or the name of a model, such as 'transformers:folder'"


@dataclass(frozen=True)
class EmbeddingCache:
    """A folder of computed embeddings. The name of a file follows from the data and the model.

    Args:
        folder: the folder.
        write: whether new embeddings are written; False for a folder that a run names, because the run may come from others.
    """

    folder: Path
    write: bool = True

    def read(self, key: str, number: int) -> Tensor | None:
        """The embeddings of a key; None if they are not there, or not whole."""
        if not (self.folder / f"{key}.safetensors").is_file():
            return None
        try:
            rows = read_vectors(self.folder / f"{key}.safetensors").rows
        except InputError:
            return None
        return rows if len(rows) == number else None

    def store(self, key: str, rows: Tensor) -> None:
        """Write embeddings under a key."""
        from safetensors.torch import save_file

        if self.write:
            make_folder(self.folder)
            with written_whole(self.folder / f"{key}.safetensors") as part:
                save_file({"embeddings": rows}, part)


@dataclass(frozen=True)
class VectorFile:
    """Embeddings in a file, a row for every example."""

    path: Path
    takes = "nothing"
    digest = None

    @property
    def spec(self) -> str:
        return str(self.path.absolute())

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, originals: Dataset) -> Tensor:
        """The row of every example: with the same id if the file has ids, otherwise in the order of the data."""
        vectors = read_vectors(self.path)
        if vectors.ids is not None:
            return vectors.rows[_places(vectors, originals, self.name)]
        if len(vectors.rows) != len(originals):
            raise InputError(
                f"The file {self.name!r} has {len(vectors.rows):,} rows of embeddings, but {originals.name} has {len(originals):,} "
                "examples; give one row for every example, in the order of the data."
            )
        return vectors.rows


def _places(vectors: Vectors, originals: Dataset, name: str) -> Tensor:
    """The row of every example, by its id."""
    if originals.ids is None:
        raise InputError(f"The file {name!r} has ids, but the examples of {originals.name} have none; name their column with 'id'.")
    places = {id: place for place, id in enumerate(vectors.ids or ())}
    if len(places) < len(vectors.rows):
        raise InputError(f"The ids in {name!r} must differ. Got {len(places):,} different ids for {len(vectors.rows):,} rows.")
    if missing := [id for id in originals.ids if id not in places]:
        raise InputError(f"The file {name!r} has no embedding for {len(missing):,} of {len(originals):,} examples: {listed(missing)}.")
    return torch.tensor([places[id] for id in originals.ids])


class ModuleEmbedder:
    """A torch module that maps a batch of inputs to vectors. It runs where its parameters are, in eval mode."""

    takes = "inputs"

    def __init__(self, module: nn.Module) -> None:
        self.module, self.name = module, type(module).__name__

    @property
    def spec(self) -> dict[str, str]:
        return {"module": self.name, "digest": self.digest}

    @cached_property
    def digest(self) -> str:
        layers = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.module))  # the address of a function differs between processes
        state = {name: value for name, value in sorted(self.module.state_dict().items()) if isinstance(value, Tensor)}
        return digest_of([layers, *(f"{name} {digest(value)}" for name, value in state.items())])

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes, such as those of `compare`, get the data set without the module, which they do not need."""
        return RecordedModule, (self.name, self.digest)

    def vectors(self, inputs: Tensor) -> Tensor:
        """The embeddings of a batch; bytes of images become numbers from 0 to 1."""
        device = next(self.module.parameters(), inputs).device
        inputs = inputs.to(device)
        inputs = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
        with _in_eval_mode(self.module):
            try:
                return self.module(inputs)  # type: ignore[no-any-return]
            except Exception as error:  # a custom module may raise anything
                raise InputError(f"The module {self.name} cannot embed inputs shaped {tuple(inputs.shape)}: {reason(error)}.") from error


@contextmanager
def _in_eval_mode(module: nn.Module) -> Iterator[None]:
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


@dataclass(frozen=True)
class RecordedModule:
    """A torch module that is not at hand: only embeddings in the cache can be used.

    Args:
        name: the name of its class.
        digest: identifies the module.
    """

    name: str
    digest: str
    takes = "inputs"

    @property
    def spec(self) -> dict[str, str]:
        return {"module": self.name, "digest": self.digest}

    def vectors(self, inputs: Any) -> Tensor:
        raise InputError(
            f"The inputs are embeddings by the torch module {self.name}, which runs do not store, and they are not in the cache. "
            "Read the data again with embed=, the same module."
        )


@dataclass(frozen=True)
class NamedEmbedder:
    """A pretrained model of a library, given by name.

    Args:
        spec: the name, such as "transformers:/models/minilm".
        digest: identifies the model and its weights.
        takes: "images" or "texts".
        vectors: computes the embeddings of a batch: uint8 images (N, 3, height, width), or a list of texts.
        size: the (height, width) of its images, or None.
        columns: the columns of the texts; found when a table is embedded.
    """

    spec: str
    digest: str
    takes: str
    vectors: Callable[[Any], Tensor]
    size: tuple[int, int] | None = None
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec


Embedder = VectorFile | ModuleEmbedder | RecordedModule | NamedEmbedder


def as_embedder(embed: Any, *, download: bool = False) -> Embedder:
    """What `read` takes as ``embed``, as an object that gives embeddings.

    Args:
        embed: the path of a file of embeddings, a torch module, the name of a model, or what a run recorded of a module.
        download: whether a model may be downloaded.
    """
    if isinstance(embed, Embedder):
        return embed
    if isinstance(embed, nn.Module):
        return ModuleEmbedder(embed)
    if isinstance(embed, Mapping) and isinstance(embed.get("digest"), str):
        return RecordedModule(str(embed.get("module")), embed["digest"])
    if is_vectors(embed):
        return VectorFile(Path(embed))
    if isinstance(embed, str):
        library, _, name = embed.partition(":")
        if library in LIBRARIES and name:
            embedder: NamedEmbedder = extension(f"embedder of {library}")(name, download=download)
            return embedder
    advice = "" if isinstance(embed, nn.Module | os.PathLike) else " To learn from columns of a table, use 'features' (--feature)."
    raise InputError(f"{invalid_parameter('embed', 'read', _FORMS, embed)}{advice}")


def embedded(originals: Dataset, embedder: Embedder, cache: EmbeddingCache | str | os.PathLike[str] | None, columns: Any = None) -> Dataset:
    """The data set with embeddings as its inputs.

    Args:
        originals: the images, texts or rows.
        embedder: what gives the embeddings.
        cache: the folder of computed embeddings; by default ``runs/embeddings``.
        columns: the columns of text to embed; by default all that contain text.
    """
    if isinstance(embedder, VectorFile):
        rows = embedder.rows(originals)
    else:
        if isinstance(embedder, NamedEmbedder) and embedder.takes == "texts":
            embedder = replace(embedder, columns=_text_columns(originals, columns, embedder.name))
        rows = _cached(originals, embedder, as_cache(cache))
    kept = {field.name: getattr(originals, field.name) for field in fields(Dataset) if field.init}
    kept |= {"inputs": rows.to(originals.labels.device), "features": None, "encoding": None, "cells": {}}
    return Dataset(**{**kept, "originals": originals, "embedder": embedder})


def as_cache(cache: EmbeddingCache | str | os.PathLike[str] | None) -> EmbeddingCache:
    """The cache in a folder."""
    return cache if isinstance(cache, EmbeddingCache) else EmbeddingCache(Path(cache or _CACHE).absolute())


def _cached(originals: Dataset, embedder: ModuleEmbedder | RecordedModule | NamedEmbedder, cache: EmbeddingCache) -> Tensor:
    """The embeddings from the cache; they are computed and stored if they are not there."""
    key = digest_of([embedder.digest, *getattr(embedder, "columns", ()), *_identity(originals)])
    rows = cache.read(key, len(originals))
    if rows is None:
        texts = embedder.columns if isinstance(embedder, NamedEmbedder) else ()
        rows = compute(embedder, joined_texts({name: originals.cells[name] for name in texts}) if texts else _batches(originals, embedder))
        cache.store(key, rows)
    return rows


def _identity(originals: Dataset) -> list[str]:
    """What the embeddings depend on, besides the model. Images on disk may change without changing their size."""
    digests = [f"{name} {value}" for name, value in originals.input_digests().items()]
    if not isinstance(originals, Stream):
        return digests
    return [*digests, str(originals.size), *(str(Path(path).stat().st_mtime_ns) for path in originals.paths if Path(path).exists())]


def _batches(originals: Dataset, embedder: ModuleEmbedder | RecordedModule | NamedEmbedder) -> Iterator[Tensor]:
    if embedder.takes == "images" and originals.inputs.ndim != 4:
        raise InputError(f"The model {embedder.name} embeds images, but {originals.name} has none; give a model of texts, or a file.")
    for batch in batches(originals, _BATCH, shuffle=False):
        yield batch.inputs


def joined_texts(cells: Mapping[str, Any]) -> list[str]:
    """The text of every row: its cells, a line each."""
    columns = [as_text(column) for column in cells.values()]
    return ["\n".join(cell for cell in row if cell) for row in zip(*columns, strict=True)]


def _text_columns(originals: Dataset, columns: Any, model: str) -> tuple[str, ...]:
    chosen = (columns,) if isinstance(columns, str) else tuple(columns or ())
    words = [name for name, cells in originals.cells.items() if cells.dtype == object]
    if not chosen and len(words) > 1:
        chosen = tuple(name for name in words if contents_of(Question(name, name, originals.cells[name])).kind == "text")
    elif not chosen:
        chosen = tuple(words)
    if not chosen:
        raise InputError(f"The model {model} embeds texts, but {originals.name} has no column of text; name one with 'text' (--text).")
    return chosen


@torch.no_grad()
def compute(embedder: ModuleEmbedder | RecordedModule | NamedEmbedder, examples: Any) -> Tensor:
    """The embeddings of examples, float32 (N, size), on the CPU.

    Args:
        embedder: the model.
        examples: all texts as a list, or batches of inputs.
    """
    if embedder.takes == "texts":
        order = sorted(range(len(examples)), key=lambda place: len(examples[place]))  # texts of one length need no padding
        parts = [_checked(embedder, [examples[place] for place in order[start : start + _BATCH]]) for start in range(0, len(order), _BATCH)]
        rows = torch.empty(len(order), parts[0].shape[1]).index_copy_(0, torch.tensor(order), torch.cat(parts))
    else:
        rows = torch.cat([_checked(embedder, batch) for batch in examples])
    check_vectors(rows, f"the model {embedder.name}")
    return rows


def _checked(embedder: ModuleEmbedder | RecordedModule | NamedEmbedder, batch: Any) -> Tensor:
    vectors = embedder.vectors(batch)
    if not isinstance(vectors, Tensor) or vectors.dim() != 2 or len(vectors) != len(batch):
        got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
        raise InputError(f"The model {embedder.name} must return a vector for each of {len(batch)} examples. Got {got} instead.")
    return vectors.detach().float().cpu()


def embed_new(source: Any, embed: Any, columns: tuple[str, ...] = ()) -> Tensor:
    """Embeddings of new examples without labels, for a model that was trained on embeddings.

    Args:
        source: texts as a list, a table or DataFrame with the columns of text, a folder of images, or images as arrays.
        embed: the embedder as a run records it, `Dataset.embedder.spec`.
        columns: the columns of text that the model was trained on.
    """
    embedder = as_embedder(embed)
    if not isinstance(embedder, NamedEmbedder):
        made = f"by the torch module {embedder.name}" if isinstance(embedder, RecordedModule) else f"from the file {embedder.name!r}"
        raise InputError(
            f"The model was trained on embeddings {made}. Give embeddings of the new examples, made in the same way: an array, or a file "
            f"that ends in {', '.join(VECTOR_SUFFIXES)}."
        )
    if embedder.takes == "texts" and not isinstance(source, list | tuple | str | os.PathLike) and not has_named_columns(source):
        raise InputError(f"The model {embedder.name} embeds texts. Got {type(source).__name__}; give texts, not images.")
    if embedder.takes == "texts":
        return compute(embedder, list(source) if isinstance(source, list | tuple) else joined_texts(read_cells(source, columns)))
    if isinstance(source, str | os.PathLike):
        paths = images_below(Path(source))
        parts = (paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH))
        return compute(embedder, (torch.stack([decode(path, embedder.size) for path in part]) for part in parts))
    return compute(embedder, torch.split(as_inputs(source), _BATCH))
