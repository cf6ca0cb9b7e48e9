"""Corrected labels: a row for each example with its old and its new label, so that every change can be seen and undone."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from noisewise.arrays import Flags, Floats, Ints, first_positions
from noisewise.audit import Audit, audit_run
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
    """The labels of a run after correction; all arrays are in the order of its record.

    Args:
        index: the index of each example in its source.
        ids: the id of each example.
        given: the label that it was trained with.
        labels: the new label.
        share: the weight of the new label; the rest stays with the given one. 1 unless the label was softened.
        kept: whether the example is kept.
        classes: the names of the classes.
        policy: a policy's spec, "by hand" or "from a file".
        spared: the classes whose labels were not changed, because none would have been left.
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
        emptied = f"; no labels are left of {listed(map(repr, self.emptied))}" if self.emptied else ""
        spared = f"; labels of {listed(map(repr, self.spared))} not changed, because none would be left" if self.spared else ""
        return f"Correction({len(self):,} labels: {changes or 'none changed'}{emptied}{spared})"

    @property
    def changed(self) -> Flags:
        """Which labels differ from the given ones."""
        moved: Flags = self.labels != self.given
        return moved | ~self.kept

    @property
    def emptied(self) -> tuple[str, ...]:
        """The classes that had labels and have none left."""
        left = set(self.labels[self.kept].tolist())
        return tuple(self.classes[label] for label in np.unique(self.given).tolist() if label not in left)

    @property
    def changes(self) -> dict[str, int]:
        """How many labels were changed, by the kind of change: "prune", "relabel" or "soften"."""
        kinds, numbers = np.unique(self._change()[self.changed], return_counts=True)
        return dict(zip(kinds.tolist(), numbers.tolist(), strict=True))

    def probabilities(self) -> Floats:
        """The labels as soft targets of a loss, (kept examples, classes).

        Losses accept them in place of labels, except those that normalise over the batch.

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
        """All examples in order; the label of an example that was left out is empty."""
        return rows_of(self._blocks(), CORRECTION_COLUMNS)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the labels to a CSV file that `read` reads back.

        Text that a spreadsheet would run as a formula (it starts with =, +, - or @ and is not a number) gets an apostrophe in front, which
        `read` removes.

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
            given, now = ([names[label] for label in numbers[part]] for numbers in (self.given, labels))
            yield self.index[part].tolist(), self.ids[part], given, now, self.share[part].tolist(), changes[part].tolist()

    @classmethod
    def read(cls, path: str | os.PathLike[str], classes: Collection[str]) -> Correction:
        """Read what `write` wrote.

        Args:
            path: the path of the file.
            classes: the names of the classes, in order.
        """
        rows = _read_rows(Path(path))
        numbers = first_positions(classes)
        try:
            given = np.array([numbers[row["given_label"]] for row in rows])
            labels = np.array([numbers[row["label"] or row["given_label"]] for row in rows])
            index = np.array([int(row["index"]) for row in rows], dtype=np.int64)
            share = np.array([float(row["share"]) for row in rows])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"The file {str(path)!r} does not contain corrected labels of these classes: {error}. Write it again."
            ) from None
        _check_rows(path, index, share, labels != given)
        kept = np.array([bool(row["label"]) for row in rows])
        return cls(index, tuple(row["id"] for row in rows), given, labels, share, kept, tuple(classes), "from a file")

    def check_one_label_each(self) -> None:
        """Check that a run can be trained on the labels: no softened labels, and at least one example."""
        if (self.share < 1).any():
            raise InputError(
                f"A run needs one label per example, but {int((self.share < 1).sum())} were softened. "
                "Relabel or prune them to train again, or give probabilities() to a loss in your own training loop."
            )
        if not self.kept.any():
            raise InputError("No example would be left. Correct fewer labels, for example with prune(below=0.2).")

    def apply(self, examples: Dataset) -> Dataset:
        """The examples of the run, in the order of its record, with the corrected labels and without those left out."""
        self.check_one_label_each()
        if not np.array_equal(examples.labels.cpu().numpy(), self.given):
            raise InputError("The labels of the examples are not those that were corrected. Give the training data of the run.")
        corrected = replace(examples, labels=torch.from_numpy(self.labels.copy()).to(examples.labels.device))
        return replace(corrected.take(torch.from_numpy(self.kept)), name=f"{examples.name} corrected")

    def _change(self) -> Any:
        moved = self.labels != self.given
        return np.select([~self.kept, moved & (self.share < 1), moved], ["prune", "soften", "relabel"], "")


def correct(
    audit_or_run: Audit | Dynamics | str | os.PathLike[str],
    policy: str | Policy = "relabel",
    *,
    decisions: Mapping[int, bool | Decision] | None = None,
) -> Correction:
    """Correct the doubtful labels of an audit.

    If a policy would leave no label of a class, the labels of that class are not changed: the run has probably not learned the class.

    Args:
        audit_or_run: the audit; or a run, its folder or its dynamics, which is audited first.
        policy: "relabel", "prune" or "soften". ``prune(below=0.2)`` changes labels of lower quality only; ``relabel(lead=3)`` needs three
            votes for the suggested label for each vote for the given one.
        decisions: the decisions of a person by the index of the example, as `read_decisions` returns them; true accepts the suggestion
            of the audit, and false keeps the given label. The policy is applied to exactly the labels that the person changed, whatever
            their quality, and examples that the person dropped are left out.

    Returns:
        The corrected labels of all examples of the run.

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
    rule, result = policies.get(policy), audited(audit_or_run, "correct")
    if decisions is None:
        return _by_policy(result, rule)
    decided = _apply_decisions(result, decisions)
    corrected = _change(result, rule, decided.changing, decided.labels, "by hand")
    if (unchanged := decided.changing & ~corrected.changed).any():
        raise InputError(
            f"The decisions accept a suggestion for example {result.index[unchanged][0]}, but the suggested label is the given one. "
            "Leave it out, or keep the given label."
        )
    return replace(corrected, kept=corrected.kept & ~decided.dropped)


