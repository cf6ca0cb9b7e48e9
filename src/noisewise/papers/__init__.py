"""The papers' tables and figures: recipes, the numbers they report, and running them again.

`available` and `get` give the recipes; `reported` finds what the papers print for a run like yours; `plan` and `reproduce` run a
recipe again; `results` reads what was run, here or elsewhere, `compared` puts it beside the papers' numbers, `picture` draws a
figure of it, and `show` does both; `page` and `claims_page` show it all. Recipes and numbers are data, in the TOML files of this package.
"""

from noisewise.papers._claims import CLAIMS, Claim, Part, claims_page
from noisewise.papers._compared import Compared, compared
from noisewise.papers._metrics import METRICS, Metric
from noisewise.papers._page import page
from noisewise.papers._pictures import can_draw, picture, picture_file
from noisewise.papers._plan import Plan, plan
from noisewise.papers._recipes import Cell, Paper, Recipe, available, get
from noisewise.papers._reported import Reported, reported
from noisewise.papers._reproduce import RecipeFailedError, Reproduction, reproduce, show
from noisewise.papers._results import Outcome, Portion, Results, results

__all__ = [
    "CLAIMS",
    "METRICS",
    "Cell",
    "Claim",
    "Compared",
    "Metric",
    "Outcome",
    "Paper",
    "Part",
    "Plan",
    "Portion",
    "Recipe",
    "RecipeFailedError",
    "Reported",
    "Reproduction",
    "Results",
    "available",
    "can_draw",
    "claims_page",
    "compared",
    "get",
    "page",
    "picture",
    "picture_file",
    "plan",
    "reported",
    "reproduce",
    "results",
    "show",
]
