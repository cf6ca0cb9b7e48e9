"""The papers' quantities, read off a run folder: accuracies, emphasis, margins and their histories.

A curve is a dictionary from epoch to number. What a run does not hold is an empty curve or None, never a guess; the one guess,
`Dynamics.estimate`, says that it is one. This module must not know how runs are trained or shown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch

from noisewise import curve
from noisewise.arrays import NO_CLASS, Flags, Floats, Ints
from noisewise.curriculum import Scheduled, advance
from noisewise.data import number_of_batches
from noisewise.dynamics._estimate import Estimate, split_estimate
from noisewise.dynamics._unlearned import emphasis_among, unlearned_classes
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import MarginLoss, batch_normalised, get
from noisewise.runs import LARGEST, MARGINS, Halves, Record, codes

Curve = dict[int, float]

# How often each of them occurs gives every histogram and every mean, exactly.
_NUMBERS: Flags = ~np.isnan(MARGINS)
_MARGINS: Floats = MARGINS[_NUMBERS]


@dataclass(frozen=True)
class Histograms:
    """How margins are distributed, epoch by epoch.

    Args:
        edges: of the bins, one more than there are bins.
        epochs: the epoch of every row of counts.
        counts: by group, "clean" and "noisy" (or "all" where the truth is not known): int64 (epochs, bins).
    """

    edges: Floats
    epochs: tuple[int, ...]
    counts: dict[str, Ints]


class _Tally(NamedTuple):
    """How many of the examples seen were predicted right."""

    right: int
    seen: int


class _History(NamedTuple):
    forgetting: Ints
    first_fit: Ints
    area_under_margin: Floats


@dataclass(frozen=True)
class Dynamics:
    """What happened during a run.

    Args:
        folder: of the run.

    Nothing is read before it is asked for, and nothing twice. Accuracies are shares, from 0 to 1, of the examples seen.
    """

    folder: str | PathLike[str]

    def __post_init__(self) -> None:
        _ = self.record  # a folder that holds no run is refused here

    @cached_property
    def record(self) -> Record:
        """The margins and predictions everything is read off."""
        return Record(self.folder)

    @property
    def test(self) -> Curve:
        """Test accuracy, at evaluations."""
        return self._metric("test_accuracy")

    @property
    def held_out(self) -> Curve:
        """Accuracy on the held-out share of the training set, noisy labels and all, at evaluations."""
        return self._metric("validation_accuracy")

    @property
    def balanced(self) -> Curve:
        """Balanced test accuracy, the mean of the accuracies on every class that has test examples, at evaluations."""
        return self._metric("test_balanced_accuracy")

    @property
    def held_out_balanced(self) -> Curve:
        """Balanced accuracy on the held-out share of the training set, by the given labels, at evaluations."""
        return self._metric("validation_balanced_accuracy")

    @property
    def best(self) -> float | None:
        """The best test accuracy of the run: what an oracle would have stopped at."""
        return max(self.test.values(), default=None)

    @property
    def best_epoch(self) -> int | None:
        """The first epoch of the best test accuracy."""
        test = self.test
        return max(test, key=lambda epoch: test[epoch], default=None)

    @property
    def final(self) -> float | None:
        """The last test accuracy; of an unfinished run, the last so far."""
        return _last(self.test)

    @property
    def kept(self) -> float | None:
        """The test accuracy of the model that the run keeps, where that is the best on its validation share."""
        return self.test.get(self.record.status.get("kept", 0))

    @property
    def accuracy(self) -> float | None:
        """The test accuracy of the run's model: of the one it keeps, else of the last."""
        return self.final if self.kept is None else self.kept

    def of_the_model(self, curve: Curve) -> float | None:
        """What a curve says of the run's model: of the one it keeps, else of the last.

        Args:
            curve: one of this run's, such as `noisy_subset`.
        """
        return curve.get(self.record.status.get("kept", 0), _last(curve))

    def class_accuracies(self, of: str = "test") -> dict[str, float] | None:
        """The accuracy of the run's model on every class that has examples, by name; None where the run does not have it.

        Args:
            of: "test", or "validation" for the held-out share of the training set, by the given labels.
        """
        evaluated = self.test if of == "test" else self.held_out
        epoch = self.of_the_model({epoch: epoch for epoch in evaluated})
        found = None if epoch is None else self.record.class_accuracies(int(epoch), of)
        if found is None:
            return None
        return {name: share for name, share in zip(self.record.classes, found.tolist(), strict=True) if not math.isnan(share)}

    @cached_property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the run's model did not learn: it predicts them for fewer than a tenth as many examples as are labelled so."""
        epoch = self.of_the_model({epoch: epoch for epoch in self.record.epochs(self.measured_on)})
        if epoch is None:
            return ()
        predicted = self.record.predictions(int(epoch), self.measured_on)
        classes = self.record.classes
        return tuple(classes[number] for number in unlearned_classes(self.record.given, predicted, len(classes)))

    @cached_property
    def measured_on(self) -> str:
        """Which record training accuracies come from: "clean" (no augmentation) where there is one, else "training"."""
        return "clean" if self.record.epochs("clean") else "training"

    @property
    def clean_subset(self) -> Curve:
        """Training accuracy on the examples whose labels are right."""
        return _shares(self._tallies["clean"])

    @property
    def noisy_subset(self) -> Curve:
        """Training accuracy, against the given labels, on the examples whose labels are wrong: how many were memorised."""
        return _shares(self._tallies["noisy"])

    @property
    def fitting(self) -> Curve:
        """Training accuracy against the given labels, on all examples (the GR paper's corrupted set)."""
        return _shares(self._tallies["given"])

    @property
    def validation(self) -> Curve:
        """Training accuracy against the true labels, on all examples that have one (the GR paper's intact set)."""
        return _shares(self._tallies["true"])

    @property
    def hybrid(self) -> Curve:
        """Accuracy on the test set and the training set together, against true labels, weighted by their sizes (IMAE, table 6).

        The paper's words say "clean training set"; its numbers agree with the whole training set and its true labels. Empty where the
        size of the test set is not known, as of a recorded loop.
        """
        test, trained = self.test, self._tallies["true"]
        number = self.record.provenance.get("data", {}).get("test", {}).get("examples", 0) if test else 0
        together = (epoch for epoch in trained if epoch in test and number)
        return {epoch: (test[epoch] * number + trained[epoch].right) / (number + trained[epoch].seen) for epoch in together}

    @property
    def alpha(self) -> Curve:
        """α_t: the mean of ‖∂L/∂s‖₁ (twice the emphasis) up to each epoch, every step weighted by its learning rate."""
        return {epoch: 2 * mean for epoch, mean in self._pulled(("clean", "noisy", "all")).items()}

    @property
    def snr(self) -> Curve:
        """Mean emphasis of clean over that of noisy examples up to each epoch, every step weighted by its learning rate."""
        clean, noisy = self._pulled(("clean",)), self._pulled(("noisy",))
        return {epoch: clean[epoch] / noisy[epoch] for epoch in clean if noisy.get(epoch)}

    @property
    def mean_emphasis(self) -> Curve:
        """Mean emphasis over the examples of each epoch."""
        return self._metric("mean_emphasis")

    def diff(self, reference: str | PathLike[str] | Dynamics) -> float | None:
        """Final test accuracy minus that of the same loss trained on clean labels: what the noise cost (below 0).

        Args:
            reference: that other run, or its folder.
        """
        other = reference if isinstance(reference, Dynamics) else Dynamics(reference)
        mine, theirs = (repr(get(run.record.settings["loss"])) for run in (self, other))
        if mine != theirs:
            raise InputError(f"The reference of diff must be a run of the same loss, {mine}. Got one of {theirs}, {str(other.folder)!r}.")
        if other.record.wrong is not None and other.record.wrong.any():
            raise InputError(
                f"The reference of diff must be a run on clean labels. Got {str(other.folder)!r}, some labels of which are wrong."
            )
        return None if self.final is None or other.final is None else self.final - other.final

    @cached_property
    def focus(self) -> Curve:
        """The p on which the run's loss put most emphasis in each epoch, for a loss of the margin alone."""
        if self._margin_loss is None:
            return {}
        peaks: dict[float, float] = {}
        found = Curve()
        for epoch in self.record.epochs():
            progress = self._progress(epoch)
            if progress not in peaks:
                peaks[progress] = curve.peak(self._emphasis_in(epoch))[0]
            found[epoch] = peaks[progress]
        return found

    @cached_property
    def spread(self) -> Curve:
        """Variance of the emphasis over the margins of the training steps of each epoch, for a loss of the margin alone."""
        loss, found = self._margin_loss, Curve()
        if loss is None:
            return found
        for epoch, margins, _ in self.record.stream():
            counts = _counts(margins)
            if counts.any():
                pulls = self._pulls(epoch, _MARGINS)
                mean = np.average(pulls, weights=counts)
                found[epoch] = float(np.average(((pulls - mean) / self._size(mean)) ** 2, weights=counts))
        return found

    def margin_histograms(self, bins: int | Sequence[float] = 100, of: str = "training", epochs: Sequence[int] | None = None) -> Histograms:
        """Distributions of the margins of clean and noisy examples, epoch by epoch.

        Args:
            bins: how many bins of equal width, from the least to the largest margin of the record; or their edges, rising. What
                lies beyond the edges is counted in the first and the last bin.
            of: the record, "training" or "clean".
            epochs: which; by default all.
        """
        edges = self._edges(bins, of)
        where = np.clip(np.searchsorted(edges, _MARGINS, side="right") - 1, 0, len(edges) - 2)
        groups: dict[str, Any] = (
            {"all": slice(None)} if self.record.wrong is None else {"clean": ~self.record.wrong, "noisy": self.record.wrong}
        )
        rows: dict[str, list[Ints]] = {group: [] for group in groups}
        counted = []
        for epoch, margins, _ in self.record.stream(of, epochs):
            counted.append(epoch)
            for group, members in groups.items():
                binned = np.bincount(where, weights=_counts(margins[members]), minlength=len(edges) - 1)
                rows[group].append(binned.astype(np.int64))
        empty = np.zeros((0, len(edges) - 1), dtype=np.int64)
        return Histograms(edges, tuple(counted), {group: np.stack(counts) if counts else empty for group, counts in rows.items()})

    def margin_quantiles(self, shares: Sequence[float], of: str = "training") -> Floats:
        """The margins that such shares of all examples of all epochs reach at most; NaN where nothing was seen.

        Args:
            shares: from 0 to 1.
            of: the record, "training" or "clean".
        """
        wanted = np.asarray(shares, dtype=np.float64)
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise invalid_parameter("shares", "margin_quantiles", "in [0, 1]", shares)
        order = np.argsort(_MARGINS)
        counts = np.zeros(len(_MARGINS), dtype=np.int64)
        for _, margins, _ in self.record.stream(of):
            counts += _counts(margins)
        reached = counts[order].cumsum()
        if not reached[-1]:
            return np.full(wanted.shape, np.nan)
        found: Floats = _MARGINS[order][np.searchsorted(reached, np.maximum(wanted * reached[-1], 1))]
        return found

    def emphasis_curve(self, epoch: int, margins: Sequence[float] | Floats) -> Floats | None:
        """How hard the run's loss pulled at some margins in an epoch; None for a loss that is not of the margin alone, or not known here.

        A loss normalised over the batch is given the size it had on average: a mean of 1 over the margins of the epoch, times its factor.
        """
        loss, seen = self._margin_loss, self.record.margins(epoch)
        if loss is None:
            return None
        pulls, counts = self._pulls(epoch, np.asarray(margins, dtype=np.float64)), _counts(seen)
        return pulls / self._size(np.average(self._pulls(epoch, _MARGINS), weights=counts)) if counts.any() else pulls

    @property
    def forgetting(self) -> Ints:
        """How often each example went from right to wrong, against its given label, between the epochs that saw it.

        Reference:
            Toneva et al., An empirical study of example forgetting during deep neural network learning, ICLR 2019.
        """
        return self._history.forgetting

    @property
    def first_fit(self) -> Ints:
        """The first epoch in which each example was predicted as labelled; −1 for one that never was."""
        return self._history.first_fit

    @property
    def area_under_margin(self) -> Floats:
        """The mean margin of each example over the epochs that saw it; NaN for one never seen.

        The paper's margin is against the largest other score; this one is against all others taken together.

        Reference:
            Pleiss et al., Identifying mislabeled data using the area under the margin ranking, NeurIPS 2020.
        """
        return self._history.area_under_margin

    @cached_property
    def estimate(self) -> Estimate | None:
        """Which labels look wrong, ESTIMATED from the area under the margin; the true labels are not used."""
        finite = self.area_under_margin[np.isfinite(self.area_under_margin)]
        return split_estimate(self.area_under_margin) if len(finite) and np.ptp(finite) > 0 else None

    def summary(self) -> dict[str, Any]:
        """The run in one row: plain numbers and words that JSON can hold, None for what the run does not have.

        What was learned is what its model learned: the one it keeps, else the last.
        """
        settings, wrong, seen = self.record.settings, self.record.wrong, np.isfinite(self.area_under_margin)
        learned = ("balanced", "held_out", "held_out_balanced", "clean_subset", "noisy_subset", "fitting", "validation", "hybrid")
        return {
            **{name: settings.get(name) for name in ("data", "model", "loss", "noise", "seed")},
            "state": self.record.status["state"],
            "epochs": len(self.record.metrics),
            "best": self.best,
            "best_epoch": self.best_epoch,
            "final": self.final,
            "kept": self.kept,
            "measured_on": self.measured_on,
            **{name: self.of_the_model(getattr(self, name)) for name in learned},
            "class_accuracies": self.class_accuracies(),
            "unlearned": list(self.unlearned) if self.record.epochs(self.measured_on) else None,
            **{name: _last(getattr(self, name)) for name in ("alpha", "snr", "focus", "spread")},
            "first_mean_emphasis": next(iter(self.mean_emphasis.values()), None),
            "mean_emphasis": _last(self.mean_emphasis),
            "mean_forgetting": float(self.forgetting[seen].mean()) if seen.any() else None,
            "never_fit": float((self.first_fit[seen] < 0).mean()) if seen.any() else None,
            "noise_rate": None if wrong is None else float(wrong.mean()),
            "estimated_noise_rate": self.estimate.rate if self.estimate is not None and self.estimate.clear else None,
        }

    def _metric(self, name: str) -> Curve:
        return {line["epoch"]: float(line[name]) for line in self.record.metrics if line.get(name) is not None}

    def _pulled(self, groups: Collection[str]) -> Curve:
        """Mean emphasis of some groups together up to each epoch, every step weighted by its learning rate."""
        pull = rate = 0.0
        found: Curve = {}
        for line in self.record.metrics:
            for group, sums in line.get("emphasis", {}).items():
                if group in groups:
                    pull, rate = pull + sums["pull"], rate + sums["eta"]
            if rate > 0:
                found[line["epoch"]] = pull / rate
        return found

    @cached_property
    def _tallies(self) -> dict[str, dict[int, _Tally]]:
        """Right and seen, by what is counted and by epoch."""
        given, true, wrong = self.record.given, self.record.true, self.record.wrong
        classed = slice(None) if true is None or (true != NO_CLASS).all() else true != NO_CLASS
        found: dict[str, dict[int, _Tally]] = {"given": {}, "true": {}, "clean": {}, "noisy": {}}
        for epoch, _, predictions in self.record.stream(self.measured_on):
            seen, fits = predictions >= 0, predictions == given
            found["given"][epoch] = _tally(fits, seen)
            if true is not None and wrong is not None:
                found["true"][epoch] = _tally(predictions[classed] == true[classed], seen[classed])
                found["clean"][epoch] = _tally(fits & ~wrong, seen & ~wrong)
                found["noisy"][epoch] = _tally(fits & wrong, seen & wrong)
        return found

    @cached_property
    def _history(self) -> _History:
        number = len(self.record.given)
        forgetting, first_fit = np.zeros(number, dtype=np.int64), np.full(number, -1)
        total, epochs, fitted = np.zeros(number), np.zeros(number, dtype=np.int32), np.zeros(number, dtype=bool)
        for epoch, margins, predictions in self.record.stream():
            seen, fits = predictions >= 0, predictions == self.record.given
            forgetting += fitted & seen & ~fits
            first_fit[fits & (first_fit < 0)] = epoch
            fitted = np.where(seen, fits, fitted)
            known = ~np.isnan(margins)
            total += np.where(known, np.clip(margins, -LARGEST, LARGEST), 0)
            epochs += known
        return _History(forgetting, first_fit, np.where(epochs > 0, total / np.maximum(epochs, 1), np.nan))

    @cached_property
    def _margin_loss(self) -> MarginLoss | None:
        """The run's loss, if its emphasis is a function of the margin alone."""
        try:
            loss = get(self.record.settings["loss"])
        except InputError:  # a loss of the user's own, which only the code that trained it knows; all else can be told without it
            return None
        if not isinstance(loss, MarginLoss) or loss.weight is not None or loss.label_smoothing > 0:
            return None
        moved = any(isinstance(part, Scheduled) for part in loss.modules())
        return None if moved and self.record.recorded else loss  # whose loop alone knows how far it was moved

    def _size(self, mean: float) -> float:
        """What pulls with this mean were divided by: a loss normalised over the batch has a mean of 1, before its factor."""
        found = batch_normalised(self._margin_loss) if self._margin_loss is not None else None
        return 1.0 if found is None else mean / found[0]

    def _progress(self, epoch: int) -> float:
        """How far schedules inside the loss are: from 0 in the first epoch to 1 in the last one planned; 0 where there are none."""
        loss, settings = self._margin_loss, self.record.settings
        if loss is None or not any(isinstance(part, Scheduled) for part in loss.modules()):
            return 0.0
        planned = settings.get("epochs") or math.ceil(settings["steps"] / number_of_batches(len(self.record.given), settings["batch_size"]))
        return float(min(1.0, (epoch - 1) / max(1, planned - 1)))

    def _emphasis_in(self, epoch: int) -> curve.Curve:
        """The emphasis of that loss in an epoch."""
        loss = self._margin_loss
        assert loss is not None
        advance(loss, self._progress(epoch))
        return lambda d: emphasis_among(loss, d, len(self.record.classes))

    @cached_property
    def _curves(self) -> dict[tuple[float, bytes], Floats]:
        return {}

    def _pulls(self, epoch: int, margins: Floats) -> Floats:
        """The emphasis at some margins in an epoch, worked out once for all epochs in a row in which the loss is the same."""
        asked = (self._progress(epoch), margins.tobytes())
        if asked not in self._curves:
            if any(progress != asked[0] for progress, _ in self._curves):
                self._curves.clear()  # a scheduled loss has others in every epoch, half a megabyte each
            self._curves[asked] = self._emphasis_in(epoch)(torch.from_numpy(margins)).numpy()
        return self._curves[asked]

    def _edges(self, bins: int | Sequence[float], of: str) -> Floats:
        if not isinstance(bins, int):
            edges = np.asarray(bins, dtype=np.float64)
            if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
                raise invalid_parameter("bins", "margin_histograms", "a number of bins, or at least two rising edges", bins)
            return edges
        if isinstance(bins, bool) or bins < 1:
            raise invalid_parameter("bins", "margin_histograms", "at least 1", bins)
        low, high = np.inf, -np.inf
        for _, margins, _ in self.record.stream(of):
            found = _MARGINS[_counts(margins) > 0]
            low, high = min(low, found.min(initial=np.inf)), max(high, found.max(initial=-np.inf))
        return np.linspace(low, high, bins + 1) if low < high else np.linspace(-0.5, 0.5, bins + 1) + (low if low == high else 0.0)


def _counts(margins: Halves) -> Ints:
    """How often each of `_MARGINS` occurs; NaN is left out."""
    return np.bincount(codes(margins), minlength=len(MARGINS))[_NUMBERS]


def _tally(right: Flags, seen: Flags) -> _Tally:
    return _Tally(int(np.count_nonzero(right)), int(np.count_nonzero(seen)))


def _shares(tallies: Mapping[int, _Tally]) -> Curve:
    return {epoch: tally.right / tally.seen for epoch, tally in tallies.items() if tally.seen}


def _last(values: Curve) -> float | None:
    return values[max(values)] if values else None
