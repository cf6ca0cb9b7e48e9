"""The sections of the report. A module of this folder makes the facts of one or more sections; each has a template in the same folder.

Modules are found by their file names. A module has:

- `LINKS`: by the name of a section's template (without .html), the text of its link and its position on the page.
- `task_facts(task)`, or `page_facts(page)`, or both: the facts that the templates show, as JSON data by key. The first adds them to a
  task, the second to the page.
- optionally `is_shown(name, facts)`: whether a section is on the page; by default it always is.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

MODULES: list[Any] = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
