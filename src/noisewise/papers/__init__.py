"""The papers' tables and figures as data: recipes, the numbers they report, and our results.

`available` and `get` give the recipes; `reported` finds the numbers the papers print for a run like yours; `results` reads our results,
`compared` puts them next to the papers' numbers; `page` and `claims_page` are the pages of the documentation about them. Recipes are TOML
files of this package. To train a recipe, see `noisewise.reproduce`.
"""

from noisewise.papers._claims import CLAIMS, Claim, Part, claims_page, verdicts
from noisewise.papers._compared import Compared, compared
from noisewise.papers._findings import FINDINGS, finding, has_results
from noisewise.papers._identity import canonical, decisive, defaults, key
from noisewise.papers._layout import corrections, how_many, laid_out, number, ours, theirs
from noisewise.papers._metrics import METRICS, RETRAINED, RETRIEVAL, Metric
from noisewise.papers._page import can_draw, page, picture_file, runs_of, shows_margins
from noisewise.papers._recipes import Cell, Paper, Recipe, available, check_recipe, get
from noisewise.papers._reported import Reported, core, reported
from noisewise.papers._results import Outcome, Portion, Results, results

__all__ = [
    "CLAIMS",
    "FINDINGS",
    "METRICS",
    "RETRAINED",
    "RETRIEVAL",
    "Cell",
    "Claim",
    "Compared",
    "Metric",
    "Outcome",
    "Paper",
    "Part",
    "Portion",
    "Recipe",
    "Reported",
    "Results",
    "available",
    "can_draw",
    "canonical",
    "check_recipe",
    "claims_page",
    "compared",
    "core",
    "corrections",
    "decisive",
    "defaults",
    "finding",
    "get",
    "has_results",
    "how_many",
    "key",
    "laid_out",
    "number",
    "ours",
    "page",
    "picture_file",
    "reported",
    "results",
    "runs_of",
    "shows_margins",
    "theirs",
    "verdicts",
]
