"""Reading pickles from strangers without calling anything they name.

Some official data files are pickles of dicts of lists and NumPy arrays. `pickle` would call the functions such a file names, and
NumPy trusts the state it restores, so a forged file could run code, crash the process or show its memory. Here the opcodes are
interpreted one by one: only plain values can be built, and an array is made from its bytes after its type, shape and size have been
checked. This module must not know which data set a file belongs to.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.errors import InputError, shown

_LARGEST_FILE = 1 << 30
_LARGEST_LABELS = 1 << 26
_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
# NumPy 2 moved numpy.core to numpy._core; a pickle names the one it was written with.
_GLOBALS = frozenset(
    {"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype", "_codecs.encode"}
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_VALUES = frozenset(
    {"INT", "LONG", "FLOAT", "BINFLOAT", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING"}
    | {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
)
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
        return _plain(_Interpreter(len(content)).run(content))
    except InputError as error:
        raise InputError(f"The pickle {str(path)!r} is refused: {error}. Delete it and fetch the official file.") from None
    except Exception as error:  # a damaged pickle can fail in any way its opcodes can
        raise InputError(f"The pickle {str(path)!r} is damaged: {shown(error)}. Fetch it again.") from error


def _plain(content: Any) -> Any:
    """The content with arrays in place of their stand-ins: a dict of arrays, values and flat lists of values, or one of these."""
    if isinstance(content, dict):
        return {name: _entry(value) for name, value in content.items()}
    return _entry(content)


def _entry(value: Any) -> Any:
    if isinstance(value, _Array) and value.values is not None:
        return value.values
    if isinstance(value, _SCALARS) or (isinstance(value, list | tuple) and all(isinstance(item, _SCALARS) for item in value)):
        return value
    raise InputError("it has other entries than arrays and lists of numbers or text")


class _Global(str):
    """The name of something that `pickle` would look up; here it is only compared."""


class _DType:
    """A type of numbers; its byte order arrives after its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        if _kind(name, str) not in _DTYPES:
            raise InputError(f"it has an array of type {shown(name)}, and only plain numbers are read")
        self.dtype = np.dtype(name)

    def restore(self, state: Any) -> None:
        version, order, *rest = state
        if version != 3 or order not in ("|", "<", ">", "=") or rest != [None, None, None, -1, -1, 0]:
            raise InputError("it has an array of a type that is not plain numbers")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """An array; its values arrive after it was made."""

    values: np.ndarray | None = None


class _Interpreter:
    """A stack machine for the opcodes that plain values and arrays are written with.

    Args:
        size: how many bytes the pickle has; its arrays together have at most as many.
    """

    def __init__(self, size: int) -> None:
        self.left = size
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
            if opcode.name == "STOP":
                break
            self._step(opcode.name, argument)
        (result,) = self.stack
        return result

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _EMPTY:
            stack.append(_EMPTY[opcode]())
        elif opcode == "MARK":
            self.marks.append(len(stack))
        elif opcode not in ("PROTO", "FRAME"):
            self._build(opcode, argument)

    def _build(self, opcode: str, argument: Any) -> None:
        """The opcodes that make something of what is on the stack."""
        stack = self.stack
        if opcode == "APPEND":
            (item,) = self._pop(1)
            _kind(stack[-1], list).append(item)
        elif opcode == "APPENDS":
            items = self._pop_mark()
            _kind(stack[-1], list).extend(items)
        elif opcode in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if opcode == "SETITEM" else self._pop_mark()
            _kind(stack[-1], dict).update(_pairs(items))
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._pop(int(opcode[-1]))))
        elif opcode in ("TUPLE", "LIST"):
            items = self._pop_mark()
            stack.append(tuple(items) if opcode == "TUPLE" else items)
        elif opcode == "DICT":
            stack.append(_pairs(self._pop_mark()))
        elif opcode == "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        elif opcode == "STACK_GLOBAL":
            stack.append(_named(*self._pop(2)))
        elif opcode == "REDUCE":
            stack.append(_made(*self._pop(2)))
        elif opcode == "BUILD":
            (state,) = self._pop(1)
            self._restore(stack[-1], state)
        else:
            raise InputError(f"it uses {opcode}, which no data file needs")

    def _pop(self, number: int) -> list[Any]:
        items = self.stack[-number:]
        if len(items) < number:
            raise ValueError("the stack is empty")
        del self.stack[-number:]
        return items

    def _pop_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _restore(self, target: Any, state: Any) -> None:
        if isinstance(target, _DType):
            target.restore(state)
        else:
            _kind(target, _Array).values = self._array(*state)

    def _array(self, version: Any, shape: Any, kind: Any, is_fortran: Any, content: Any) -> np.ndarray:
        dtype = _kind(kind, _DType).dtype
        if version != 1 or not all(type(length) is int and length >= 0 for length in _kind(shape, tuple)):
            raise InputError("it has an array whose shape is not one")
        needed = math.prod(shape) * dtype.itemsize
        if not isinstance(content, str | bytes) or len(content) != needed:
            raise InputError(f"it has an array shaped {shown(shape)} that needs {needed:,} bytes and does not have them")
        self.left -= needed  # one text may be the content of many arrays, which would take more memory than the file
        if self.left < 0:
            raise InputError("its arrays are larger than the file")
        values = bytearray(content, "latin1") if isinstance(content, str) else bytearray(content)
        return np.frombuffer(values, dtype).reshape(shape, order="F" if is_fortran else "C")


def _kind(value: Any, kind: type | tuple[type, ...]) -> Any:
    """The value, if it is of this kind. Nothing else may be compared, hashed or shown before, as it may be nested without end."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} is where something else must be")
    return value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Keys and values in turn as a dict. A key is one value: to hash nested tuples that share their parts could take for ever."""
    return {_kind(key, _SCALARS): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _named(module: Any, name: Any) -> _Global:
    if (full := f"{_kind(module, str)}.{_kind(name, str)}") not in _GLOBALS:
        raise InputError(f"it names {shown(full)}, which may run code and which no data file needs")
    return _Global(full)


def _made(function: Any, arguments: Any) -> Any:
    """What a function gives, of the few that data files name."""
    name = str(_kind(function, _Global))
    if name == "numpy.dtype":
        return _DType(*arguments)
    if name == "_codecs.encode":
        text, encoding = arguments
        if encoding not in ("latin1", "latin-1"):
            raise ValueError("bytes are only read as latin-1")
        return _kind(text, str).encode("latin1")
    if name.endswith("._reconstruct"):
        return _Array()
    raise ValueError(f"{name} is not a function")
