"""Corrected labels: a row for every example, with what it was and what it is now, so that every change can be seen and undone.

This module knows audits and files of labels. It must not know how runs are trained.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisewise.arrays import Flags, Floats, Ints, first_positions
from noisewise.audit import Audit, audit
from noisewise.correct._decisions import Decision
from noisewise.correct._policies import Policy, policies
from noisewise.data import Dataset
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError, invalid_parameter, listed, unknown
from noisewise.tables import ROWS, Block, from_cell, rows_of, write_blocks

CORRECTION_COLUMNS = ("index", "id", "given_label", "label", "share", "change")
CHANGED = {"relabel": "relabelled", "prune": "left out", "soften": "softened"}


@dataclass(frozen=True, eq=False, repr=False)
class Correction:
    """The labels of a run after correction; every array is in the order of its record.

    Args:
        index: the number of every example in its source.
        ids: what the user calls every example.
        given: the label it was trained with.
        labels: the label it has now.
        share: how much of the example belongs to that label; the rest stays with the given one. 1 unless it was softened.
        kept: whether it is still there.
        classes: the name of every class.
        policy: what decided: a policy's spec, "by hand" or "from a file".
        spared: the classes whose labels stay as they were given, since none would have been left.
    """

    index: Ints
    ids: tuple[str, ...]
    given: Ints
    labels: Ints
    share: Floats
    kept: Flags
    classes: tuple[str, ...]
    policy: str
    spared: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.given)

    def __repr__(self) -> str:
        changes = ", ".join(f"{number:,} {CHANGED[kind]}" for kind, number in self.changes.items())
        gone = f"; none is left of {listed(map(repr, self.emptied))}" if self.emptied else ""
        stay = f"; those of {listed(map(repr, self.spared))} stay, as none would be left" if self.spared else ""
        return f"Correction({len(self):,} labels: {changes or 'none changed'}{gone}{stay})"

    @property
    def changed(self) -> Flags:
        """Which labels are not as they were given."""
        moved: Flags = self.labels != self.given
        return moved | ~self.kept

    @property
    def emptied(self) -> tuple[str, ...]:
        """The classes that had labels, and have none any more."""
        left = set(self.labels[self.kept].tolist())
        return tuple(self.classes[label] for label in np.unique(self.given).tolist() if label not in left)

    @property
    def changes(self) -> dict[str, int]:
        """How many labels were changed, by the kind of change: "prune", "relabel" and "soften", those that occur."""
        kinds, numbers = np.unique(self._change()[self.changed], return_counts=True)
        return dict(zip(kinds.tolist(), numbers.tolist(), strict=True))

    def probabilities(self) -> Floats:
        """The labels as targets of a loss, (examples, classes): 1 for the label, and shared with the given one where it was softened.

        Every loss takes them in place of labels that looks at one example at a time. What is left out is left out here too.

        Example:
            >>> softened = Correction(np.arange(2), ("a", "b"), np.array([0, 0]), np.array([0, 1]), np.array([1.0, 0.75]),
            ...                       np.array([True, True]), ("cat", "dog"), "soften")
            >>> softened.probabilities()
            array([[1.  , 0.  ],
                   [0.25, 0.75]])
        """
        here, share = np.arange(len(self)), self.share
        targets = np.zeros((len(self), len(self.classes)))
        targets[here, self.given] = 1 - share
        targets[here, self.labels] += share
        return targets[self.kept]

    def undone(self) -> Correction:
        """The labels as they were given."""
        return replace(self, labels=self.given, share=np.ones(len(self)), kept=np.ones(len(self), dtype=bool))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every example, in order; a label that is left out is empty."""
        return rows_of(self._blocks(), CORRECTION_COLUMNS)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the labels to a CSV file that `read` reads back.

        Text that a spreadsheet would run as a formula (it starts with =, +, - or @ and is not a number) has an apostrophe before it, which
        `read` removes. The file lists labels; your own table is never written to.

        Args:
            path: ends in .csv.

        Returns:
            The path.
        """
        if Path(path).suffix.lower() != ".csv":
            raise invalid_parameter("path", "Correction.write", "a file that ends in .csv", str(path))
        return write_blocks(path, self._blocks(), CORRECTION_COLUMNS)

    def _blocks(self) -> Iterator[Block]:
        names, changes = (*self.classes, None), self._change()
        labels = np.where(self.kept, self.labels, -1)  # the last name
        for part in (slice(start, start + ROWS) for start in range(0, len(self), ROWS)):
            given, now = ([names[place] for place in numbers[part]] for numbers in (self.given, labels))
            yield self.index[part].tolist(), self.ids[part], given, now, self.share[part].tolist(), changes[part].tolist()

    @classmethod
    def read(cls, path: str | os.PathLike[str], classes: Collection[str]) -> Correction:
        """Read what `write` wrote.

        Args:
            path: of the file.
            classes: the name of every class, in order.
        """
        rows = _read_rows(Path(path))
        numbers = first_positions(classes)
        try:
            given = np.array([numbers[row["given_label"]] for row in rows])
            labels = np.array([numbers[row["label"] or row["given_label"]] for row in rows])
            index = np.array([int(row["index"]) for row in rows], dtype=np.int64)
            share = np.array([float(row["share"]) for row in rows])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"The file {str(path)!r} does not hold corrected labels of these classes: {error}. Write it again.") from None
        _check_rows(path, index, share, labels != given)
        kept = np.array([bool(row["label"]) for row in rows])
        return cls(index, tuple(row["id"] for row in rows), given, labels, share, kept, tuple(classes), "from a file")

    def check_one_label_each(self) -> None:
        """Refuse what a run cannot be trained on: shared labels, or no example at all."""
        if (self.share < 1).any():
            raise InputError(
                f"A run has one label per example, and {int((self.share < 1).sum())} were softened. "
                "Relabel or prune them to train again, or give probabilities() to a loss in a loop of your own."
            )
        if not self.kept.any():
            raise InputError("No example would be left. Correct fewer labels, like prune(below=0.2).")

    def apply(self, examples: Dataset) -> Dataset:
        """The examples of the run with the corrected labels, without those that are left out.

        Args:
            examples: of the run, in the order of its record, with the labels they were given.
        """
        self.check_one_label_each()
        if not np.array_equal(examples.labels.cpu().numpy(), self.given):
            raise InputError("The labels of the examples are not those that were corrected. Give what the run was trained on.")
        corrected = replace(examples, labels=torch.from_numpy(self.labels.copy()).to(examples.labels.device))
        return replace(corrected.take(torch.from_numpy(self.kept)), name=f"{examples.name} corrected")

    def _change(self) -> Any:
        moved = self.labels != self.given
        return np.select([~self.kept, moved & (self.share < 1), moved], ["prune", "soften", "relabel"], "")


def correct(
    found: Audit | Dynamics | str | os.PathLike[str],
    policy: str | Policy = "relabel",
    *,
    decisions: Mapping[int, bool | Decision] | None = None,
) -> Correction:
    """Correct the labels an audit doubts.

    A policy leaves the labels of a class alone where it would leave none of them: more likely than that all are wrong is that the run did
    not learn the class.

    Args:
        found: the audit; or a run, its folder or its dynamics, which is audited first.
        policy: "relabel", "prune" or "soften"; with the quality below which a label is touched, like "prune(below=0.2)", or with how
            many votes the suggested label must have for each of the given one's, like "relabel(lead=3)".
        decisions: what a person decided, by the number of the example: whether the suggestion is accepted, or what `read_decisions`
            gives. The accepted are changed by the policy whatever their quality, and nothing else is.

    Returns:
        The labels of all examples of the run, corrected.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
        ...     corrected = correct(run, "relabel")
        ...     before, after = run.dynamics.record.wrong, corrected.labels != run.dynamics.record.true
        >>> int(before.sum()), bool(after.sum() < 60)
        (287, True)
    """
    chosen_by, found = policies.get(policy), audited(found, "correct")
    if decisions is None:
        return _sparing(found, chosen_by)
    changing, instead = _accepted(found, decisions)
    corrected = _changed(found, chosen_by, changing, instead, "by hand")
    if (nothing := changing & ~corrected.changed).any():
        raise InputError(
            f"The decisions accept a suggestion for example {found.index[nothing][0]}, for which there is no label other than its own. "
            "Leave it out, or reject it."
        )
    return corrected


def _sparing(found: Audit, policy: Policy) -> Correction:
    """What a policy makes of the doubtful labels, but for those of a class none of which would be left."""
    changing, spared = found.is_issue & policy.touches(found.quality, found.lead), set[str]()
    places = first_positions(found.dynamics.record.classes)
    while (corrected := _changed(found, policy, changing, found.suggested, repr(policy))).emptied:
        spared |= set(corrected.emptied)  # another may go now, that was only left because of labels of this one
        changing &= ~np.isin(found.given, [places[name] for name in corrected.emptied])
    return replace(corrected, spared=tuple(name for name in places if name in spared))


def _changed(found: Audit, policy: Policy, changing: Flags, instead: Ints, decided_by: str) -> Correction:
    """All labels, some of which a policy decides on."""
    labels, share, kept = found.given.copy(), np.ones(len(found)), np.ones(len(found), dtype=bool)
    given, suggested, quality = found.given[changing], instead[changing], found.quality[changing]
    labels[changing], share[changing], kept[changing] = policy.decide(given, suggested, quality)
    classes = tuple(found.dynamics.record.classes)
    return Correction(found.index, tuple(found.ids), found.given, labels, share, kept, classes, decided_by)


def audited(found: Any, owner: str) -> Audit:
    """The audit, or that of a run."""
    if isinstance(found, Audit):
        return found
    if isinstance(found, str | os.PathLike | Dynamics):
        return audit(found)
    raise invalid_parameter("found", owner, "the audit of a run, a run or its folder", type(found).__name__)


def _accepted(found: Audit, decisions: Mapping[int, bool | Decision]) -> tuple[Flags, Ints]:
    """Which suggestions a person accepted, and the labels suggested to that person."""
    places = {number: place for place, number in enumerate(found.index.tolist())}
    accepted, suggested, classes = np.zeros(len(found), dtype=bool), found.suggested.copy(), found.dynamics.record.classes
    numbers = first_positions(classes)
    for number, decision in decisions.items():
        if number not in places:
            raise InputError(f"The decisions name example {number}, which the run does not have. Give the decisions made for this run.")
        if not isinstance(decision, bool | np.bool_ | Decision):
            raise invalid_parameter("decisions", "correct", "true or false for every example, or what read_decisions gives", decision)
        place = places[number]
        accepted[place] = bool(decision)
        if isinstance(decision, Decision):
            for what, seen, held in (("is", decision.id, found.ids[place]), ("has the label", decision.given, classes[found.given[place]])):
                if seen not in (None, held):
                    raise InputError(
                        f"By the decisions example {number} {what} {seen!r}, and in the run {held!r}. Give the decisions made for this run."
                    )
            if decision.suggested is not None:
                if decision.suggested not in numbers:
                    raise unknown("class", decision.suggested, classes)
                suggested[place] = numbers[decision.suggested]
    return accepted, suggested


def _check_rows(path: str | os.PathLike[str], index: Ints, share: Floats, moved: Flags) -> None:
    """Refuse rows of one example twice, and shares that are none."""
    numbers, times = np.unique(index, return_counts=True)
    if (times > 1).any():
        raise InputError(f"The file {str(path)!r} lists example {numbers[times > 1][0]} more than once. Keep one row for every example.")
    wrong = ~((share >= 0) & (share <= 1)) | (~moved & (share != 1))
    if wrong.any():
        raise InputError(
            f"The share of every example in {str(path)!r} must be from 0 to 1, and 1 where it has its given label or none. "
            f"Got {share[wrong][0]} for example {index[wrong][0]} instead."
        )


def _read_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = [{name: from_cell(text) if isinstance(text, str) else text for name, text in row.items()} for row in reader]
            columns = tuple(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"The file {str(path)!r} cannot be read ({error}). Give a file of corrected labels.") from None
    if columns != CORRECTION_COLUMNS or not rows:
        raise InputError(
            f"The file {str(path)!r} must have the columns {', '.join(CORRECTION_COLUMNS)} and a row for every example. "
            f"Got ({listed(map(repr, columns))})."
        )
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():  # a row that was cut off would leave its example out
            raise InputError(f"Line {number} of {str(path)!r} must have {len(CORRECTION_COLUMNS)} cells. Write the file again.")
    return rows
