"""Fuzzing: mutate valid inputs, and check that a reader either accepts the result or refuses it in one sentence.

A case passes if the reader returns or raises `InputError`. It fails on any other exception, on more than a gigabyte of memory, on a
warning, and on anything the reader does outside its folder: writing, deleting, starting a program, opening a connection.

Every test has a fixed number of cases, so that `make test` stays short. `pytest tests/fuzz --fuzz 50` runs fifty times as many.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisewise.errors import InputError

MEMORY = 2**30
_CHUNKS = (b"", b"\0", b"\xff", b"\n", b"\x1b[2J", b"{}", b"[]", b"[[", b'"', b"-1", b"1e999", b"NaN", b"Infinity", b"null", b"../", b"%s")
_HARMLESS = ("/dev/null", "/proc/", "/sys/")
_WRITES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect"}


class Watch:
    """Records what a block does outside a folder, from Python's audit events."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._event)  # cannot be removed, so there is a single one for the whole process

    def _event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if name in _STARTS:
            self.seen.append(f"{name} {arguments[:2]}")
        elif name in _WRITES or (name == "open" and _opens_for_writing(arguments)):
            self.seen += [f"{name} {path}" for path in map(_path, arguments[:2]) if path is not None and not self._allowed(path)]

    def _allowed(self, path: str) -> bool:
        assert self.folder is not None
        inside = Path(os.path.realpath(path)).is_relative_to(self.folder)
        return inside or path.startswith(_HARMLESS) or "__pycache__" in path


def _opens_for_writing(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _path(argument: Any) -> str | None:
    if isinstance(argument, bytes):
        return os.fsdecode(argument)
    return os.fspath(argument) if isinstance(argument, str | os.PathLike) and len(str(argument)) > 3 else None  # shorter: the mode of open


_watch = Watch()


@contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Fail if the block writes or deletes outside the folder, starts a program or opens a connection."""
    _watch.folder, _watch.seen = folder.resolve(), []
    try:
        yield
    finally:
        _watch.folder = None
    assert not _watch.seen, f"outside {folder}: {_watch.seen[:5]}"


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The data with one to four changes: bits flipped, bytes replaced, parts cut out, repeated, or replaced by awkward text."""
    content = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(content) + 1)
        stop = min(len(content), start + draw.choice((1, 1, 2, 4, 16, 256)))
        change = draw.randrange(6)
        if change == 0 and start < len(content):
            content[start] ^= 1 << draw.randrange(8)
        elif change == 1:
            content[start:stop] = draw.randbytes(stop - start)
        elif change == 2:
            del content[start:stop]
        elif change == 3:
            content[start:start] = content[start:stop] * draw.choice((1, 2, 50))
        elif change == 4:
            content[start:stop] = draw.choice(_CHUNKS)
        else:
            del content[start:]
    return bytes(content)


def survives(
    read: Callable[[bytes], Any], seeds: Sequence[bytes], cases: int, folder: Path, *, mutate: Callable[..., bytes] = mutated, seed: int = 0
) -> int:
    """Run a reader on mutations of valid inputs, and fail on the first that it neither accepts nor refuses.

    Args:
        read: reads the bytes of a case.
        seeds: valid inputs, which must be accepted.
        cases: how many mutations.
        folder: the only folder that may be written to.
        mutate: makes a case from a valid input and a random generator.
        seed: the seed of the mutations.

    Returns:
        The number of refused cases.
    """
    for valid in seeds:
        read(valid)
    draw, refused, before = random.Random(seed), 0, _peak()
    with confined(folder):
        for number in range(cases):
            case = mutate(draw.choice(seeds), draw)
            try:
                read(case)
            except InputError as error:
                refused += 1
                assert "\n" not in str(error) and "\x1b" not in str(error), f"case {number}: not one plain sentence: {str(error)!r}"
            except Exception as error:
                raise AssertionError(f"case {number}: {type(error).__name__}: {error}; input {case[:2000]!r}") from error
            assert _peak() - before < MEMORY, f"case {number} took more than a gigabyte; input {case[:2000]!r}"
    return refused


def _peak() -> int:
    """The peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
