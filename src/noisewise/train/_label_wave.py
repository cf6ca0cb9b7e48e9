"""Label Wave: choose an epoch from the record of predictions alone, without held-out examples."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from noisewise.runs import Record

WINDOW = 3
"""The number of epochs in the moving average of the changes."""


def kept_epoch(changes: Sequence[Fraction]) -> int:
    """The epoch that Label Wave keeps: the first local minimum of the moving average of the changes, else the last epoch.

    A network that learns right labels changes fewer and fewer of its predictions from epoch to epoch. Their number rises when it
    begins to learn wrong labels.

    Args:
        changes: the share of predictions that differ from those of the epoch before, from epoch 2 on.

    Example:
        >>> kept_epoch([Fraction(each) for each in (9, 6, 3, 3, 6, 9)])  # averages 6, 4, 4, 6 in epochs 4 to 7
        6
        >>> kept_epoch([Fraction(each) for each in (9, 6, 3, 2)])
        5

    Reference:
        Yuan et al., Early stopping against label noise without validation data, ICLR 2024.
    """
    averages = [sum(changes[end - WINDOW : end]) for end in range(WINDOW, len(changes) + 1)]
    for position in range(1, len(averages) - 1):
        if averages[position - 1] >= averages[position] < averages[position + 1]:
            return position + WINDOW + 1
    return len(changes) + 1


class LabelWave:
    """Reads the changes of predictions from the record of a run, each epoch once.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changes: list[Fraction] = []

    def kept(self, epoch: int) -> int:
        """The epoch to keep if training ended after this epoch, which is in the record."""
        record = Record(self.folder)
        while len(self.changes) < epoch - 1:
            newest = len(self.changes) + 2
            before, after = record.predictions(newest - 1), record.predictions(newest)
            seen = (before >= 0) & (after >= 0)  # the last epoch of a run may be cut short
            self.changes.append(Fraction(int((before != after)[seen].sum()), max(1, int(seen.sum()))))
        return kept_epoch(self.changes)
