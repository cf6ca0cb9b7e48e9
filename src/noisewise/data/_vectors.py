"""Files of embeddings: one vector for every example, as .npy, .npz or .safetensors. Nothing in such a file is unpickled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from noisewise.data._table import check_unpacked
from noisewise.errors import InputError, reason

VECTOR_SUFFIXES = (".npy", ".npz", ".safetensors")

LIBRARIES = ("timm", "transformers")
"""The libraries whose models are given by name, as in "timm:vit_small_patch16_224@weights.safetensors"."""


class Vectors(NamedTuple):
    """What a file of embeddings contains.

    Args:
        rows: the embeddings, float32 (N, size).
        ids: the id of every row, or None.
    """

    rows: Tensor
    ids: tuple[str, ...] | None = None


def is_vectors(path: object) -> bool:
    """Whether a path is read as a file of embeddings. The name of a model, which may end in a file of weights, is not."""
    if not isinstance(path, str | os.PathLike) or str(path).partition(":")[0] in LIBRARIES:
        return False
    return Path(path).suffix.lower() in VECTOR_SUFFIXES and not Path(path).is_dir()


def read_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Read a file of embeddings.

    Args:
        path: a .npy file with one array (N, size); or a .npz or .safetensors file with one such array. A .npz file may also have an array
            "ids" with the id of every row.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(file)!r}; give a file of embeddings that ends in {', '.join(VECTOR_SUFFIXES)}.")
    try:
        arrays = _arrays(file)
    except InputError:
        raise
    except Exception as error:  # a damaged file can fail in any way its reader can
        raise InputError(f"The file {file.name!r} cannot be read as embeddings ({reason(error)}). Write it again.") from None
    ids = arrays.pop("ids", None)
    if len(arrays) != 1:
        got = f"{len(arrays)} arrays{': ' if arrays else ''}{', '.join(list(arrays)[:5])}"
        raise InputError(f"The file {file.name!r} must have one array of embeddings. Got {got}; write only that one.")
    ((name, rows),) = arrays.items()
    if rows.dim() != 2 or not rows.numel() or rows.dtype.is_complex or rows.dtype == torch.bool:
        got = f"{rows.dtype} shaped {tuple(rows.shape)}"
        raise InputError(f"The array {name!r} of {file.name!r} must have a row of numbers for every example. Got {got} instead.")
    rows = rows.to(torch.float32)
    check_vectors(rows, repr(file.name))
    if ids is not None and len(ids) != len(rows):
        raise InputError(f"The file {file.name!r} has {len(ids):,} ids for {len(rows):,} rows of embeddings. Write one id for every row.")
    return Vectors(rows, None if ids is None else tuple(map(str, ids.tolist())))


def check_vectors(rows: Tensor, called: str) -> None:
    """Refuse embeddings that are not finite."""
    finite = torch.isfinite(rows).all(1)
    if not finite.all():
        row, number = int((~finite).nonzero()[0]), int((~finite).sum())
        raise InputError(
            f"{number:,} of {len(rows):,} embeddings of {called} are not finite, the first in row {row}; "
            "compute them again, or leave these examples out."
        )


def _arrays(file: Path) -> dict[str, Tensor]:
    """The arrays of a file by name; "ids" of a .npz file is an array of text, which is not a tensor."""
    suffix = file.suffix.lower()
    if suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    if suffix == ".npy":
        return {file.stem: _tensor(np.load(file, allow_pickle=False))}
    with np.load(file, allow_pickle=False) as archive:
        check_unpacked(file, sum(member.file_size for member in archive.zip.infolist()))
        arrays = {name: archive[name] for name in archive.files}
    return {name: array if name == "ids" else _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> Tensor:
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind in "iuf" and array.dtype != np.float32 else array)
