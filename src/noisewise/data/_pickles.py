"""Read untrusted pickles without calling anything they name.

Some official data files are pickles of dicts of lists and NumPy arrays. `pickle` would call the functions that a file names, and NumPy
trusts the state it restores, so a forged file could run code, crash the process or show its memory. Here the opcodes are interpreted
one by one: only plain values can be built, and an array is made from its bytes after its type, shape and size are checked.
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
_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")  # of NumPy 1 and 2
_GLOBALS = frozenset({*_RECONSTRUCT, "numpy.ndarray", "numpy.dtype", "_codecs.encode"})
_VALUES = frozenset(
    {"INT", "LONG", "FLOAT", "BINFLOAT", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING"}
    | {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
)
_SCALARS = (int, float, str, bytes, type(None))


def load_pickle(path: Path) -> Any:
    """Read a pickle of plain Python values and NumPy arrays; text of Python 2 is read as latin-1.

    Raises:
        InputError: the pickle is damaged, larger than a gibibyte, or contains anything else.
    """
    if (size := path.stat().st_size) > _LARGEST_FILE:
        raise InputError(f"The pickle {str(path)!r} has {size:,} bytes, more than the limit of {_LARGEST_FILE:,}. Fetch it again.")
    return _load(path.read_bytes(), path)


def load_torch_pickle(path: Path) -> Any:
    """Read a file of `torch.save` that contains only plain Python values and NumPy arrays.

    Raises:
        InputError: the file is not such an archive, is damaged, unpacks to more than 64 MiB, or contains anything else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
            if member.file_size > _LARGEST_LABELS:
                raise ValueError(f"it unpacks to {member.file_size:,} bytes, more than the limit of {_LARGEST_LABELS:,}")
            content = archive.read(member)
    except Exception as error:  # a damaged archive can fail in any way its compression can
        raise InputError(f"The file {str(path)!r} is not a complete archive of torch.save: {shown(error)}. Fetch it again.") from error
    return _load(content, path)


def _load(content: bytes, path: Path) -> Any:
    try:
        result = _Interpreter(len(content)).run(content)
        return {name: _entry(value) for name, value in result.items()} if isinstance(result, dict) else _entry(result)
    except InputError as error:
        raise InputError(f"The pickle {str(path)!r} is refused: {error}. Delete it and fetch the official file.") from None
    except Exception as error:  # a damaged pickle can fail in any way its opcodes can
        raise InputError(f"The pickle {str(path)!r} is damaged: {shown(error)}. Fetch it again.") from error


def _entry(value: Any) -> Any:
    """An array, a value or a flat list of values."""
    if isinstance(value, _Array) and value.values is not None:
        return value.values
    if isinstance(value, _SCALARS) or (isinstance(value, list | tuple) and all(isinstance(item, _SCALARS) for item in value)):
        return value
    raise InputError("it has other entries than arrays and lists of numbers or text")


class _Global(str):
    """The name of a function or class; it is only compared and never looked up."""


class _DType:
    """A type of numbers; its byte order arrives after its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        if _checked(name, str) not in _DTYPES:
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
    """A stack machine for the opcodes of plain values and arrays.

    Args:
        size: the number of bytes of the pickle, which is also the limit for all arrays together.
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
            if opcode.name in _VALUES:
                self.stack.append(argument)
            else:
                self._step(opcode.name, argument)
        (result,) = self.stack
        return result

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "PROTO" | "FRAME":
                pass
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self.memo[len(self.memo) if argument is None else argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
                stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[opcode]())
            case "MARK":
                self.marks.append(len(stack))
            case "APPEND" | "APPENDS":
                items = self._pop(1 if opcode == "APPEND" else None)
                _checked(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2 if opcode == "SETITEM" else None)
                _checked(stack[-1], dict).update(_pairs(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(opcode[-1]))))
            case "TUPLE" | "LIST":
                items = self._pop(None)
                stack.append(tuple(items) if opcode == "TUPLE" else items)
            case "DICT":
                stack.append(_pairs(self._pop(None)))
            case "GLOBAL":
                stack.append(_named(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                stack.append(_named(*self._pop(2)))
            case "REDUCE":
                stack.append(_made(*self._pop(2)))
            case "BUILD":
                (state,) = self._pop(1)
                self._restore(stack[-1], state)
            case _:
                raise InputError(f"it uses {opcode}, which no data file needs")

    def _pop(self, number: int | None) -> list[Any]:
        """Remove and return the last items of the stack; all after the last mark if no number is given."""
        start = self.marks.pop() if number is None else len(self.stack) - number
        if start < 0:
            raise ValueError("the stack is empty")
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _restore(self, target: Any, state: Any) -> None:
        if isinstance(target, _DType):
            target.restore(state)
        else:
            _checked(target, _Array).values = self._array(*state)

    def _array(self, version: Any, shape: Any, kind: Any, is_fortran: Any, content: Any) -> np.ndarray:
        dtype = _checked(kind, _DType).dtype
        if version != 1 or not all(type(length) is int and length >= 0 for length in _checked(shape, tuple)):
            raise InputError("it has an array with an invalid shape")
        needed = math.prod(shape) * dtype.itemsize
        if not isinstance(content, str | bytes) or len(content) != needed:
            raise InputError(f"it has an array shaped {shown(shape)} that needs {needed:,} bytes and does not have them")
        self.left -= needed  # many arrays may share one text, and would take more memory than the file
        if self.left < 0:
            raise InputError("its arrays are larger than the file")
        values = bytearray(content, "latin1") if isinstance(content, str) else bytearray(content)
        return np.frombuffer(values, dtype).reshape(shape, order="F" if is_fortran else "C")


def _checked(value: Any, kind: type | tuple[type, ...]) -> Any:
    """Return the value if it has this type. Unchecked values are never compared, hashed or shown: they may be nested without end."""
    if not isinstance(value, kind):
        raise ValueError(f"unexpected {type(value).__name__}")
    return value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Make a dict of keys and values in turn. Keys are scalars: hashing nested tuples that share their parts could take for ever."""
    return {_checked(key, _SCALARS): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _named(module: Any, name: Any) -> _Global:
    if (full := f"{_checked(module, str)}.{_checked(name, str)}") not in _GLOBALS:
        raise InputError(f"it names {shown(full)}, which may run code and which no data file needs")
    return _Global(full)


def _made(function: Any, arguments: Any) -> Any:
    """The result of one of the known functions."""
    name = str(_checked(function, _Global))
    if name == "numpy.dtype":
        return _DType(*arguments)
    if name == "_codecs.encode":
        text, encoding = arguments
        if encoding not in ("latin1", "latin-1"):
            raise ValueError("bytes are only read as latin-1")
        return _checked(text, str).encode("latin1")
    if name in _RECONSTRUCT:
        return _Array()
    raise ValueError(f"{name} is not a function")
