"""What no test does: import another test module, or pin the wording of an error with `match=`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def offences(path: Path) -> list[str]:
    offending = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            offending += [f"{path.name}:{node.lineno} imports {name}" for name in modules if name.rpartition(".")[2].startswith("test_")]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("raises", "warns"):
            pinned = any(keyword.arg == "match" for keyword in node.keywords)
            offending += [f"{path.name}:{node.lineno} pins a wording: use refused() or warned()"] * pinned
    return offending


def test_no_test_imports_a_test_module_or_pins_a_wording() -> None:
    paths = [path for path in FOLDER.rglob("*.py") if path.name != "refused.py"]
    assert len(paths) > 100 and not [offence for path in paths for offence in offences(path)]


@pytest.mark.parametrize(
    "line",
    ["from test_fit import QUICK", "import train.test_fit", "from train import test_fit", "pytest.raises(ValueError, match='of a loss')"],
)
def test_an_offence_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(line)
    assert len(offences(tmp_path / "a.py")) == 1
