"""The user's own code on the command line: what it registers works everywhere, runs remember its file, and no run folder imports it."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import noisewise
from noisewise import losses, plugins
from prepared import Prepared, prepared, python_with
from refused import refused

LOSS = '''
from noisewise.losses import MarginLoss

class Gentle(MarginLoss, name="gentle"):
    """Half of cross-entropy."""
    def emphasis(self, d):
        return 0.5 * (-d).sigmoid()
'''
MODEL = """
from torch import nn
from noisewise.models import FeatureClassifier

class Narrow(FeatureClassifier, name="narrow"):
    def build(self):
        self.only = nn.Linear(self.inputs, 4)
        return 4

    def embed(self, x):
        return self.only(x.flatten(1)).relu()
"""
TRAIN = ("--data", "digits", "--epochs", "1", "--loss", "gentle")


@pytest.fixture(scope="module")
def python() -> Iterator[Prepared]:
    with prepared("noisewise.cli", "noisewise.audit", "noisewise.report", "typer.testing") as server:
        yield server


@pytest.fixture
def command(python: Prepared, tmp_path: Path) -> object:
    """Runs a noisewise command in a process of its own, in the folder of the test."""

    def run(*arguments: object, code: int = 0) -> str:
        program = f"import sys\nfrom noisewise.cli import app\nif __name__ == '__main__':\n    app({list(map(str, arguments))!r})\n"
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        (tmp_path / "program.output").unlink(missing_ok=True)
        status, output = python.run(tmp_path / "program.py")
        assert status == code, output
        return " ".join(output.split())

    (tmp_path / "mine.py").write_text(LOSS, encoding="utf-8")
    return SimpleNamespace(run=run, folder=tmp_path)


def test_a_loss_in_a_file_is_described_trained_audited_and_reported(command) -> None:
    assert "Half of cross-entropy" in command.run("losses", "gentle", "--import", "mine.py")
    command.run("train", *TRAIN, "--model", "linear", "--import", "mine.py", "-o", "run")
    (used,) = json.loads((command.folder / "run/provenance.json").read_text())["imports"]
    digest = hashlib.sha256((command.folder / "mine.py").read_bytes()).hexdigest()
    assert used == {"kind": "loss", "name": "gentle", "file": "mine.py", "sha256": digest}
    assert "There is no" not in command.run("audit", "run", "--import", "mine.py", "-o", "issues.csv")
    assert "There is no" not in command.run("report", "run", "--import", "mine.py", "-o", "with.html")
    for arguments in (("audit", "run"), ("report", "run", "-o", "without.html")):
        printed = command.run(*arguments)
        assert "no loss named 'gentle'" in printed and "'mine.py'" in printed and "--import" in printed
        assert printed.count("--import") == 1


def test_workers_import_what_they_train_and_a_changed_file_stops_resuming(command) -> None:
    (command.folder / "settings.toml").write_text('import = ["mine.py"]\ndata = "digits"\nmodel = "linear"\nepochs = 1\n')
    compare = ("compare", "--config", "settings.toml", "--loss", "gentle", "--jobs", 1, "-o", "runs")
    command.run(*compare)
    run = command.folder / "runs/none-gentle-seed0"
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    command.run(*compare)
    (command.folder / "mine.py").write_text(LOSS.replace("0.5", "0.25"), encoding="utf-8")
    printed = command.run(*compare, code=2)
    assert "'gentle'" in printed and "'mine.py'" in printed and "changed" in printed
    command.run("train", *TRAIN, "--model", "linear", "--import", "mine.py")
    assert "changed" in command.run("train", *TRAIN, "--model", "linear", "--import", "mine.py", "-o", run, code=2)


def test_a_run_never_imports_what_it_names(command) -> None:
    (command.folder / "mine.py").write_text(MODEL, encoding="utf-8")
    command.run("train", "--data", "digits", "--epochs", 1, "--model", "narrow", "--import", "mine.py", "-o", "run")
    traced = 'from pathlib import Path\nPath("was imported").touch()\n'
    for folder in (command.folder, command.folder / "run"):
        (folder / "mine.py").write_text(traced + MODEL, encoding="utf-8")
    recorded = json.loads((command.folder / "run/provenance.json").read_text())
    recorded["imports"][0]["file"] = str(command.folder / "run/mine.py")
    (command.folder / "run/provenance.json").write_text(json.dumps(recorded))
    (command.folder / "new.csv").write_text("x\n1\n", encoding="utf-8")
    command.run("audit", "run")
    command.run("report", "run")
    printed = command.run("predict", "run", "new.csv", code=2)  # it needs the model
    assert "no model named 'narrow'" in printed and "run/mine.py" in printed and "--import" in printed
    assert not (command.folder / "was imported").exists()


def test_an_installed_plugin_is_found_without_being_named(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(LOSS, encoding="utf-8")
    for name, target in (("theirs", "theirs"), ("broken", "does_not_exist")):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}-1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (tmp_path / f"{name}-1.0.dist-info/entry_points.txt").write_text(f"[noisewise.plugins]\n{name} = {target}\n")
    program = """
    import sys, warnings
    import noisewise
    assert "theirs" not in sys.modules
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(noisewise.get("gentle"), "gentle" in noisewise.losses.available())
    assert len(caught) == 1 and "'broken'" in str(caught[0].message)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program), encoding="utf-8")
    with python_with("torch", PYTHONPATH=f"{Path(noisewise.__file__).parent.parent}:{tmp_path}") as python:
        assert python.run(tmp_path / "program.py") == (0, "gentle True\n")


def test_a_file_that_cannot_be_imported_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with refused(str(file)):
        plugins.load(file)
    file.write_text("x = 1\ny = x / 0\n", encoding="utf-8")
    with refused("mine.py", "line 2", "ZeroDivisionError"):
        plugins.load(file)
    file.write_text("x = = 1\n", encoding="utf-8")
    with refused("mine.py", "line 1", "SyntaxError"):
        plugins.load(file)
    file.write_text(LOSS.replace("gentle", "ce"), encoding="utf-8")
    with refused("mine.py", "already has a loss named 'ce'"):
        plugins.load(file)
    with refused("'no_such.module'"):
        plugins.load("no_such.module")


def test_a_file_is_imported_once_until_it_changes_and_can_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "strength_of_gentle.py").write_text("HALF = 0.5\n", encoding="utf-8")
    file = tmp_path / "random.py"  # also the name of a module of Python
    text = "from strength_of_gentle import HALF\n" + LOSS.replace("0.5", "HALF").replace("gentle", "gentle_again")
    file.write_text(text, encoding="utf-8")
    plugins.load(file)
    first = losses.registry["gentle_again"]
    plugins.load(str(file))
    assert losses.registry["gentle_again"] is first
    file.write_text(text + "\n", encoding="utf-8")
    plugins.load(file)
    assert losses.registry["gentle_again"] is not first
    assert plugins.imports_of({"loss": "0.3*ce + gentle_again", "data": "gentle_again.csv"}) == (str(file),)
    assert __import__("random").random() < 1
