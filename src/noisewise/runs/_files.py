"""Open the files of a run folder safely: JSON, text, arrays and tensors.

Every file must be a regular file inside the run folder, of a plausible size, and readable as what it is. A link that leads out of the
run folder is not followed; the run folder itself may be a link. This module must not know which values a file holds.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import InputError, reason

if TYPE_CHECKING:
    from torch import Tensor

Folder = str | PathLike[str]


class CannotOpenError(InputError):
    """A file cannot be opened now; it may be good."""


SMALL = 64 * 2**20
"""The largest size, in bytes, of a file that does not grow with the number of examples."""

LARGE = 2**32
"""The largest size, in bytes, of a text file that has a line or an entry for every example."""

_DEEPEST = 50  # levels of nested JSON
_DIGITS = 300  # of an integer in JSON: all of them fit a float
_AGAIN = "Copy the run folder again."
_ADVICE = {
    errno.EMFILE: "Close other files, or raise the limit (ulimit -n).",
    errno.ENFILE: "Close other files, or raise the limit of the system.",
    errno.EACCES: "Change its permissions.",
    errno.EPERM: "Change its permissions.",
}
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][biuf][1248])', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n", re.DOTALL
)
"""The start of a file of plain numbers, as `numpy.save` writes it."""


def inside(folder: Folder, name: str) -> Path:
    """The path of a file or folder of a run, after a check that no link on the way leads out of the run folder.

    Args:
        folder: of the run.
        name: of the file, relative to the folder.
    """
    link = _link_out(folder, name)
    if link is not None:
        raise InputError(f"{str(link)!r} is a link to {os.path.realpath(link)!r}, outside of the run folder. Replace it by a copy.")
    return Path(folder) / name


def _link_out(folder: Folder, name: str) -> Path | None:
    """The first link on the way to a file that leads out of the run folder; None if no link does."""
    path = Path(folder)
    for part in name.split("/"):
        path = path / part
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            return path
    return None


def exists(folder: Folder, name: str) -> bool:
    """Whether a run has a file, readable or not."""
    return os.path.lexists(Path(folder) / name)


def missing(folder: Folder, name: str) -> InputError:
    """The error for a file that a run folder lacks."""
    return InputError(f"The run in {str(folder)!r} has no {name}. Copy the run folder again, or train it again.")


def list_numbered(folder: Folder, name: str, start: str, ending: str) -> dict[int, Path]:
    """The files of one folder of a run that are named by their epoch, in order; links out of the run are left out.

    Args:
        folder: of the run.
        name: of the folder in it, such as "record/training".
        start: of the names, such as "margins-".
        ending: of the names, such as ".npy".
    """
    found, pattern = {}, re.compile(re.escape(start) + "([0-9]+)" + re.escape(ending))
    try:
        with os.scandir(inside(folder, name)) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if match is not None and not (entry.is_symlink() and _link_out(folder, f"{name}/{entry.name}")):
                    found[int(match[1])] = Path(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _cannot_open(Path(folder) / name, error) from None
    return dict(sorted(found.items()))


def read_json(folder: Folder, name: str, kind: type[Any] = dict, needs: Sequence[str] = (), *, limit: int = SMALL) -> Any:
    """What a JSON file of a run holds. Numbers that are not finite are refused.

    Args:
        folder: of the run.
        name: of the file.
        kind: what it must hold, dict or list.
        needs: the keys that must be there.
        limit: the largest size in bytes.
    """
    path, text = Path(folder) / name, read_text(folder, name, limit=limit)
    try:
        content = parse_json(text)
    except ValueError as error:
        raise InputError(f"The file {str(path)!r} cannot be read as JSON: {reason(error)}. {_AGAIN}") from None
    if not isinstance(content, kind):
        raise InputError(f"The file {str(path)!r} must hold a JSON {kind.__name__}. Got {type(content).__name__} instead.")
    for key in needs:
        if key not in content:
            raise InputError(f"The file {str(path)!r} does not say {key!r}. {_AGAIN}")
    return content


def parse_json(text: str) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: it is not JSON, nested too deep, has a number that is not finite or too long, or text that cannot be encoded.

    Example:
        >>> parse_json('{"epoch": 1}')
        {'epoch': 1}
        >>> parse_json('{"epoch": 1e999}')
        Traceback (most recent call last):
        ValueError: 1e999 is not a finite number
    """
    try:
        content = _JSON.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _check_depth(content)
    if "\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()  # half a character, "\ud800", cannot be written anywhere
    return content


