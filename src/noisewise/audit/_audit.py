"""The audit of a run: the quality of each label, the doubtful labels, and suggestions for them.

Everything is read from the run folder. The training data are needed only to add evidence from their features.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._evidence import TRUST, emphasis_of_margins, gather, judge_labels, judged_by, score_function
from noisewise.audit._features import evidence_from_features
from noisewise.audit._issues import LIST_COLUMNS, LabelIssues
from noisewise.audit._noise_model import NoiseModel, fit_noise_model
from noisewise.dynamics import Dynamics, Record, unlearned_classes
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.methods import relabels
from noisewise.runs import RunFolder, codes, names_of, numbers_of
from noisewise.spec import in_short
from noisewise.tables import Block

EVIDENCE = "evidence.npy"
AUDIT_COLUMNS = (
    *(*LIST_COLUMNS, "suggested_label", "suggestion_probability"),
    *("mean_margin", "final_margin", "first_fit", "forgetting", "mean_emphasis", "emphasis_history"),
)
_HISTORY_EPOCHS = 20
_WEAK = 0.8  # below this accuracy, relabelling did more harm than good on small tables (benchmarks/RESULTS.md)
_MEMORISED = 0.1  # a run that agrees with more than 90 % of the labels, and is worse by this much on others
_FAR_MORE = 2.0  # a good run contradicts about as many labels as may be wrong


@dataclass(frozen=True, repr=False, eq=False)
class Audit(LabelIssues):
    """The doubtful labels of a run, with what its record says; all arrays are in the order of the record.

    `given`, `predicted`, `suggested`, `quality` and `is_issue` are shorter names of `given_label` and so on.

    Args:
        lead: the votes for the suggested label, less two, divided by the votes for the given label; 0 if they are the same. With evidence
            from features, their odds.
        score: the score that examples are ranked by. The lower, the more doubtful.
        ranking: the positions of all examples, the most doubtful first and those never seen last; ties are ranked by the combined score.
        mean_margin: the mean margin over the epochs that saw the example.
        final_margin: the margin at the end of training, without augmentation if the run has such passes.
        first_fit: the first epoch that predicted the given label; −1 if none.
        forgetting: how often the example was learned and then forgotten.
        mean_emphasis: the mean emphasis of the run's loss; NaN if the loss is not a function of the margin.
        seen: whether any epoch saw the example.
        votes: the median of the votes on an example, without the two for the given label.
        dynamics: the dynamics of the run.
        model: the noise model of evidence from features; None if the record alone judges the labels.
    """

    lead: Floats
    score: Floats
    ranking: Ints
    mean_margin: Floats
    final_margin: Floats
    first_fit: Ints
    forgetting: Ints
    mean_emphasis: Floats
    seen: Flags
    votes: float
    dynamics: Dynamics
    model: NoiseModel | None

    @property
    def given(self) -> Ints:
        """Short for `given_label`."""
        return self.given_label

    @property
    def predicted(self) -> Ints:
        """Short for `predicted_label`."""
        return self.predicted_label

    @property
    def suggested(self) -> Ints:
        """Short for `suggested_label`."""
        return self.suggested_label

    @property
    def quality(self) -> Floats:
        """Short for `label_quality`."""
        return self.label_quality

    @property
    def is_issue(self) -> Flags:
        """Short for `is_label_issue`."""
        return self.is_label_issue

    def __repr__(self) -> str:
        low, high = self.interval or (0.0, 0.0)
        caution = "" if self.caution is None else f". {self.caution}"
        return (
            f"Audit({str(self.dynamics.folder)!r}: {self.count:,} of {len(self):,} labels look doubtful; "
            f"between {low:,.0f} and {high:,.0f} may be wrong; {self.basis}{caution})"
        )

    @property
    def caution(self) -> str | None:
        """A warning that the run cannot judge its labels, or None.

        A model that learned little contradicts most labels, but after few epochs it has too few votes to make them doubtful. A model
        that did not learn a class contradicts all its labels. The mistakes of a weak model look like wrong labels. A model that agrees with
        all labels from the start has memorised them, and none of its epochs says which are wrong.
        """
        if self.model is not None:
            return super().caution
        if self.memorised:
            return (
                f"The run cannot judge its labels: its epochs agree with almost all of them, as after memorising ({self.basis}). "
                "Judge them with `find_label_issues` and probabilities of models that did not see the label, or stop earlier."
            )
        contradicted = int(np.count_nonzero(self.seen & (self.predicted != self.given)))
        if contradicted > _FAR_MORE * max(1.0, self.interval[1] if self.interval else 0.0):
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
    def memorised(self) -> bool:
        """Whether all epochs together cannot outvote a label, and nothing shows that the labels are right all the same."""
        good = self.dynamics.best is not None and self.dynamics.best > self.agreement - _MEMORISED
        return self.votes < TRUST and self.agreement > 1 - _MEMORISED and not good

    @property
    def tested(self) -> bool:
        """Whether the run was tested. If not, the interval counts its own mistakes as wrong labels."""
        return self.dynamics.best is not None

    @property
    def order(self) -> Ints:
        """The positions of all examples, the most doubtful first and those never seen last."""
        return self.ranking

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

    def _names(self) -> Sequence[str]:
        return AUDIT_COLUMNS

    def _block(self, part: Ints) -> Block:
        return [
            *super()._block(part),
            [self.classes[label] for label in self.suggested_label[part]],
            self.suggestion_probability[part].tolist(),
            self.mean_margin[part].tolist(),
            self.final_margin[part].tolist(),
            self.first_fit[part].tolist(),
            self.forgetting[part].tolist(),
            self.mean_emphasis[part].tolist(),
            self._emphasis_histories(part),
        ]

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


def audit_run(run: str | os.PathLike[str] | Dynamics, *, score: str = "combined", features: Any = None) -> Audit:
    """Find the labels of a run that look wrong, from its record, or from the evidence that `add_evidence` put beside it.

    Args:
        run: a run, its folder or its dynamics.
        score: ranks the labels: "combined", "area_under_margin", "final_margin", "emphasis", "forgetting" or "mixture". It decides the
            order of the qualities; the number of wrong labels and the suggestions always come from the votes of the epochs. With evidence
            from features, "combined" is the chance that it gives; the others are refused.
        features: one row of numbers for each example of the record. If given, `add_evidence` is called with them first. Recommended for
            tables and embeddings.

    Returns:
        The audit.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
        ...     result = audit_run(run)
        ...     wrong = run.dynamics.record.wrong
        >>> int(wrong.sum()), bool(wrong[result.order[:200]].mean() > 0.95)
        (287, True)
    """
    rank = score_function(score)
    dynamics = dynamics_of(run)
    if features is not None:
        add_evidence(dynamics, features)
    record = dynamics.record
    evidence, tables = gather(dynamics), stored_evidence(record)
    if tables is not None and score != "combined":
        raise invalid_parameter("score", "audit", "combined for a run with evidence from features", score)
    seen, against = np.isfinite(evidence.belief), evidence.other_share > evidence.given_share
    belief, other = judged_by(evidence), evidence.other.astype(np.int64)
    judgement = judge_labels(belief, against, 0.0 if dynamics.best is None else 1 - dynamics.best)
    values = np.where(seen, rank(dynamics, evidence), np.nan)
    order = np.lexsort((belief, values))
    quality = np.empty(len(order))
    quality[order] = np.sort(judgement.quality)
    by_record = Audit(
        given_label=np.array(record.given),
        predicted_label=evidence.predicted.astype(np.int64),
        suggested_label=np.where(against, other, record.given),
        suggestion_probability=np.where(against, evidence.other_share, evidence.given_share),
        lead=np.where(against, evidence.lead, 0.0),
        label_quality=quality,
        is_label_issue=against & (quality < 0.5),
        score=values,
        ranking=order,
        interval=judgement.interval,
        classes=record.classes,
        example_ids=None,
        judged=True,
        mean_margin=dynamics.area_under_margin,
        final_margin=evidence.final.astype(np.float64),
        first_fit=dynamics.first_fit,
        forgetting=dynamics.forgetting,
        mean_emphasis=evidence.emphasis,
        seen=seen,
        votes=float(np.nanmedian(evidence.votes)) if seen.any() else 0.0,
        dynamics=dynamics,
        model=None,
    )
    return by_record if tables is None else replace(by_record, **_by_evidence(tables, by_record.given_label))


def _by_evidence(tables: Floats, given: Ints) -> dict[str, Any]:
    """What evidence from features says of the labels of a run."""
    model = fit_noise_model(list(tables), given)
    quality = 1 - model.chance
    with np.errstate(divide="ignore"):
        odds = np.where(model.best != given, model.best_chance / np.maximum(quality, 1e-12), 0.0)
    return {
        "given_label": given,
        "predicted_label": model.predicted,
        "suggested_label": model.best,
        "suggestion_probability": model.best_chance,
        "lead": odds,
        "label_quality": quality,
        "is_label_issue": model.doubtful,
        "score": quality,
        "ranking": np.argsort(quality, kind="stable"),
        "interval": model.counts,
        "judged": model.judged,
        "model": model,
    }


def add_evidence(run: str | os.PathLike[str] | Dynamics, features: Any) -> None:
    """Put evidence from features beside the record of a run, so that `audit`, `correct` and reports judge its labels by that.

    On tables it is better than the record of a network (docs: "How well does it work?").

    Args:
        run: a run, its folder or its dynamics.
        features: one row of numbers for each example of the record.
    """
    record = dynamics_of(run).record
    if len(features) != len(record.given):
        raise invalid_parameter("features", "add_evidence", f"one row for each of the {len(record.given)} labels", f"{len(features)} rows")
    keep_evidence(run, evidence_from_features(features, np.array(record.given), num_classes=len(record.classes)))


def keep_evidence(run: str | os.PathLike[str] | Dynamics, tables: Sequence[Floats]) -> None:
    """Put evidence beside the record of a run that was computed elsewhere; see `add_evidence`.

    Args:
        run: a run, its folder or its dynamics.
        tables: class probabilities (N, classes) by one or more models that did not see the labels.
    """
    RunFolder(dynamics_of(run).record.folder).write_array(EVIDENCE, np.stack(tables).astype(np.float32))


def stored_evidence(record: Record) -> Floats | None:
    """The evidence from features of a run, or None."""
    path = Path(record.folder) / EVIDENCE
    if not path.exists():
        return None
    tables: Floats = np.load(path, allow_pickle=False).astype(np.float64)
    if tables.ndim != 3 or tables.shape[1:] != (len(record.given), len(record.classes)):
        raise InputError(f"The file {str(path)!r} is not of this run: it has the shape {tables.shape}. Delete it.")
    return tables


def dynamics_of(run: str | os.PathLike[str] | Dynamics) -> Dynamics:
    """The dynamics of a run that is given as itself, as its folder or as its dynamics."""
    if isinstance(run, Dynamics):
        return run
    if not isinstance(run, str | os.PathLike):
        raise invalid_parameter("run", "audit", "a run, its folder or its dynamics", type(run).__name__)
    return Dynamics(os.fspath(run))  # a Run is a path too
