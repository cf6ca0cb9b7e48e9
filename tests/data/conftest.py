"""The pets as a CSV file and as a data frame, and a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pets import CSV, write_image


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


@pytest.fixture
def frame(table: Path) -> Any:
    return pytest.importorskip("pandas").read_csv(table)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three cats, three dogs in a deeper folder, a text file and hidden folders."""
    root = tmp_path / "pictures"
    for number in range(3):
        write_image(root / "cat" / f"{number}.png", colour=(number, 0, 0))
        write_image(root / "dog" / "deeper" / f"{number}.JPG", colour=(0, 100, 0))
    (root / "cat" / "notes.txt").write_text("no image")
    (root / ".hidden").mkdir()
    write_image(root / "cat" / ".thumbnails" / "0.png")
    return root
