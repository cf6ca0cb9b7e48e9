"""Reading pickles that others wrote, without running what they may hold.

Some official data files are pickles. A pickle can call any function it names, so only the few names that rebuild a NumPy
array are allowed here, and everything else is refused. This module must not know which data set a file belongs to.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from noisewise.errors import InputError

# NumPy 2 moved numpy.core to numpy._core; a pickle names the one it was written with.
_ALLOWED = frozenset(
    {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }
)
_LARGEST = 1 << 30


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise InputError(f"it names {module}.{name}, which may run code and which no data file needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load_pickle(path: Path) -> Any:
    """Read a pickle of plain Python values and NumPy arrays; text of Python 2 is read as latin-1.

    Raises:
        InputError: the pickle names anything else, or is damaged.
    """
    with path.open("rb") as file:
        return _load(file, path)


def load_torch_pickle(path: Path) -> Any:
    """Read what `torch.save` wrote, where it holds plain Python values and NumPy arrays only.

    Raises:
        InputError: the file is not such an archive, names anything else, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
            if member.file_size > _LARGEST:
                raise ValueError(f"it unpacks to {member.file_size:,} bytes")
            content = archive.read(member)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"The file {str(path)!r} is not a whole archive of torch.save: {error}. Fetch it again.") from error
    return _load(io.BytesIO(content), path)


def _load(file: BinaryIO, path: Path) -> Any:
    try:
        return _ArraysOnly(file, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"The pickle {str(path)!r} is refused: {error}. Delete it and fetch the official file.") from None
    except Exception as error:  # a damaged pickle can fail in any way its opcodes can
        raise InputError(f"The pickle {str(path)!r} is damaged: {error!r}. Fetch it again.") from error
