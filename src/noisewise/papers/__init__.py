"""The papers' tables and figures: recipes, the numbers they report, and running them again.

`available` and `get` give the recipes; `reported` finds what the papers print for a run like yours; `plan` and `reproduce` run a
recipe again and put ours beside theirs; `results` reads what was run at full size, and `page` shows it all. Recipes and
numbers are data, in the TOML files of this package.
"""

from noisewise.papers._metrics import METRICS, Metric
from noisewise.papers._page import page
from noisewise.papers._plan import Comparison, Plan, plan
from noisewise.papers._recipes import Cell, Paper, Recipe, available, get
from noisewise.papers._reported import Reported, reported
from noisewise.papers._reproduce import Compared, Reproduction, reproduce, results

__all__ = [
    "METRICS",
    "Cell",
    "Compared",
    "Comparison",
    "Metric",
    "Paper",
    "Plan",
    "Recipe",
    "Reported",
    "Reproduction",
    "available",
    "get",
    "page",
    "plan",
    "reported",
    "reproduce",
    "results",
]
