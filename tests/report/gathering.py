"""Gather the facts about all runs in a folder, and pick some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise.report._report import gather


def gather_folder(folder: Path, **options: Any) -> Any:
    return gather(sorted(path.parent for path in folder.rglob("settings.json")), title="t", **options)


def run_in(facts: Any, folder: Path) -> Any:
    """The facts about the run in a folder."""
    return next(run for run in facts["runs"] if run["folder"] == str(folder))


def verdict_text(facts: Any) -> str:
    return " ".join(sentence["text"] for sentence in facts["verdict"])
