"""How many files of the package run in a command: the files that a reader has to open to follow it."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import importlib, sys, threading
import noisewise.cli

for package in noisewise.__all__:
    getattr(noisewise, package)
for module, _ in noisewise.cli._app.COMMANDS.values():
    importlib.import_module(f"noisewise.cli.{module}")  # now, so that what runs at import is not traced

root, files = sys.argv.pop(1), set()

def note(frame, event, argument):
    code = frame.f_code
    is_function = code.co_flags & 1 and not code.co_name.startswith("<")  # not the body of a module or a class
    if event == "call" and is_function and code.co_filename.startswith(root):
        files.add(code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
try:
    noisewise.cli.app(prog_name="noisewise")
finally:
    sys.setprofile(None)
    with open("files.txt", "w") as output:
        output.write("\\n".join(sorted(files)))
"""

COMMANDS = [
    ("train --data digits --model mlp --epochs 1 -o run", 38),
    ("report run", 45),
]


def test_commands_run_through_few_files(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    for command, limit in COMMANDS:
        traced = [sys.executable, "-c", PROGRAM, str(source / "noisewise"), *command.split()]
        subprocess.run(traced, cwd=tmp_path, env=environment, check=True, capture_output=True)
        files = (tmp_path / "files.txt").read_text().split()
        assert 10 < len(files) <= limit, "\n".join([command, *files])
