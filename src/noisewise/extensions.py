"""Functions of higher packages that lower packages call by name, such as the report of a run or a kernel of a loss.

``noisewise/__init__.py`` registers them; each is imported when it is first called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE: dict[str, str] = {}
_IMPORTED: dict[str, Any] = {}


def provide(functions: dict[str, str]) -> None:
    """Register functions: ``"package.module:attribute"`` by name."""
    _WHERE.update(functions)


def extension(name: str) -> Any:
    """Return a function by its name. It can be called inside `torch.compile`.

    Example:
        >>> provide({"square root": "math:sqrt"})
        >>> extension("square root")(9)
        3.0
    """
    _load(name)
    return _IMPORTED[name]


def _load(name: str) -> bool:
    if name not in _IMPORTED:
        module, _, attribute = _WHERE[name].partition(":")
        _IMPORTED[name] = getattr(import_module(module), attribute)
    return True


# Tells torch.compile to run the import instead of tracing it. torch.compiler.assume_constant_result would import the whole compiler.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
