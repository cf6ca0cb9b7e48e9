"""The command line: a module per family of commands. Only these modules import typer and rich at their heads.

A command checks, calls the library, and shows what came back. Whatever the user got wrong ends it with exit code 2 and one
sentence on stderr. Each command imports what it needs when it runs, so that asking for help stays quick.
"""

# Importing a module registers its commands.
from noisewise.cli import _audit, _compare, _data, _demo, _figure, _losses, _report, _reproduce, _train  # noqa: F401
from noisewise.cli._app import app

__all__ = ["app"]
