"""Correct: change the doubtful labels of an audit; every change is listed and can be undone.

`correct` applies a policy (`relabel`, `prune`, `soften`), or the decisions that a person made on the page that `review` writes, on the one
that `review_server` serves, or in the labelling tool that `write_tasks` writes for. `retrain` trains the run again on a `Correction`, and
notes in the new run where it came from. `check_correction` finds out on held-out examples whether that helped.
"""

from noisewise.correct._check import HeldOut, check_correction
from noisewise.correct._correction import CHANGED, CORRECTION_COLUMNS, Correction, correct
from noisewise.correct._decisions import Decision, read_decisions
from noisewise.correct._policies import Policy, Prune, Relabel, Soften, policies
from noisewise.correct._retrain import read_changes, retrain
from noisewise.correct._review import review
from noisewise.correct._server import ReviewServer, review_server
from noisewise.correct._tasks import write_tasks

__all__ = [
    "CHANGED",
    "CORRECTION_COLUMNS",
    "Correction",
    "Decision",
    "HeldOut",
    "Policy",
    "Prune",
    "Relabel",
    "ReviewServer",
    "Soften",
    "check_correction",
    "correct",
    "policies",
    "read_changes",
    "read_decisions",
    "retrain",
    "review",
    "review_server",
    "write_tasks",
]
