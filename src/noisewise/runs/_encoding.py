"""The encoding of a table in a run folder: encoding.json, and encoding.safetensors for the arrays of columns of text."""

from __future__ import annotations

from pathlib import Path

import torch

from noisewise.data import Encoding
from noisewise.errors import InputError
from noisewise.runs._files import LARGE, Folder, exists, read_json, read_tensors
from noisewise.runs._folder import ENCODING, ENCODING_ARRAYS


def read_encoding(folder: Folder) -> Encoding | None:
    """How the run turned the columns of a table into inputs; None if it was not trained on a table."""
    if not exists(folder, ENCODING):
        return None
    stored = read_json(folder, ENCODING, limit=LARGE)
    tensors = read_tensors(folder, ENCODING_ARRAYS)[0] if exists(folder, ENCODING_ARRAYS) else dict[str, torch.Tensor]()
    try:
        return Encoding.load(stored, {name: tensor.numpy() for name, tensor in tensors.items()})
    except ValueError as error:
        path = str(Path(folder) / ENCODING)
        raise InputError(f"The file {path!r} is not an encoding of a table ({error}). Copy the run folder again.") from None
