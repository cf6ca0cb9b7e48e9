"""The audit of a run: the quality of each label, the doubtful labels, and suggestions for them.

Everything is read from the run folder; the training data are not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._evidence import SCORES, emphasis_of_margins, gather, judge_labels, score_function
from noisewise.dynamics import Dynamics, unlearned_classes
from noisewise.errors import invalid_parameter, listed
from noisewise.methods import relabels
from noisewise.runs import codes, names_of, numbers_of
from noisewise.spec import as_int, in_short
from noisewise.tables import ROWS, Block, rows_of, write_blocks

AUDIT_COLUMNS = (
    *("index", "id", "is_label_issue", "label_quality", "given_label", "predicted_label", "suggested_label", "suggestion_probability"),
    *("mean_margin", "final_margin", "first_fit", "forgetting", "mean_emphasis", "emphasis_history"),
)
_HISTORY_EPOCHS = 20
_WEAK = 0.8  # below this accuracy, relabelling did more harm than good on small tables (benchmarks/RESULTS.md)
_FAR_MORE = 2.0  # a good run contradicts about as many labels as may be wrong


@dataclass(frozen=True, repr=False, eq=False)
class Audit:
    """The doubtful labels of a run; all arrays are in the order of the record.

    Args:
        given: the label that each example was trained with.
        predicted: the class that the model predicts at the end of training; −1 for an example that was never seen.
        suggested: the class with the most votes of the epochs; the given label if no other class has more.
        suggestion_probability: its share of the weighted votes; the given label starts with two votes of weight 1.
        lead: the votes for the suggested label, less those two, divided by the votes for the given label; 0 if they are the same.
        quality: one minus the probability that the label is wrong. The lower, the more doubtful; NaN for an example never seen.
        is_issue: the labels that are probably wrong.
        score: the score that examples are ranked by. The lower, the more doubtful.
        order: the positions of all examples, the most doubtful first and those never seen last; ties are ranked by the combined score.
        mean_margin: the mean margin over the epochs that saw the example.
        final_margin: the margin at the end of training, without augmentation if the run has such passes.
        first_fit: the first epoch that predicted the given label; −1 if none.
        forgetting: how often the example was learned and then forgotten.
        mean_emphasis: the mean emphasis of the run's loss; NaN if the loss is not a function of the margin.
        seen: whether any epoch saw the example.
        interval: the range of several estimates of the number of wrong labels.
        dynamics: the dynamics of the run.
    """

    given: Ints
    predicted: Ints
    suggested: Ints
    suggestion_probability: Floats
    lead: Floats
    quality: Floats
    is_issue: Flags
    score: Floats
    order: Ints
    mean_margin: Floats
    final_margin: Floats
    first_fit: Ints
    forgetting: Ints
    mean_emphasis: Floats
    seen: Flags
    interval: tuple[float, float]
    dynamics: Dynamics

    def __len__(self) -> int:
        return len(self.given)

    def __repr__(self) -> str:
        low, high = self.interval
        caution = "" if self.caution is None else f". {self.caution}"
        return (
            f"Audit({str(self.dynamics.folder)!r}: {self.count:,} of {len(self):,} labels look doubtful; "
            f"between {low:,.0f} and {high:,.0f} may be wrong; {self.basis}{caution})"
        )

    @property
    def count(self) -> int:
        """How many labels are doubtful."""
        return int(np.count_nonzero(self.is_issue))

    @property
    def expected_precision(self) -> float:
        """The mean probability that a doubtful label is wrong; NaN if none is doubtful.

        It is usually too low for a good model, and too high for a weak one, whose own mistakes look like wrong labels.
        """
        return float(1 - self.quality[self.is_issue].mean()) if self.count else float("nan")

    @property
    def caution(self) -> str | None:
        """A warning that the run cannot judge its labels, or None.

        A model that learned little contradicts most labels, but after few epochs it has too few votes to make them doubtful. A model
        that did not learn a class contradicts all its labels. The mistakes of a weak model look like wrong labels.
        """
        contradicted = int(np.count_nonzero(self.seen & (self.predicted != self.given)))
        if contradicted > _FAR_MORE * max(1.0, self.interval[1]):
            return (
                f"At the end the run predicts another class for {contradicted:,} of {len(self):,} labels, far more than look wrong: it "
                "learned too little to distinguish wrong labels from its own mistakes. Train longer, or with another loss."
            )
        if self.unlearned:
            return (
                f"At the end the run hardly ever predicts {listed(map(repr, self.unlearned))}: it did not learn these classes, so their "
                "right labels look wrong too. Train longer, or with another loss, such as ce."
            )
        if self._is_weak:
            return (
                f"The model is weak ({self.basis}): many labels that look wrong may be right. Train longer, or with another model or loss."
            )
        return None

    @property
    def basis(self) -> str:
        """How good the model is, and whether its method trained on other targets than the given labels."""
        method = str(self.dynamics.record.settings.get("method", "plain"))
        note = f"; {in_short(method)} trained on other targets than the given labels" if method != "plain" and relabels(method) else ""
        return self._accuracy + note

    @property
    def _accuracy(self) -> str:
        """Its test accuracy, else its accuracy on held-out examples, else its agreement with the labels."""
        test, held_out = self.dynamics.test, self.dynamics.held_out
        if test:
            best = " of the best epoch" if len(test) > 1 else ""
            return f"test accuracy{best} {100 * max(test.values()):.1f} %"
        if held_out:
            best = " of the best epoch" if len(held_out) > 1 else ""
            return f"no test set, accuracy{best} on held-out examples with their given labels {100 * max(held_out.values()):.1f} %"
        return f"no test set, the model agrees with {100 * self.agreement:.1f} % of the labels it was trained on"

    @property
    def agreement(self) -> float:
        """The share of training labels that the model predicts at the end of training."""
        return int(np.count_nonzero(self.predicted == self.given)) / max(1, int(np.count_nonzero(self.seen)))

    @property
    def _is_weak(self) -> bool:
        if self.dynamics.best is not None:
            return self.dynamics.best < _WEAK
        right = 1 - self.count / len(self)  # assume the same share among the held-out labels
        return max(self.dynamics.held_out.values(), default=1.0) < _WEAK * right

    @cached_property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the run hardly ever predicts at the end (see `unlearned_classes`) and that have mostly doubtful labels."""
        classes = self.dynamics.record.classes
        given, doubted = (np.bincount(labels, minlength=len(classes)) for labels in (self.given, self.given[self.is_issue]))
        unlearned = unlearned_classes(self.given, self.predicted, len(classes))
        return tuple(classes[number] for number in unlearned if 2 * doubted[number] > given[number])

    @property
    def tested(self) -> bool:
        """Whether the run was tested. If not, the interval counts its own mistakes as wrong labels."""
        return self.dynamics.best is not None

    @property
    def best(self) -> Ints:
        """The best label for each example: the suggested one if the given one is doubtful."""
        return np.where(self.is_issue, self.suggested, self.given)

    @cached_property
    def matrix(self) -> Ints:
        """How many examples have each given label (row) and each best label (column)."""
        return pair_counts(self.given, self.best, len(self.dynamics.record.classes))

    @cached_property
    def index(self) -> Ints:
        """The index of each example in its source."""
        return numbers_of(self.dynamics.record)

    @cached_property
    def ids(self) -> list[str]:
        """The id of each example; its index if it has none."""
        return names_of(self.dynamics.record)

    def trajectories(self, indices: Any, *, moments: int | None = None) -> NDArray[np.float32]:
        """The margins of some examples in the epochs of training: (examples, epochs), NaN where they were not seen.

        Args:
            indices: their positions in the record, or a mask of all examples.
            moments: the maximum number of epochs, evenly spaced from the first to the last; by default all epochs.
        """
        positions, record = self._positions(indices), self.dynamics.record
        return np.stack([record.margins(epoch)[positions].astype(np.float32) for epoch in self._epochs(moments)], 1)

    def _positions(self, indices: Any) -> Ints:
        array = np.asarray(indices)
        if array.dtype == bool and array.shape == (len(self),):
            return np.flatnonzero(array)
        if array.ndim != 1 or (len(array) and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= len(self))):
            requirement = f"positions from 0 to {len(self) - 1}, or a mask of {len(self)} examples"
            raise invalid_parameter("indices", "trajectories", requirement, indices)
        return array.astype(np.int64)

    def _epochs(self, number: int | None) -> list[int]:
        epochs = np.asarray(self.dynamics.record.epochs())
        return epochs[np.unique(np.linspace(0, len(epochs) - 1, number or len(epochs)).round().astype(int))].tolist()  # type: ignore[no-any-return]

    def table(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The examples as rows, the most doubtful first, with cleanlab's columns and more.

        Args:
            limit: the number of rows; by default all.
        """
        number = None if limit is None else as_int("limit", "table", limit, 0)
        return list(rows_of(self._blocks(self.order[:number]), AUDIT_COLUMNS))

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write all examples to a file, the most doubtful first.

        In a CSV file, text that a spreadsheet would run as a formula (it starts with =, +, - or @ and is not a number) gets an apostrophe
        in front. JSON and Parquet files contain the text unchanged.

        Args:
            path: ends in .csv, .json or .parquet.

        Returns:
            The path.
        """
        return write_blocks(path, self._blocks(self.order), AUDIT_COLUMNS)

    def _blocks(self, positions: Ints) -> Iterator[Block]:
        names = (*self.dynamics.record.classes, None)  # the last for a prediction of −1
        for start in range(0, len(positions), ROWS):
            part = positions[start : start + ROWS]
            yield (
                self.index[part].tolist(),
                [self.ids[position] for position in part],
                self.is_issue[part].tolist(),
                self.quality[part].tolist(),
                *([names[label] for label in labels[part]] for labels in (self.given, self.predicted, self.suggested)),
                self.suggestion_probability[part].tolist(),
                self.mean_margin[part].tolist(),
                self.final_margin[part].tolist(),
                self.first_fit[part].tolist(),
                self.forgetting[part].tolist(),
                self.mean_emphasis[part].tolist(),
                self._emphasis_histories(part),
            )

    def _emphasis_histories(self, positions: Ints) -> list[list[float]]:
        """The emphasis of some examples in a few epochs, evenly spaced; empty if it is not a function of the margin."""
        record, histories = self.dynamics.record, []
        for epoch in self._epochs(_HISTORY_EPOCHS):
            pulls = emphasis_of_margins(self.dynamics, epoch)
            if pulls is None:
                return [[] for _ in positions]
            seen = record.predictions(epoch)[positions] >= 0
            histories.append(np.where(seen, pulls[codes(record.margins(epoch)[positions])], np.nan))
        return np.stack(histories, 1).round(6).tolist()  # type: ignore[no-any-return]


def pair_counts(rows: Ints, columns: Ints, number: int) -> Ints:
    """Count pairs of row and column in a square matrix of this size."""
    return np.bincount(rows * number + columns, minlength=number**2).reshape(number, number)


def audit(run: str | os.PathLike[str] | Dynamics, *, score: str = "combined") -> Audit:
    """Find the labels of a run that look wrong, from its record.

    Args:
        run: a run, its folder or its dynamics.
        score: ranks the labels: "combined", "area_under_margin", "final_margin", "emphasis", "forgetting" or "mixture". It decides the
            order of the qualities; the number of wrong labels and the suggestions always come from the votes of the epochs.

    Returns:
        The audit.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
        ...     result = audit(run)
        ...     wrong = run.dynamics.record.wrong
        >>> int(wrong.sum()), bool(wrong[result.order[:200]].mean() > 0.95)
        (287, True)
    """
    rank = score_function(score)
    dynamics = _dynamics(run)
    record = dynamics.record
    evidence = gather(dynamics)
    seen, against = np.isfinite(evidence.belief), evidence.other_share > evidence.given_share
    belief, other = SCORES["combined"](dynamics, evidence), evidence.other.astype(np.int64)
    judgement = judge_labels(belief, against, 0.0 if dynamics.best is None else 1 - dynamics.best)
    values = np.where(seen, rank(dynamics, evidence), np.nan)
    order = np.lexsort((belief, values))
    quality = np.empty(len(order))
    quality[order] = np.sort(judgement.quality)
    return Audit(
        given=np.array(record.given),
        predicted=evidence.predicted.astype(np.int64),
        suggested=np.where(against, other, record.given),
        suggestion_probability=np.where(against, evidence.other_share, evidence.given_share),
        lead=np.where(against, evidence.lead, 0.0),
        quality=quality,
        is_issue=against & (quality < 0.5),
        score=values,
        order=order,
        mean_margin=dynamics.area_under_margin,
        final_margin=evidence.final.astype(np.float64),
        first_fit=dynamics.first_fit,
        forgetting=dynamics.forgetting,
        mean_emphasis=evidence.emphasis,
        seen=seen,
        interval=judgement.interval,
        dynamics=dynamics,
    )


def _dynamics(run: str | os.PathLike[str] | Dynamics) -> Dynamics:
    if isinstance(run, Dynamics):
        return run
    if not isinstance(run, str | os.PathLike):
        raise invalid_parameter("run", "audit", "a run, its folder or its dynamics", type(run).__name__)
    return Dynamics(os.fspath(run))  # a Run is a path too