def read_text(folder: Folder, name: str, *, limit: int = LARGE) -> str:
    """The text of a file of a run, in UTF-8.

    Args:
        folder: of the run.
        name: of the file.
        limit: the largest size in bytes.
    """
    path = regular_file(folder, name, limit=limit)
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _cannot_open(path, error) from None
    except UnicodeDecodeError as error:
        raise InputError(f"The file {str(path)!r} is not UTF-8 text ({reason(error)}). {_AGAIN}") from None


def open_array(folder: Folder, name: str) -> NDArray[Any]:
    """A memory-mapped array of a run; it keeps its file open for as long as it lives."""
    path = regular_file(folder, name)
    try:
        with path.open("rb") as file:
            header, size = file.read(2**16), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _cannot_open(path, error) from None
    match = _ARRAY.match(header)
    if match is None or match.end() != 10 + int.from_bytes(match[1], "little"):
        raise InputError(f"The file {str(path)!r} is not a whole .npy file of numbers. {_AGAIN}")
    kind, shape = np.dtype(match[2].decode()), tuple(int(number) for number in match[3].split(b",") if number.strip())
    missing_bytes = match.end() + kind.itemsize * math.prod(shape) - size
    if missing_bytes > 0:
        raise InputError(f"The file {str(path)!r} is not a whole .npy file: {missing_bytes} bytes are missing at its end. {_AGAIN}")
    if 0 in shape:
        return np.empty(shape, kind)
    try:
        return np.memmap(path, kind, "r", match.end(), shape).view(np.ndarray)
    except OSError as error:
        raise _cannot_open(path, error) from None


def read_array(folder: Folder, name: str) -> NDArray[Any]:
    """An array of a run in memory; no file stays open."""
    return np.array(open_array(folder, name))


def read_tensors(folder: Folder, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file of a run, and the notes in its header.

    Args:
        folder: of the run.
        name: of the file.
    """
    from safetensors import safe_open

    path = regular_file(folder, name)
    try:
        with path.open("rb"):
            pass  # safetensors calls a file that cannot be opened damaged
        with safe_open(path, framework="pt") as file:
            notes = parse_json(file.metadata()["noisewise"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
        if not isinstance(notes, Mapping):
            raise ValueError("its notes are not a JSON object")
    except OSError as error:
        raise _cannot_open(path, error) from None
    except Exception as error:  # a damaged file has the reader's own errors
        why = reason(error).encode("unicode_escape").decode()
        raise InputError(f"The file {str(path)!r} cannot be read ({why}). Copy the run folder again, or train it again.") from None
    return tensors, dict(notes)


def regular_file(folder: Folder, name: str, *, limit: int | None = None) -> Path:
    """The path of a file of a run, after a check that opening it is safe.

    Args:
        folder: of the run.
        name: of the file.
        limit: the largest size in bytes.
    """
    path = inside(folder, name)
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise missing(folder, name) from None
    except OSError as error:
        raise _cannot_open(path, error) from None
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for a writer
        raise InputError(f"{str(path)!r} is not a regular file. {_AGAIN}")
    if limit is not None and found.st_size > limit:
        raise InputError(f"The file {str(path)!r} has {found.st_size:,} bytes, more than the {limit:,} such a file can have. {_AGAIN}")
    return path


def _cannot_open(path: Path, error: OSError) -> CannotOpenError:
    advice = _ADVICE.get(error.errno or 0, "Check the disk, or copy the run folder again.")
    return CannotOpenError(f"The file {str(path)!r} cannot be opened ({error.strerror or error}). {advice}")


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refused(text[:60])
    return number


def _short(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


_JSON = json.JSONDecoder(parse_constant=_refused, parse_float=_finite, parse_int=_short)


def _check_depth(content: Any) -> None:
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(_DEEPEST):
        level = [value for one in level for value in (one.values() if isinstance(one, dict) else one) if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deep")
