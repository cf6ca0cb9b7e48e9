"""Digests that identify tensors and the inputs of data sets.

Runs record them to recognise their data, and the cache of embeddings finds its files by them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from noisewise.data._dataset import Dataset
from noisewise.data._stream import Stream


def input_digests(data: Dataset, rows: Tensor | None = None) -> dict[str, str]:
    """Digests that identify the inputs of a data set, or those of some of its rows.

    Images that stay on disk are identified by their paths and file sizes. Embeddings that a model computed are identified by the model,
    because another machine may round them differently; "original" identifies what they are embeddings of.
    """
    if isinstance(data, Stream):
        paths = data.paths if rows is None else [data.paths[row] for row in rows.tolist()]
        return {"inputs": digest_of(map(os.path.abspath, paths)), "sizes": digest_of(map(_size, paths))}
    model = None if data.embedder is None else data.embedder.digest
    cells = {"cells": _cells_digest(data, rows)} if data.cells else {}
    original = {} if data.originals is None else {"original": digest_of(sorted(input_digests(data.originals, rows).values()))}
    return {"inputs": model or digest(data.inputs, rows), **cells, **original}


def digest_of(lines: Iterable[str]) -> str:
    """The digest of a list of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest(values: Tensor, rows: Tensor | None = None) -> str:
    """The digest of a tensor or of some of its rows, computed in parts to save memory."""
    shape = tuple(values.shape) if rows is None else (len(rows), *values.shape[1:])
    result = hashlib.sha256(f"{values.dtype} {shape}".encode())
    values = values.detach().view(1) if values.dim() == 0 else values.detach()
    size = max(1, 2**24 // max(1, values[:1].numel() * values.element_size()))
    for start in range(0, len(values if rows is None else rows), size):
        part = slice(start, start + size)
        chunk = values[part if rows is None else rows[part]]
        result.update(chunk.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()


def _cells_digest(data: Dataset, rows: Tensor | None) -> str:
    """The digest of the cells of a table. Encoded inputs do not identify them: an encoding may give the same inputs for all cells."""
    columns = {name: column if rows is None else column[rows.numpy()] for name, column in sorted(data.cells.items())}
    lines = (f"{name}\n{column.dtype}\n" + "\n".join(map(str, column.tolist())) for name, column in columns.items())
    return digest_of(lines)


def _size(path: str) -> str:
    try:
        return str(Path(path).stat().st_size)
    except OSError:
        return "missing"  # reading it raises the error
