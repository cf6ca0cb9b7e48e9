"""The user's own losses, noises, models, methods and data sets: importing the code that registers them, and remembering which code it was.

Code is imported only if the user names it (`load`, ``--import`` on the command line) or has installed it (an entry point of the group
``noisewise.plugins``). A run remembers the name and the digest of the file of every class of its settings, so that errors can say what is
missing. Nothing that a run folder names is ever imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from noisewise.errors import InputError, reason, shown, warn
from noisewise.spec import Registry, foreign_words

GROUP = "noisewise.plugins"
_PREFIX = "noisewise_plugin_"  # a file named random.py must not replace the module of that name

_FILES: dict[str, tuple[Path, str]] = {}
"""The path and the digest of every imported file, by the name of its module."""

_MISSING: dict[tuple[str, str], str] = {}
"""What the runs that were read say of classes that are not registered, by kind and name."""


def load(*names: str | os.PathLike[str]) -> None:
    """Import files or modules of your own, which register losses, noises, models, methods or data sets.

    A file is imported once, and again after it has changed. Modules beside it can be imported by it.

    Args:
        *names: paths that end in .py, or dotted names of modules that Python finds.

    Example:
        >>> import tempfile
        >>> from noisewise import losses
        >>> file = Path(tempfile.mkdtemp(), "mine.py")
        >>> _ = file.write_text('''
        ... from noisewise.losses import MarginLoss
        ... class Gentle(MarginLoss, name="gentle"):
        ...     def emphasis(self, d):
        ...         return 0.5 * (-d).sigmoid()
        ... ''')
        >>> load(file)
        >>> losses.get("0.3*gentle")
        0.3*gentle
    """
    for name in names:
        path = Path(name)
        _load_file(path) if path.suffix == ".py" or len(path.parts) > 1 else _load_module(str(name))


def _load_file(path: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"The file {str(path)!r} cannot be imported ({error.strerror}). Give a Python file, or the name of a module."
        ) from None
    path, digest = path.resolve(), hashlib.sha256(content).hexdigest()
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if _FILES.get(name) == (path, digest):
        return
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that it hides no other module
    module = ModuleType(name)
    module.__file__ = str(path)
    before, sys.modules[name] = sys.modules.get(name), module
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except Exception as error:
        sys.modules.pop(name) if before is None else sys.modules.__setitem__(name, before)
        raise _failed(f"file {str(path)!r}", error, str(path)) from error
    _FILES[name] = path, digest


def _load_module(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(f"module {name!r}", error) from error
        raise InputError(
            f"There is no module {name!r}. Give the path of a Python file, or install the module or add it to PYTHONPATH."
        ) from None
    except Exception as error:
        raise _failed(f"module {name!r}", error) from error


def _failed(what: str, error: Exception, path: str = "") -> InputError:
    """The error of code that could not be imported, with the line of the file that failed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    lines += [error.lineno] if isinstance(error, SyntaxError) and error.filename == path else []
    where = f" at line {lines[-1]}" if lines else ""
    return InputError(f"The {what} cannot be imported: {type(error).__name__}{where} ({reason(error)}).")


@cache
def load_installed() -> None:
    """Import the installed plugins, once: the entry points of the group ``noisewise.plugins``."""
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # one broken plugin must not stop a command that does not need it
            warn(f"The installed plugin {point.name!r} ({point.value}) cannot be imported ({reason(error)}).")


def used_by(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The classes in the specs of some settings that are not noisewise's own: kind, name, file and digest of each."""
    own = []
    for word, registry in foreign_words(settings):
        module = sys.modules.get(registry[word].__module__)
        path, digest = _origin(module)
        own.append({"kind": registry.kind, "name": word, "file": None if path is None else path.name, "sha256": digest})
    return own


def imports_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What another process must `load` before it can build what these settings name."""
    modules = dict.fromkeys(registry[word].__module__ for word, registry in foreign_words(settings))
    names = (str(_FILES[name][0]) if name in _FILES else name for name in modules)
    return tuple(name for name in names if name not in ("__main__", "__mp_main__"))  # Python imports that one itself


def _origin(module: ModuleType | None) -> tuple[Path | None, str | None]:
    """The file of a module and its digest; None in a notebook."""
    if module is not None and module.__name__ in _FILES:
        return _FILES[module.__name__]
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        return None, None
    return Path(file), hashlib.sha256(Path(file).read_bytes()).hexdigest()


def remember(folder: object, recorded: Iterable[Mapping[str, Any]]) -> None:
    """Warn once of a class of a run that is not registered, and remember where it came from, for errors."""
    registries = {registry.kind: registry for registry in Registry.every}
    for item in recorded:
        kind, name, file = str(item.get("kind")), str(item.get("name")), item.get("file")
        if (kind, name) in _MISSING or kind not in registries or name in registries[kind]:
            continue
        source = "the code of its author" if file is None else shown(file)
        needed = f"The run in {str(folder)!r} uses it, from {source}; import your copy with --import or noisewise.plugins.load."
        _MISSING[kind, name] = needed
        warn(f"There is no {kind} named {name!r}. {needed}")


def missing(kind: str, name: str) -> str | None:
    """What a run that was read says of a class that is not registered, or None."""
    return _MISSING.get((kind, name))


def check_same(folder: object, recorded: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to go on with a run whose classes came from files that have changed since; both are results of `used_by`."""
    before = {(item.get("kind"), item.get("name")): item for item in recorded}
    for item in now:
        old = before.get((item["kind"], item["name"]), item)
        if old.get("sha256") != item["sha256"]:
            raise InputError(
                f"The {item['kind']} {item['name']!r} of the run in {str(folder)!r} came from {shown(old.get('file'))} "
                f"({str(old.get('sha256'))[:8]}), which has changed since ({item['file']!r}, {str(item['sha256'])[:8]}). "
                "Choose another folder, or restore the file."
            )
