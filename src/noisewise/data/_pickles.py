"""Read pickles from strangers without calling anything that they name.

Some official data files are pickles of dicts of lists and NumPy arrays. `pickle` would call the functions that such a file names, and
NumPy trusts the state that it restores, so a forged file could run code, crash the process or show its memory. Here a pickle gets
stand-ins for the few names that arrays need. An array is made from its bytes after its type, shape and size have been checked. This
module must not know which data set a file belongs to.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.errors import InputError, shown

_LARGEST_FILE = 1 << 30
_LARGEST_LABELS = 1 << 26
_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_SCALARS = (int, float, str, bytes, type(None))


def load_pickle(path: Path) -> Any:
    """Read a pickle of plain Python values and NumPy arrays; text of Python 2 is read as latin-1.

    Raises:
        InputError: the pickle is damaged, larger than a gibibyte, or holds anything else.
    """
    if (size := path.stat().st_size) > _LARGEST_FILE:
        raise InputError(f"The pickle {str(path)!r} has {size:,} bytes, more than the {_LARGEST_FILE:,} that are read. Fetch it again.")
    return _load(path.read_bytes(), path)


def load_torch_pickle(path: Path) -> Any:
    """Read what `torch.save` wrote, where it holds plain Python values and NumPy arrays only.

    Raises:
        InputError: the file is not such an archive, is damaged, unpacks to more than 64 MiB, or holds anything else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
            if member.file_size > _LARGEST_LABELS:
                raise ValueError(f"it unpacks to {member.file_size:,} bytes, more than the {_LARGEST_LABELS:,} that are read")
            content = archive.read(member)
    except Exception as error:  # a damaged archive can fail in any way its compression can
        raise InputError(f"The file {str(path)!r} is not a whole archive of torch.save: {shown(error)}. Fetch it again.") from error
    return _load(content, path)


def _load(content: bytes, path: Path) -> Any:
    try:
        return _plain(_Unpickler(content).load())
    except InputError as error:
        raise InputError(f"The pickle {str(path)!r} is refused: {error}. Delete it and fetch the official file.") from None
    except Exception as error:  # a damaged pickle can fail in many ways
        raise InputError(f"The pickle {str(path)!r} is damaged: {shown(error)}. Fetch it again.") from error


def _plain(content: Any) -> Any:
    """A dict of arrays, values and flat lists of values, with the arrays in place of their stand-ins."""
    if not isinstance(content, dict):
        raise InputError("it has no dict")
    return {name: _entry(value) for name, value in content.items()}


def _entry(value: Any) -> Any:
    if isinstance(value, _Array) and value.values is not None:
        return value.values
    if isinstance(value, _SCALARS) or (isinstance(value, list | tuple) and all(isinstance(item, _SCALARS) for item in value)):
        return value
    raise InputError("it has other entries than arrays and lists of numbers or text")


class _DType:
    """Stands in for `numpy.dtype`: a type of plain numbers, whose byte order arrives after its name."""

    def __init__(self, name: Any, *options: Any) -> None:
        if name not in _DTYPES:
            raise InputError(f"it has an array of the type {shown(name)}, and only plain numbers are read")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        version, order, *rest = state
        if version != 3 or order not in ("|", "<", ">", "=") or rest != [None, None, None, -1, -1, 0]:
            raise InputError("it has an array of a type that is not plain numbers")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands in for `numpy.ndarray`; its values arrive after it was made."""

    values: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        version, shape, kind, is_fortran, content = state
        if version != 1 or not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
            raise InputError("it has an array whose shape is not one")
        needed = math.prod(shape) * kind.dtype.itemsize
        if not isinstance(content, str | bytes) or len(content) != needed:
            raise InputError(f"it has an array shaped {shown(shape)} that needs {needed:,} bytes and does not have them")
        values = bytearray(content, "latin1") if isinstance(content, str) else bytearray(content)
        self.values = np.frombuffer(values, kind.dtype).reshape(shape, order="F" if is_fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes are only read as latin-1")
    return text.encode("latin1")


_STAND_INS: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,  # since NumPy 2
    "numpy.ndarray": _Array,
    "numpy.dtype": _DType,
    "_codecs.encode": _encode,
}


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, which finds stand-ins only. The one in C allocates as much memory as a forged file asks for.

    Args:
        content: the pickle.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in _STAND_INS:
            raise InputError(f"it names {shown(full)}, which may run code and which no data file needs")
        return _STAND_INS[full]
