"""Turns the notebooks in `examples/` into pages of the site, each with a link to the notebook itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def on_files(files: Any, config: Any) -> Any:
    """Add a page and the notebook for each notebook."""
    from mkdocs.structure.files import File

    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path.name, json.loads(text))))
        files.append(File.generated(config, f"notebooks/{path.name}", content=text))
    return files


def page(name: str, notebook: dict[str, Any]) -> str:
    """The cells of a notebook as Markdown. The first cell is the title."""
    title, *cells = notebook["cells"]
    parts = ["".join(title["source"]), f"[Download this page as a notebook]({name})"]
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"
