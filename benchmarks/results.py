"""One page of results, one section per benchmark: each writes its own and leaves the others alone.

    python benchmarks/results.py

The command marks the sections that are older than the code they measure. A section ends with the modules that it measured, each with
a digest of their syntax trees: code changes it; comments, docstrings and layout do not. The benchmark itself is not part of the digest.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

PAGE_VARIABLE = "NOISEWISE_RESULTS"
PAGE = Path(os.environ.get(PAGE_VARIABLE) or Path(__file__).with_name("RESULTS.md"))
SOURCE = Path(__file__).parents[1] / "src/noisewise"
OPENING = (
    "# Results\n\nRatios measured side by side in one run; each section names the command that made it. Stale are sections whose code has\n"
    "changed since: `python benchmarks/results.py` marks them.\n"
)
STALE = "**Stale**: measured with other code than there is now."

MEASURES = {
    "An audit of a table": "audit data models train",
    "An audit of embeddings": "audit data",
    "Audit of a large record": "audit runs",
    "Audits of small tables": "audit correct losses train",
    "Beside label errors": "audit",
    "CPU time of RobustClassifier": "integrations/sklearn train",
    "Customers": "audit data",
    "Errors of the kernels": "kernels",
    "Finding wrong labels": "audit losses train",
    "Fine-tuning a language model": "integrations/huggingface integrations/trl losses",
    "From start to end": "kernels losses models runs train",
    "Gradient boosting": "integrations/boosting losses",
    "Kernels on a GPU": "kernels",
    "Losses": "curriculum exact losses margin",
    "Methods on a GPU": "kernels losses methods models train",
    "Noise": "noise",
    "RobustClassifier on": "audit correct integrations/sklearn losses train",
    "Saturation": "losses train",
    "Settings of the demonstration": "demo losses train",
    "The report": "draw report",
    "Trained again on corrected labels": "audit correct losses train",
    "Training on": "kernels losses models train",
    "Verified label errors": "audit losses train",
    "What an audit says": "audit correct losses train",
    "Wrong labels in tables": "audit",
    "auto beside fixed losses": "losses train",
}
"""Modules and packages of noisewise that sections measure, by how their titles begin; those of any other title measure everything."""


def write_section(title: str, lines: list[str]) -> None:
    """Put a section into the page, in place of the one of the same title, and mark what is stale."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else OPENING
    opening, *sections = split(page)
    kept = [section for section in sections if not section.startswith(f"## {title}\n")]
    own = f"## {title}\n\n" + "\n".join(lines).strip() + f"\n\n{stamp(title)}\n"
    PAGE.write_text(joined([opening, *sorted([*kept, own])]), encoding="utf-8")


def split(page: str) -> list[str]:
    return re.split(r"(?m)^(?=## )", page)


def joined(parts: list[str]) -> str:
    """The page of its opening and its sections, with true marks."""
    opening, *sections = parts
    return opening.rstrip() + "\n\n" + "\n".join(marked(section) for section in sections)


def marked(section: str) -> str:
    """The section with a mark under its title, if it is stale."""
    title, body = section.replace(f"\n\n{STALE}\n", "\n").split("\n", 1)
    mark = f"\n{STALE}\n" if stale(section) else ""
    return f"{title}\n{mark}\n{body.strip()}\n"


def stale(section: str) -> bool:
    """Whether code that the section measured has changed, or is not known."""
    stamps = re.findall(r"(?m)^Measured: (.+)\.$", section)
    return not stamps or any(digest(name) != seen for name, seen in re.findall(r"`(.+?)` (\w+)", stamps[-1]))


def stamp(title: str) -> str:
    """The line that says which code a section measures."""
    names = next((names for beginning, names in MEASURES.items() if title.startswith(beginning)), ".")
    return f"Measured: {', '.join(f'`{name}` {digest(name)}' for name in names.split())}."


@functools.cache
def digest(name: str) -> str:
    """Eight digits of a module or a package of noisewise, the same in every version of Python."""
    files = sorted([SOURCE / f"{name}.py", *(SOURCE / name).rglob("*.py")])
    found = hashlib.sha256()
    for file in filter(Path.exists, files):
        for word in words(ast.parse(file.read_bytes())):
            found.update(f"{word}\n".encode())
    return found.hexdigest()[:8]


def words(tree: ast.AST) -> Iterator[str]:
    """What the tree says, without docstrings and without fields that are empty, which differ between versions of Python."""
    left: list[object] = [tree]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
            yield "["
        elif isinstance(item, ast.AST):
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue
            left += [value for _, value in ast.iter_fields(item) if value not in (None, [])]
            yield type(item).__name__
        else:
            yield repr(item)


def main() -> None:
    page = joined(split(PAGE.read_text(encoding="utf-8")))
    PAGE.write_text(page, encoding="utf-8")
    for section in split(page)[1:]:
        if STALE in section:
            print(f"stale: {section.splitlines()[0].removeprefix('## ')}")


if __name__ == "__main__":
    main()
