"""The sections of the report. Each is one module of this folder and a template of the same name; a module that is added is found.

A section module has:

- `LINK` and `ORDER`: the text of its link, and its position on the page.
- `task_facts(task)`, or `page_facts(page)`, or both: the facts that its template shows, as JSON data by key. The first adds them to a
  task, the second to the page.
- optionally `is_shown(facts)`: whether the section is on the page; by default it always is.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

SECTIONS: list[Any] = [importlib.import_module(f"{__name__}.{_found.name}") for _found in pkgutil.iter_modules(__path__)]
SECTIONS.sort(key=lambda section: section.ORDER)
