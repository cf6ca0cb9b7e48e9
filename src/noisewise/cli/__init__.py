"""The command line. A command checks its options, calls the library and shows the result.

An error ends a command with one sentence on stderr and the exit code of its kind: see `noisewise.errors`. Only these modules import typer
and rich at module level. The module of a command is imported when the command runs, so that ``noisewise --help`` does not load torch.
"""

from noisewise.cli._app import app

__all__ = ["app"]