def _by_policy(result: Audit, policy: Policy) -> Correction:
    """Change the doubtful labels by a policy, except for classes that would lose all their labels."""
    changing, spared = result.is_issue & policy.touches(result.quality, result.lead), set[str]()
    numbers = first_positions(result.dynamics.record.classes)
    while (corrected := _change(result, policy, changing, result.suggested, repr(policy))).emptied:
        spared |= set(corrected.emptied)  # sparing a class can empty another one that received its labels
        changing &= ~np.isin(result.given, [numbers[name] for name in corrected.emptied])
    return replace(corrected, spared=tuple(name for name in numbers if name in spared))


def _change(result: Audit, policy: Policy, changing: Flags, suggested: Ints, decided_by: str) -> Correction:
    """Apply a policy to some labels."""
    labels, share, kept = result.given.copy(), np.ones(len(result)), np.ones(len(result), dtype=bool)
    labels[changing], share[changing], kept[changing] = policy.decide(result.given[changing], suggested[changing], result.quality[changing])
    classes = tuple(result.dynamics.record.classes)
    return Correction(result.index, tuple(result.ids), result.given, labels, share, kept, classes, decided_by)


def audited(audit_or_run: Any, owner: str) -> Audit:
    """The audit itself, or the audit of a run."""
    if isinstance(audit_or_run, Audit):
        return audit_or_run
    if isinstance(audit_or_run, str | os.PathLike | Dynamics):
        return audit_run(audit_or_run)
    raise invalid_parameter("audit_or_run", owner, "the audit of a run, a run or its folder", type(audit_or_run).__name__)


class _Decided(NamedTuple):
    """The decisions of a person in the order of the record: which labels change, to which ones, and which examples are dropped."""

    changing: Flags
    labels: Ints
    dropped: Flags


def _apply_decisions(result: Audit, decisions: Mapping[int, bool | Decision]) -> _Decided:
    """Check the decisions of a person, and sort them by what they change."""
    positions = {index: position for position, index in enumerate(result.index.tolist())}
    classes = result.dynamics.record.classes
    numbers, decided = first_positions(classes), _Decided(np.zeros(len(result), bool), result.suggested.copy(), np.zeros(len(result), bool))
    for index, decision in decisions.items():
        if index not in positions:
            raise InputError(f"The decisions name example {index}, which the run does not have. Give the decisions made for this run.")
        if isinstance(decision, bool | np.bool_):
            decision = Decision("relabel" if decision else "keep")
        if not isinstance(decision, Decision):
            raise invalid_parameter("decisions", "correct", "booleans by index, or the result of read_decisions", decision)
        position = positions[index]
        _check_same_example(result, position, decision)
        decided.dropped[position] = decision.action == "drop"
        if decision.action == "relabel" and decision.label is not None:
            if decision.label not in numbers:
                raise unknown("class", decision.label, classes)
            decided.labels[position] = numbers[decision.label]
            decided.changing[position] = decided.labels[position] != result.given[position]
        else:
            decided.changing[position] = decision.action == "relabel"
    return decided


def _check_same_example(result: Audit, position: int, decision: Decision) -> None:
    """Check that a decision was made on this example with this label."""
    label = result.dynamics.record.classes[result.given[position]]
    for name, seen, actual in (("id", decision.id, result.ids[position]), ("given_label", decision.given, label)):
        if seen not in (None, actual):
            raise InputError(
                f"The {name} of example {result.index[position]} is {seen!r} in the decisions, but {actual!r} in the run. "
                "Give the decisions made for this run."
            )


def _check_rows(path: str | os.PathLike[str], index: Ints, share: Floats, moved: Flags) -> None:
    """Check that each example has one row, and that shares are valid."""
    numbers, times = np.unique(index, return_counts=True)
    if (times > 1).any():
        raise InputError(f"The file {str(path)!r} lists example {numbers[times > 1][0]} more than once. Keep one row for each example.")
    wrong = ~((share >= 0) & (share <= 1)) | (~moved & (share != 1))
    if wrong.any():
        raise InputError(
            f"The share of every example in {str(path)!r} must be from 0 to 1, and 1 if its label is the given one or empty. "
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
            f"The file {str(path)!r} must have the columns {', '.join(CORRECTION_COLUMNS)} and a row for each example. "
            f"Got ({listed(map(repr, columns))})."
        )
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():  # a truncated row would leave its example out
            raise InputError(f"Line {number} of {str(path)!r} must have {len(CORRECTION_COLUMNS)} cells. Write the file again.")
    return rows
