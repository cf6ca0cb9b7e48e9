"""The command line: a module per family of commands. Only these modules import typer and rich at their heads.

A command checks, calls the library, and shows what came back. Whatever the user got wrong ends it with exit code 2 and one
sentence on stderr. Each command imports what it needs when it runs, so that asking for help stays quick.
"""

from noisewise.cli import _compare, _data, _demo, _losses, _train  # noqa: F401  (importing them registers their commands)
from noisewise.cli._app import app

__all__ = ["app"]
