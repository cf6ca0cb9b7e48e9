"""Find out whether a correction helps: compare models before and after it on held-out examples, whose labels may be wrong too."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisewise.arrays import Ints
from noisewise.audit import add_evidence, audit_run
from noisewise.correct._correction import Correction, correct
from noisewise.correct._policies import policies
from noisewise.correct._retrain import CHANGED_SETTINGS, check_model, retrain, same_length, settings_of
from noisewise.data import Dataset, split
from noisewise.dynamics import Dynamics
from noisewise.extensions import extension
from noisewise.runs import Record, examples_of, held_out_of, numbers_of, read_origin, rows_of
from noisewise.spec import name_of

_SHARE = 0.2  # of the examples, held out if the run held out none


@dataclass(frozen=True)
class HeldOut:
    """How models before and after a correction agree with the given labels of examples that neither was trained on.

    Args:
        before: the share of these labels that the model before the correction predicts.
        after: the same for the model after it.
        examples: the number of examples.
        differing: on how many of them exactly one of the two models predicts the given label.
    """

    before: float
    after: float
    examples: int
    differing: int

    @property
    def helped(self) -> bool:
        """Whether the model after the correction is better, clearly or not. If both are equal, it is not."""
        return self.after > self.before

    @property
    def is_clear(self) -> bool:
        """Whether the difference is larger than it would be in 19 of 20 cases if both models were equally good (McNemar's test)."""
        difference = abs(self.after - self.before) * self.examples
        return difference - 1 > 1.96 * math.sqrt(self.differing)

    def __str__(self) -> str:
        shares = f"{100 * self.before:.1f} % before, {100 * self.after:.1f} % after correction"
        return f"agreement with {self.examples:,} held-out labels, which may be wrong too: {shares}"


def check_correction(
    run: str | os.PathLike[str],
    correction: Correction,
    again: Any,
    *,
    data: Any = None,
    watch: Callable[..., None] | None = None,
) -> HeldOut:
    """Compare a run with the one retrained on its corrected labels, without clean labels.

    Formula:
        P(f(x) = y') = (1 − η) P(f(x) = y) + η / (C − 1) · P(f(x) ≠ y)

    Both models predict examples that neither was trained on, and are compared by their agreement with the given labels y'. With symmetric
    noise of rate η this agreement grows with the accuracy on the true labels y, as long as η < 1 − 1 / C. More generally, if the noise
    depends on the class only and most labels of every class are right, no classifier agrees more with the given labels than the one that is
    best on the true labels. Noise that depends on the example can break this: a model that learned the noise itself then looks good.

    If the run held out a validation share, that is used; a model that was chosen on it (``keep="best"``, ``patience``) has a small
    advantage. Otherwise all of it is done once more with a fifth of the examples held out: a model is trained on the rest, its labels are
    corrected by the same policy, or as decided by hand, and a second model is trained on them. So no correction depends on a held-out
    label, at the price of two more trainings.

    Args:
        run: the run whose labels were corrected, or its folder.
        correction: the corrected labels.
        again: the run that `retrain` returned.
        data: the training data; by default the source that the run names.
        watch: called after each step of these trainings, as by `fit`.

    Reference:
        Chen et al., Robustness of accuracy metric and its inspirations in learning with noisy labels, AAAI 2021.
    """
    record = Dynamics(os.fspath(run)).record
    data = getattr(run, "data", None) if data is None else data
    if record.settings.get("validation") and read_origin(Path(record.folder)) is None:
        held = held_out_of(record, data)
        if not held.inputs.is_meta:
            open_run = extension("run")
            return _compared(open_run(os.fspath(run)), open_run(os.fspath(again)), held)
    check_model(record, {})
    held, rest = split(examples_of(record, data), _SHARE, seed=int(record.settings.get("seed", 0)))
    with tempfile.TemporaryDirectory(prefix="noisewise-check-") as folder:
        return _compared(*_repeated(record, correction, rest, held, Path(folder), watch), held)


def _compared(run: Any, again: Any, held: Dataset) -> HeldOut:
    if held.inputs.is_meta:  # images that are read as they are needed: both runs were tested on them
        accuracies = run.dynamics.final, again.dynamics.final
        odds = accuracies[0] + accuracies[1] - 2 * accuracies[0] * accuracies[1]  # as if the mistakes of the models were independent
        return HeldOut(*accuracies, len(held), round(odds * len(held)))
    before, after = ((each.predict(held.inputs).argmax(1).cpu() == held.labels.cpu()).numpy() for each in (run, again))
    return HeldOut(float(before.mean()), float(after.mean()), len(held), int((before != after).sum()))


def _repeated(record: Record, correction: Correction, rest: Dataset, held: Dataset, folder: Path, watch: Any) -> tuple[Any, Any]:
    """Runs before and after, trained without the held-out examples."""
    settings = {**settings_of(record), **CHANGED_SETTINGS, **same_length(record), "evaluate_every": 10**6, "checkpoint_every": 10**6}
    model, _ = settings.pop("model"), settings.pop("data")
    held = replace(held, true_labels=None)  # a test set is judged by its true labels if they are known
    first = extension("fit")(model, rest, test=held, folder=folder / "before", watch=watch, **settings)
    if audit_run(record.folder).model is not None:
        add_evidence(first, rest.inputs.flatten(1).cpu().numpy())  # so that its labels are judged as those of the run were
    corrected = _same_correction(first, correction)
    if not corrected.changed.any():
        return first, first
    return first, retrain(first, corrected, data=rest, test=held, folder=folder / "after", watch=watch)


def _same_correction(run: Any, correction: Correction) -> Correction:
    """A policy is applied to the audit of the run; decisions of a person are taken over."""
    if name_of(correction.policy) in policies:
        return correct(audit_run(run), correction.policy)
    rows = rows_of(numbers_of(run.dynamics.record), correction.index)
    assert rows is not None
    return _take(correction, rows)


def _take(correction: Correction, rows: Ints) -> Correction:
    parts = {name: getattr(correction, name)[rows] for name in ("index", "given", "labels", "share", "kept")}
    return replace(correction, ids=tuple(correction.ids[row] for row in rows.tolist()), **parts)
