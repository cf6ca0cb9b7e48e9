"""The errors noisewise raises, one class per kind, and how their sentences are written.

Every message is one line: what was wrong, what was given, what to do.
"""

from __future__ import annotations

import difflib
import errno
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

_LONGEST = 300  # characters of a value that a message shows
_FEW = 50  # names that a message lists: all of any registry, but not thousands of classes or columns

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, marks that change the direction of text, and halves of surrogate pairs."""


def printable(text: str) -> str:
    r"""Escape characters that control a terminal or reverse the text after them. File and class names can contain them.

    Example:
        >>> print(printable("\x1b[2Jcat \u202egnp.exe"))
        \x1b[2Jcat \u202egnp.exe
    """
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class NoisewiseError(Exception):
    """The base class of all errors that noisewise raises. The message is one line that is safe to print."""

    exit_code = 1
    """What the command line exits with."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(" ".join(line.strip() for line in sentence.splitlines())))


class InputError(NoisewiseError, ValueError):
    """An argument, a file or a setting is wrong. Fix it and try again."""

    exit_code = 2


class DivergedError(NoisewiseError, ArithmeticError):
    """Training diverged: the loss, the scores or the weights are no longer finite."""

    exit_code = 3


class StorageError(NoisewiseError):
    """The disk is full, read-only or broken. What was written before is intact."""

    exit_code = 4


class WorkerLostError(NoisewiseError, RuntimeError):
    """A process that took part in a run died or stopped answering. The run can be resumed."""

    exit_code = 5


class NoisewiseWarning(UserWarning):
    """The base class of all warnings that noisewise gives."""


def warn(text: str, category: type[Warning] = NoisewiseWarning) -> None:
    """Warn at the line of code that called noisewise."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("noisewise."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def is_storage(error: OSError) -> bool:
    """Whether the disk is the cause: it is full, read-only or broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def cannot_write(path: object, error: OSError, advice: str) -> NoisewiseError:
    """Build the error for a file or folder that cannot be written: a `StorageError` if the disk is the cause.

    Example:
        >>> cannot_write("runs", OSError(errno.ENOSPC, "No space left on device"), "Free some space.")
        StorageError("'runs' cannot be written (No space left on device). Free some space.")
    """
    kind = StorageError if is_storage(error) else InputError
    return kind(f"{str(path)!r} cannot be written ({error.strerror or error}). {advice}")


def invalid_parameter(parameter: str, owner: str, requirement: str, got: Any) -> InputError:
    """Build scikit-learn's sentence.

    Example:
        >>> print(invalid_parameter("q", "GCE", "in (0, 1]", -1))
        The 'q' parameter of GCE must be in (0, 1]. Got -1 instead.
    """
    return InputError(f"The {parameter!r} parameter of {owner} must be {requirement}. Got {shown(got)} instead.")


def shown(got: Any) -> str:
    """The repr of a value, shortened if it is long.

    Example:
        >>> shown("gce(q=2)")
        "'gce(q=2)'"
        >>> shown(list(range(10**6)))[-29:]
        '(a list of 1,000,000 entries)'
    """
    try:
        text = repr(got)
    except ValueError:  # Python does not print an integer of thousands of digits
        return f"a value of type {type(got).__name__} that is too long to show"
    if len(text) <= _LONGEST:
        return text
    entries = f" of {len(got):,} entries" if hasattr(got, "__len__") and not isinstance(got, str) else f", {len(text):,} characters"
    return f"{text[: _LONGEST // 3]}… (a {type(got).__name__}{entries})"


def reason(error: Exception) -> str:
    """The message of an exception, as part of a sentence.

    Example:
        >>> reason(ValueError("no  such thing.")), reason(KeyError())
        ('no such thing', 'KeyError')
    """
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def listed(names: Iterable[str]) -> str:
    """Join names with commas; of many names, the first ones and their number.

    Example:
        >>> listed(["cat", "dog"])
        'cat, dog'
        >>> listed(f"gene {number}" for number in range(5000))[-34:]
        'gene 18, gene 19, … (5,000 in all)'
    """
    names = [name if len(name) <= _LONGEST // 3 else f"{name[: _LONGEST // 3]}…" for name in names]
    return ", ".join(names) if len(names) <= _FEW else f"{', '.join(names[:20])}, … ({len(names):,} in all)"


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for an unknown name, with similar known ones.

    Example:
        >>> print(unknown("loss", "imea", ["ce", "imae"]))
        There is no loss named 'imea'. Did you mean 'imae'?
    """
    known = sorted(known)
    lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(str(name)[:_LONGEST].lower(), lower, n=3, cutoff=0.55)
    if close:
        hint = "Did you mean " + " or ".join(repr(lower[candidate]) for candidate in close) + "?"
    else:
        hint = "Known: " + (listed(known) or "none") + "."
    return InputError(f"There is no {kind} named {shown(name)}. {hint}")
