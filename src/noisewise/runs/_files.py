"""Open the files of a run folder safely: JSON, text, arrays and tensors.

Every file must be a regular file inside the run folder, of a plausible size, and readable as what it is. A link that leads out of the
run folder is not followed; the run folder itself may be a link.
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
    """A file cannot be opened at the moment; it may be intact."""


SMALL = 64 * 2**20
"""The largest size, in bytes, of a file that does not grow with the number of examples."""

LARGE = 2**32
"""The largest size, in bytes, of a text file that has a line or an entry for every example."""

_DEEPEST = 50  # levels of nested JSON
_DIGITS = 300  # of an integer in JSON: all of them fit a float
_COPY_AGAIN = "Copy the run folder again."
_ADVICE = {
    errno.EMFILE: "Close other files, or raise the limit (ulimit -n).",
    errno.ENFILE: "Close other files, or raise the limit of the system.",
    errno.EACCES: "Change its permissions.",
    errno.EPERM: "Change its permissions.",
}
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][biuf][1248])', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n", re.DOTALL
)
"""The header of an array of plain numbers, as `numpy.save` writes it."""


def inside(folder: Folder, name: str) -> Path:
    """The path of a file or folder of a run, after a check that no link on the way leads out of the run folder."""
    link = _link_out(folder, name)
    if link is not None:
        raise InputError(f"{str(link)!r} is a link to {os.path.realpath(link)!r}, outside of the run folder. Replace it with a copy.")
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
    """The error for a missing file of a run folder."""
    elsewhere = " A training loop of your own, or a Trainer, has its weights where it saved them." if name == "model.safetensors" else ""
    return InputError(f"The run in {str(folder)!r} has no {name}. Copy the run folder again, or train it again.{elsewhere}")


def list_numbered(folder: Folder, name: str, start: str, ending: str) -> dict[int, Path]:
    """The files of a subfolder that are named start, epoch, ending ("margins-00001.npy"), by epoch; links out of the run are ignored."""
    files, pattern = {}, re.compile(re.escape(start) + "([0-9]+)" + re.escape(ending))
    try:
        with os.scandir(inside(folder, name)) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if match is not None and not (entry.is_symlink() and _link_out(folder, f"{name}/{entry.name}")):
                    files[int(match[1])] = Path(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _cannot_open(Path(folder) / name, error) from None
    return dict(sorted(files.items()))


def read_json(folder: Folder, name: str, kind: type[Any] = dict, needs: Sequence[str] = (), *, limit: int = SMALL) -> Any:
    """Read a JSON file of a run: a dict with the keys in `needs`, or a list, of at most `limit` bytes and with finite numbers only."""
    path, text = Path(folder) / name, read_text(folder, name, limit=limit)
    try:
        content = parse_json(text)
    except ValueError as error:
        raise InputError(f"The file {str(path)!r} cannot be read as JSON: {reason(error)}. {_COPY_AGAIN}") from None
    if not isinstance(content, kind):
        raise InputError(f"The file {str(path)!r} must contain a JSON {kind.__name__}. Got {type(content).__name__} instead.")
    for key in needs:
        if key not in content:
            raise InputError(f"The file {str(path)!r} has no {key!r}. {_COPY_AGAIN}")
    return content


def parse_json(text: str) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: the text is not JSON, is nested too deep, has a number that is too long or not finite, or cannot be encoded.

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
        json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair, such as "\ud800", cannot be encoded
    return content


def read_text(folder: Folder, name: str, *, limit: int = LARGE) -> str:
    """The text of a file of a run, in UTF-8, up to a size in bytes."""
    path = regular_file(folder, name, limit=limit)
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _cannot_open(path, error) from None
    except UnicodeDecodeError as error:
        raise InputError(f"The file {str(path)!r} is not UTF-8 text ({reason(error)}). {_COPY_AGAIN}") from None


def open_array(folder: Folder, name: str) -> NDArray[Any]:
    """A memory-mapped array of a run. Its file stays open as long as the array exists."""
    path = regular_file(folder, name)
    try:
        with path.open("rb") as file:
            header, size = file.read(2**16), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _cannot_open(path, error) from None
    match = _ARRAY.match(header)
    if match is None or match.end() != 10 + int.from_bytes(match[1], "little"):
        raise InputError(f"The file {str(path)!r} is not a complete .npy file of numbers. {_COPY_AGAIN}")
    kind, shape = np.dtype(match[2].decode()), tuple(int(number) for number in match[3].split(b",") if number.strip())
    missing_bytes = match.end() + kind.itemsize * math.prod(shape) - size
    if missing_bytes > 0:
        raise InputError(f"The file {str(path)!r} is not a complete .npy file: {missing_bytes} bytes are missing at its end. {_COPY_AGAIN}")
    if 0 in shape:
        return np.empty(shape, kind)
    try:
        return np.memmap(path, kind, "r", match.end(), shape).view(np.ndarray)
    except OSError as error:
        raise _cannot_open(path, error) from None


def read_array(folder: Folder, name: str) -> NDArray[Any]:
    """An array of a run, in memory."""
    return np.array(open_array(folder, name))


def read_tensors(folder: Folder, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file of a run, and the notes in its header."""
    from safetensors import safe_open

    path = regular_file(folder, name)
    try:
        with path.open("rb"):
            pass  # safetensors reports a file that cannot be opened as damaged
        with safe_open(path, framework="pt") as file:
            notes = parse_json(file.metadata()["noisewise"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
        if not isinstance(notes, Mapping):
            raise ValueError("its notes are not a JSON object")
    except OSError as error:
        raise _cannot_open(path, error) from None
    except Exception as error:  # safetensors raises various errors for a damaged file
        why = reason(error).encode("unicode_escape").decode()
        raise InputError(f"The file {str(path)!r} cannot be read ({why}). Copy the run folder again, or train it again.") from None
    return tensors, dict(notes)


def regular_file(folder: Folder, name: str, *, limit: int | None = None) -> Path:
    """The path of a file of a run, after a check that it is a regular file and not larger than a limit in bytes."""
    path = inside(folder, name)
    try:
        info = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise missing(folder, name) from None
    except OSError as error:
        raise _cannot_open(path, error) from None
    if not stat.S_ISREG(info.st_mode):  # opening a pipe would wait for a writer
        raise InputError(f"{str(path)!r} is not a regular file. {_COPY_AGAIN}")
    if limit is not None and info.st_size > limit:
        raise InputError(f"The file {str(path)!r} has {info.st_size:,} bytes, more than the limit of {limit:,}. {_COPY_AGAIN}")
    return path


def _cannot_open(path: Path, error: OSError) -> CannotOpenError:
    advice = _ADVICE.get(error.errno or 0, "Check the disk, or copy the run folder again.")
    return CannotOpenError(f"The file {str(path)!r} cannot be opened ({error.strerror or error}). {advice}")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text[:60])
    return number


def _short(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


_JSON = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_short)


def _check_depth(content: Any) -> None:
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(_DEEPEST):
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part) if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deep")
