"""The policies: what to do with a doubtful label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.spec import Named, Registry, setting


class Outcome(NamedTuple):
    """The result for some doubtful labels: the new label, its share (the rest stays with the given label), and whether it is kept."""

    labels: Ints
    share: Floats
    kept: Flags


class Policy(Named, registry=Registry("policy")):
    """What to do with doubtful labels.

    Args:
        below: only labels with a lower quality are changed.
        lead: only labels with a larger `Audit.lead` are changed: the votes for the suggested label, less two, divided by those for the
            given label.
    """

    below: float = setting(default=0.5, bounds="(0, 1]", kw_only=True)
    lead: float = setting(default=1.0, bounds="[1, inf)", kw_only=True)

    def touches(self, quality: Floats, lead: Floats) -> Flags:
        """Which doubtful labels to change."""
        return (quality < self.below) & (lead > self.lead)

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        """Change these labels."""
        raise NotImplementedError


class Relabel(Policy, name="relabel"):
    """Use the suggested label if it has more than twice the votes of the given one.

    Relabelling makes a right label wrong if the audit is mistaken, so it needs more votes than the other policies. The two was chosen with
    true labels on CIFAR-10 (`benchmarks/RESULTS.md`).

    Example:
        >>> policies.get("relabel(below=0.2, lead=3)")
        relabel(below=0.2, lead=3.0)
    """

    lead: float = setting(default=2.0, bounds="[1, inf)", kw_only=True)

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(suggested, np.ones(len(given)), np.ones(len(given), dtype=bool))


class Prune(Policy, name="prune"):
    """Leave out the examples."""

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(given, np.ones(len(given)), np.zeros(len(given), dtype=bool))


class Soften(Policy, name="soften"):
    """Split each label: the suggested label gets the probability that the given label is wrong, and the given label the rest."""

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(suggested, 1 - quality, np.ones(len(given), dtype=bool))


policies: Registry[Policy] = Policy.registry
