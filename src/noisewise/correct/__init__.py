"""Correct: a cleaned set of labels from an audit, every change of it listed and reversible.

`correct` decides by a policy (`relabel`, `prune`, `soften`), or by what a person decided on the page that `review` writes. A
`Correction` is a file of labels; `retrain` trains the run again on it, and leaves a note of where the new run came from.
"""

from noisewise.correct._correction import CHANGED, Correction, correct
from noisewise.correct._decisions import Decision, read_decisions
from noisewise.correct._policies import Policy, Prune, Relabel, Soften, policies
from noisewise.correct._retrain import retrain
from noisewise.correct._review import review

__all__ = [
    "CHANGED",
    "Correction",
    "Decision",
    "Policy",
    "Prune",
    "Relabel",
    "Soften",
    "correct",
    "policies",
    "read_decisions",
    "retrain",
    "review",
]
