"""Train the runs of a paper's table or figure and compare them with the paper.

`plan` lists the runs that are missing, `reproduce` trains them and compares. `show` compares existing results without training; `picture`
draws a figure. Recipes and reported numbers are in `noisewise.papers`.
"""

from noisewise.reproduce._outcome import outcome
from noisewise.reproduce._pictures import picture
from noisewise.reproduce._plan import Plan, plan, quick_size
from noisewise.reproduce._reproduce import RecipeFailedError, Reproduction, reproduce, show

__all__ = ["Plan", "RecipeFailedError", "Reproduction", "outcome", "picture", "plan", "quick_size", "reproduce", "show"]
