"""One page of results, one section per benchmark: each writes its own and leaves the others alone."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).with_name("RESULTS.md")
OPENING = "# Results\n\nRatios measured side by side in one run; each section names the command that made it.\n"


def write_section(title: str, lines: list[str]) -> None:
    """Put a section into the page, in place of the one of the same title."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else OPENING
    opening, *sections = re.split(r"(?m)^(?=## )", page)
    kept = [section for section in sections if not section.startswith(f"## {title}\n")]
    own = f"## {title}\n\n" + "\n".join(lines).strip() + "\n"
    PAGE.write_text(opening.rstrip() + "\n\n" + "\n".join(section.rstrip() + "\n" for section in sorted([*kept, own])), encoding="utf-8")
