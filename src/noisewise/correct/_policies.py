"""The policies: what becomes of a doubtful label. This module must not know where doubt comes from, nor files."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.spec import Named, Registry, setting


class Outcome(NamedTuple):
    """What becomes of some doubtful labels: the new label, its share (the rest stays with the given one), whether it is kept."""

    labels: Ints
    share: Floats
    kept: Flags


class Policy(Named, registry=Registry("policy")):
    """What to do with doubtful labels.

    Args:
        below: only labels of a lower quality than this are touched.
        lead: only labels are touched for each of whose votes the suggested one got more than this many, besides the two that every
            given label has from the start.
    """

    below: float = setting(default=0.5, bounds="(0, 1]", kw_only=True)
    lead: float = setting(default=1.0, bounds="[1, inf)", kw_only=True)

    def touches(self, quality: Floats, lead: Floats) -> Flags:
        """Which doubtful labels are to be changed."""
        return (quality < self.below) & (lead > self.lead)

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        """What becomes of labels that are to be changed."""
        raise NotImplementedError


class Relabel(Policy, name="relabel"):
    """Give them the suggested label, where it got more than twice the votes of the given one.

    A doubtful label that was right is made wrong by this, where it would only have been left out or shared by the others: so more is
    asked for. The two were chosen on CIFAR-10, with the truth in view (`benchmarks/RESULTS.md`).

    Example:
        >>> policies.get("relabel(below=0.2, lead=3)")
        relabel(below=0.2, lead=3.0)
    """

    lead: float = setting(default=2.0, bounds="[1, inf)", kw_only=True)

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(suggested, np.ones(len(given)), np.ones(len(given), dtype=bool))


class Prune(Policy, name="prune"):
    """Leave the examples out."""

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(given, np.ones(len(given)), np.zeros(len(given), dtype=bool))


class Soften(Policy, name="soften"):
    """Share them between the suggested label, by the chance that the given one is wrong, and the given label."""

    def decide(self, given: Ints, suggested: Ints, quality: Floats) -> Outcome:
        return Outcome(suggested, 1 - quality, np.ones(len(given), dtype=bool))


policies: Registry[Policy] = Policy.registry
