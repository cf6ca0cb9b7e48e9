"""Run programs in forks of a process that has already imported torch: importing takes longer than most of the programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_SERVER = textwrap.dedent("""
    import importlib, json, os, runpy, sys, traceback
    os.fsync = lambda descriptor: None  # nothing here cuts the power
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        path, *outputs = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(os.path.dirname(path))
            for descriptor, output in enumerate(outputs, 1):
                with open(output, "a") as file:
                    os.dup2(file.fileno(), descriptor)
            code = 1
            try:
                runpy.run_path(path, run_name="__main__")
                code = 0
            except SystemExit as exit:
                code = exit.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""")


_INTERRUPTED = """
import os, runpy, sys

def interrupt(event, details):
    if event == "os.rename" and os.fspath(details[1]) == {file!r}:
        os.kill(os.getpid(), {number})

sys.addaudithook(interrupt)
sys.argv = {command!r}
runpy.run_module("noisewise", run_name="__main__")
"""


class Prepared:
    """Runs programs one after the other, each in its own process."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def run(self, path: Path) -> tuple[int, str]:
        """Run a program in its folder; return its exit code and its output."""
        output = path.with_suffix(".output")
        return self._exit_code(path, output, output), output.read_text(encoding="utf-8")

    def interrupted(
        self, arguments: Sequence[object], file: Path, number: signal.Signals = signal.SIGINT
    ) -> subprocess.CompletedProcess[str]:
        """Run a noisewise command that sends itself a signal (by default Ctrl-C) when it has written a file and is about to name it so.

        It does so itself, because another process would be too late on a busy machine.
        """
        command = ["noisewise", *map(str, arguments)]
        with tempfile.TemporaryDirectory() as folder:
            program, output, errors = (Path(folder, name) for name in ("program.py", "output", "errors"))
            program.write_text(_INTERRUPTED.format(file=str(file), number=int(number), command=command), encoding="utf-8")
            code = self._exit_code(program, output, errors)
            return subprocess.CompletedProcess(command, code, output.read_text(encoding="utf-8"), errors.read_text(encoding="utf-8"))

    def _exit_code(self, *paths: Path) -> int:
        """Run the first path, and write to the other two."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(path) for path in paths]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


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
