"""Functions that a package calls without importing the package they are in.

`Run.report` writes a page, and a loss is faster with a kernel, but training must not depend on the report, nor losses on kernels. The
table of these functions is in ``noisewise/__init__.py``, which knows every package; each is imported when it is first called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

_WHERE: dict[str, str] = {}


def provide(functions: dict[str, str]) -> None:
    """Say where functions are.

    Args:
        functions: ``"package.module:attribute"`` by the name they are called with.
    """
    _WHERE.update(functions)


@cache
def extension(name: str) -> Any:
    """The function of that name.

    Example:
        >>> provide({"square root": "math:sqrt"})
        >>> extension("square root")(9)
        3.0
    """
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(module), attribute)
