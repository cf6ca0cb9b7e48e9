"""What a test of an error or a warning checks: its kind, and the names and values that it must mention. The wording is free to improve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from noisewise.errors import InputError, NoisewiseError


@contextmanager
def refused(*mentions: object, kind: type[NoisewiseError] = InputError) -> Iterator[pytest.ExceptionInfo[NoisewiseError]]:
    """Expect an error of a kind, in one line that mentions these names and values.

    Example:
        >>> with refused("q", -1):
        ...     raise InputError("The 'q' parameter of GCE must be in (0, 1]. Got -1 instead.")
    """
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message and message[-1] in ".?!)", f"not one sentence: {message}"
    missing = [str(mention) for mention in mentions if str(mention) not in message]
    assert not missing, f"{missing} not mentioned in: {message}"


@contextmanager
def warned(*mentions: object, kind: type[Warning] = UserWarning) -> Iterator[pytest.WarningsRecorder]:
    """Expect a warning of a kind that mentions these names and values.

    Example:
        >>> import warnings
        >>> with warned("epochs", 0):
        ...     warnings.warn("The 'epochs' parameter is 0: nothing is trained.")
    """
    with pytest.warns(kind, match="".join(f"(?s:(?=.*{re.escape(str(mention))}))" for mention in mentions)) as caught:
        yield caught
