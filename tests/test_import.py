"""What is imported at start-up, measured in a fresh process or in a fork of a process that has imported only torch and NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prepared import Prepared, python_with

_HEAVY = {"typer", "rich", "jinja2", "plotly", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "PIL", "safetensors"}


@pytest.fixture(scope="module")
def python() -> Iterator[Prepared]:
    with python_with("torch", "numpy") as server:
        yield server


@pytest.fixture
def result(python: Prepared, tmp_path: Path) -> Callable[[str], Any]:
    """Runs a program without noisewise imported, and returns the JSON on the last line of its output."""

    def run(program: str) -> Any:
        (tmp_path / "program.py").write_text(program)
        status, output = python.run(tmp_path / "program.py")
        assert status == 0, output
        return json.loads(output.splitlines()[-1])

    return run


def test_importing_noisewise_loads_torch_and_numpy_only(result: Callable[[str], Any]) -> None:
    modules = result("""
import json, sys
before = set(sys.modules)
import noisewise
print(json.dumps([name.split(".")[0] for name in set(sys.modules) - before]))
""")
    packages = [name for name in modules if name not in sys.stdlib_module_names]
    assert "noisewise" in packages and set(packages) <= {"noisewise", "torch", "numpy"}
    assert len(modules) - packages.count("noisewise") < 60, "so many modules of others take time to load"


def test_help_and_a_list_load_only_what_they_need(result: Callable[[str], Any]) -> None:
    loaded = result("""
import json, sys
from noisewise.cli import app
for argument in ("--help", "losses"):
    try:
        app([argument])
    except SystemExit as ended:
        assert not ended.code
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
""")
    assert set(loaded) & _HEAVY <= {"typer", "rich"}


def test_looking_up_reported_results_does_not_load_the_compiler_of_torch(result: Callable[[str], Any]) -> None:
    number, compiler = result("""
import json, sys
from noisewise.papers import reported
run = {"data": "cifar10", "model": "resnet20", "loss": "imae(T=8)", "noise": "symmetric(0.4)", "steps": 100_000}
print(json.dumps([len(list(reported(run))), "torch._dynamo" in sys.modules]))
""")
    assert number and not compiler


def test_help_and_version_do_not_load_torch() -> None:
    program = """
import sys
from noisewise.cli import app
for argument in ("--help", "--version"):
    try:
        app([argument])
    except SystemExit as ended:
        assert not ended.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_margin_stays_the_function_after_its_module_is_imported(result: Callable[[str], Any]) -> None:
    assert result("""
from noisewise.losses import GCE
import noisewise, noisewise.margin
print("true" if callable(noisewise.margin) else "false")
""")


@pytest.mark.parametrize("start", ["import noisewise", "from noisewise.audit import audit", "import noisewise.report, noisewise.correct"])
def test_some_packages_are_called_like_functions(result: Callable[[str], Any], start: str) -> None:
    assert (
        result(f"""
import json, inspect, pickle
{start}
import noisewise
assert noisewise.audit.find_label_issues, "still a package"
for package in (noisewise.audit, noisewise.correct, noisewise.report):
    name = package.__name__.rpartition(".")[2]
    assert inspect.ismodule(package) and pickle.loads(pickle.dumps(package)) is package
    assert inspect.signature(package) == inspect.signature(getattr(package, name))
    try:
        package(3)
    except noisewise.InputError:
        continue
    raise AssertionError(name)
print(json.dumps(callable(noisewise.papers)))
""")
        is False
    )


@pytest.mark.parametrize(
    "start", ["import noisewise.curriculum", "from noisewise.losses import get", "from noisewise import get", "import noisewise.kernels"]
)
def test_every_loss_is_registered_whichever_module_is_imported_first(result: Callable[[str], Any], start: str) -> None:
    assert (
        result(f"""
import json
{start}
from noisewise.losses import get
print(json.dumps(repr(get("scaled(mae, tau=2)"))))
""")
        == "scaled(mae, 2.0)"
    )
