"""How many files of the package run in a command: the files that a reader has to open to follow it."""

from pathlib import Path

from prepared import Prepared

PROGRAM = """
import importlib, os, sys, threading
import noisewise.cli

for package in noisewise.__all__:
    getattr(noisewise, package)
for module, _ in noisewise.cli._app.COMMANDS.values():
    importlib.import_module(f"noisewise.cli.{{module}}")  # now, so that what runs at import is not traced

root, files = os.path.dirname(noisewise.__file__), set()
sys.argv = ["noisewise", *{arguments!r}]

def note(frame, event, argument):
    code = frame.f_code
    is_function = code.co_flags & 1 and not code.co_name.startswith("<")  # not the body of a module or a class
    if event == "call" and is_function and code.co_filename.startswith(root):
        files.add(code.co_filename)

threading.settrace(note)
sys.settrace(note)
try:
    noisewise.cli.app(prog_name="noisewise")
finally:
    sys.settrace(None)
    with open("files.txt", "w") as output:
        output.write("\\n".join(files))
"""

COMMANDS = [
    ("train --data digits --model mlp --epochs 1 -o run", 38),
    ("report run", 45),
]


def test_commands_run_through_few_files(tmp_path: Path, python: Prepared) -> None:
    for command, limit in COMMANDS:
        (tmp_path / "program.py").write_text(PROGRAM.format(arguments=command.split()))
        code, output = python.run(tmp_path / "program.py")
        assert code == 0, output
        files = sorted(path for path in (tmp_path / "files.txt").read_text().split("\n"))
        assert 10 < len(files) <= limit, "\n".join([command, *files])
