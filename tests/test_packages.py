"""Packages build on each other in one order, and use each other through public names only.

Imports are read from the source, including those inside functions. Imports under ``if TYPE_CHECKING`` never run, and are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import noisewise

LAYERS = [
    "_startup errors signals extensions spec plugins arrays output",
    "exact checks margin potential curve",
    "transition noise losses curriculum theory",
    "models data tables kernels",
    "runs dynamics methods describe train",
    "audit correct retrieval suggest",
    "draw papers report reproduce leaderboard",
    "integrations demo cli",
]
"""All modules and packages, from the bottom up: each imports only what comes before it."""

ORDER = [package for layer in LAYERS for package in layer.split()]

EXCEPTIONS: set[tuple[str, str]] = set()
"""Imports that are allowed to break the order; at most three."""


def imports(root: Path) -> Iterator[tuple[str, str]]:
    """Every import of a module of the package by another, as dotted names without the name of the package."""
    modules = {_name(file, root) for file in root.rglob("*.py")}
    for file in sorted(root.rglob("*.py")):
        here = _name(file, root)
        for node in _running(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                base = node.module or ""
                targets = [f"{base}.{alias.name}" if f"{base}.{alias.name}".partition(".")[2] in modules else base for alias in node.names]
            for target in targets:
                package, _, module = target.partition(".")
                if package == "noisewise" and module:
                    yield here, module


def _name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _running(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from _running(node)


def violations(root: Path) -> list[str]:
    """The imports that break a rule, one sentence each."""
    rank = {package: place for place, package in enumerate(ORDER)}
    sentences = []
    for here, there in imports(root):
        (user, *_), (used, *inner) = here.split("."), there.split(".")
        if user in ("", "__main__") or user == used:
            continue
        if any(part.startswith("_") for part in inner):
            sentences.append(f"{here} imports {there}, which is private to {used}")
        if (here, there) not in EXCEPTIONS and rank[used] > rank[user]:
            sentences.append(f"{here} imports {there}, but {used} comes after {user}")
    return sentences


def refuse_cycles(root: Path) -> None:
    """Raise `CycleError` if modules import each other in a circle."""
    modules = {_name(file, root) for file in root.rglob("*.py")}
    graph = TopologicalSorter[str]()
    for here, there in imports(root):
        while there not in modules:  # a name of a module
            there = there.rpartition(".")[0]
        if there != here:
            graph.add(here, there)
    graph.prepare()


ROOT = Path(noisewise.__file__).parent


def test_packages_import_only_public_names_of_packages_before_them() -> None:
    assert violations(ROOT) == []
    assert len(EXCEPTIONS) <= 3


def test_every_package_is_in_the_order() -> None:
    present = {file.stem for file in ROOT.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()}
    assert present - {"__init__", "__main__"} == set(ORDER)


def test_planted_violations_are_found(tmp_path: Path) -> None:
    for package in ("losses", "train"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "train" / "_step.py").write_text("from noisewise.losses import get\n")
    (tmp_path / "losses" / "_base.py").touch()
    assert violations(tmp_path) == []
    (tmp_path / "losses" / "ce.py").write_text("def fused():\n    from noisewise.train import fit\n")
    (tmp_path / "train" / "_loop.py").write_text("from noisewise.losses._base import Loss\n")
    (tmp_path / "train" / "_run.py").write_text("from noisewise.losses import _base\n")
    assert [sentence.split(",")[0] for sentence in violations(tmp_path)] == [
        "losses.ce imports train",
        "train._loop imports losses._base",
        "train._run imports losses._base",
    ]


def test_no_modules_import_each_other_in_a_circle(tmp_path: Path) -> None:
    refuse_cycles(ROOT)
    for here, there in (("one", "two"), ("two", "three"), ("three", "one")):
        (tmp_path / f"{here}.py").write_text(f"def function():\n    from noisewise.{there} import name\n")
    with pytest.raises(CycleError):
        refuse_cycles(tmp_path)
