"""A small table of pets and small images, which several tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

CSV = """name,width,height,kind,truth
a1,1.5,10,cat,cat
a2,2.5,20,dog,cat
a3,-3,3e1,cat,cat
a4,.5,40,bird,dog
"""
COLUMNS: dict[str, Any] = {"label": "kind", "id": "name", "true_label": "truth"}


def write_image(path: Path, size: tuple[int, int] = (6, 4), colour: tuple[int, int, int] = (10, 20, 30)) -> None:
    """Write an image of one colour, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
