"""Run programs in forks of a process that has already imported torch: importing takes longer than most of the programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_SERVER = textwrap.dedent("""
    import importlib, json, os, runpy, sys, traceback
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        path, output = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(os.path.dirname(path))
            with open(output, "w") as file:
                os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
            code = 1
            try:
                runpy.run_path(path, run_name="__main__")
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""")


class Prepared:
    """Runs programs one after the other, each in its own process."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def run(self, path: Path) -> tuple[int, str]:
        """Run a program in its folder; return its exit code and its output."""
        assert self._server.stdin is not None and self._server.stdout is not None
        output = path.with_suffix(".output")
        self._server.stdin.write(json.dumps([str(path), str(output)]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline()), output.read_text(encoding="utf-8")


@contextmanager
def python_with(*modules: str, **environment: str) -> Iterator[Prepared]:
    """Start a process that has imported these modules, with these environment variables."""
    command = [sys.executable, "-c", _SERVER, *modules]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        yield Prepared(server)


def prepared(*modules: str) -> AbstractContextManager[Prepared]:
    """Start a process that has imported torch, noisewise and these modules."""
    return python_with("torch", "noisewise", *modules)
