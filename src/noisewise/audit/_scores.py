"""The scores an audit can rank labels by; the lower, the more doubtful. Each is one function of what the record says.

This module must not know where the line between doubtful and not is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noisewise.arrays import Floats
from noisewise.audit._evidence import Evidence
from noisewise.dynamics import Dynamics
from noisewise.errors import unknown


def combined(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """How far the epochs believed the label: the mean of its probability and of its votes, both weighted by what an epoch tells."""
    return (evidence.belief + evidence.given_share) / 2


def area_under_margin(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """The mean margin."""
    return dynamics.area_under_margin


def final_margin(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """The margin at the end of training: ranking by loss."""
    return evidence.final.astype(np.float64)


def emphasis(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """Minus the mean emphasis of cross-entropy, 1 − p. A robust loss lets go of wrong labels, so that its own would not rank them."""
    return evidence.probability - 1


def forgetting(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """Minus how often the example was learned and lost again; one that was never learned comes before all others."""
    times = dynamics.forgetting
    return -np.where(dynamics.first_fit < 0, times.max() + 1, times).astype(np.float64)


def mixture(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """Minus the probability that the mean margin belongs to the lower of two groups."""
    estimate = dynamics.estimate
    return np.zeros(len(evidence.belief)) if estimate is None else -estimate.noisy


SCORES: dict[str, Callable[[Dynamics, Evidence], Floats]] = {
    score.__name__: score for score in (combined, area_under_margin, final_margin, emphasis, forgetting, mixture)
}


def score_function(name: str) -> Callable[[Dynamics, Evidence], Floats]:
    """The function that computes a score; an unknown name is an `InputError`."""
    if name not in SCORES:
        raise unknown("score", name, SCORES)
    return SCORES[name]
