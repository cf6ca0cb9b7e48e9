"""The papers' quantities, read from a run folder: accuracies, emphasis, margins and their histories.

A curve is a dictionary from epoch to number. What a run does not have is an empty curve or None. Only `Dynamics.estimate` is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from noisewise import curve
from noisewise.arrays import NO_CLASS, Flags, Floats, Ints
from noisewise.curriculum import Scheduled, advance
from noisewise.data import number_of_batches
from noisewise.dynamics._estimate import Estimate, split_estimate
from noisewise.dynamics._measures import emphasis_at, unlearned_classes
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import Adaptive, MarginLoss, batch_normalised, get
from noisewise.runs import LARGEST, MARGINS, Halves, Record, codes, data_set_numbers, read_origin

Curve = dict[int, float]

_State = float | tuple[tuple[str, float], ...]
"""What a loss that changes was in an epoch: the progress of its schedules, or what an adaptive loss had decided."""

# Margins have half precision: counting each value gives exact histograms and means.
_NUMBERS: Flags = ~np.isnan(MARGINS)
_MARGINS: Floats = MARGINS[_NUMBERS]


@dataclass(frozen=True)
class Histograms:
    """Histograms of margins, epoch by epoch.

    Args:
        edges: the edges of the bins, one more than there are bins.
        epochs: the epoch of each row of counts.
        counts: the histograms by group, "clean" and "noisy" (or "all" if the true labels are not known): int64 (epochs, bins).
    """

    edges: Floats
    epochs: tuple[int, ...]
    counts: dict[str, Ints]


class _Tally(NamedTuple):
    """How many examples were seen, and how many of them were predicted right."""

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
        folder: the folder of the run.

    Files are read when they are needed, and once. Accuracies are shares of the examples seen, from 0 to 1.
    """

    folder: str | PathLike[str]

    def __post_init__(self) -> None:
        _ = self.record  # fails if the folder is not a run

    @cached_property
    def record(self) -> Record:
        """The recorded margins and predictions."""
        return Record(self.folder)

    @property
    def test(self) -> Curve:
        """Test accuracy at each evaluation."""
        return self._metric("test_accuracy")

    @property
    def held_out(self) -> Curve:
        """Accuracy on the held-out share of the training set, by the given labels, at each evaluation."""
        return self._metric("validation_accuracy")

    @property
    def balanced(self) -> Curve:
        """Balanced test accuracy, the mean of the accuracies on the classes that have test examples, at each evaluation."""
        return self._metric("test_balanced_accuracy")

    @property
    def held_out_balanced(self) -> Curve:
        """Balanced accuracy on the held-out share of the training set, by the given labels, at each evaluation."""
        return self._metric("validation_balanced_accuracy")

    @property
    def best(self) -> float | None:
        """The best test accuracy of any epoch."""
        return max(self.test.values(), default=None)

    @property
    def best_epoch(self) -> int | None:
        """The first epoch of the best test accuracy."""
        test = self.test
        return max(test, key=lambda epoch: test[epoch], default=None)

    @property
    def final(self) -> float | None:
        """The last test accuracy, or the last so far."""
        return _last(self.test)

    @property
    def kept(self) -> float | None:
        """The test accuracy of the model that the run keeps, if it chose one (``keep="best"`` or ``"label_wave"``)."""
        return self.test.get(self.record.status.get("kept", 0))

    @property
    def accuracy(self) -> float | None:
        """The test accuracy of the run's model: the one it keeps, else the last."""
        return self.final if self.kept is None else self.kept

    def model_value(self, curve: Curve) -> float | None:
        """The value of a curve, such as `noisy_subset`, for the run's model: the one it keeps, else the last."""
        return curve.get(self.record.status.get("kept", 0), _last(curve))

    def class_accuracies(self, of: str = "test") -> dict[str, float] | None:
        """The accuracy of the run's model on each class that has examples, by name; None if it was not evaluated.

        Args:
            of: "test", or "validation" for the held-out share of the training set, by the given labels.
        """
        evaluated = self.test if of == "test" else self.held_out
        epoch = self.model_value({epoch: epoch for epoch in evaluated})
        shares = None if epoch is None else self.record.class_accuracies(int(epoch), of)
        if shares is None:
            return None
        return {name: share for name, share in zip(self.record.classes, shares.tolist(), strict=True) if not math.isnan(share)}

    @cached_property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the run's model did not learn (see `unlearned_classes`)."""
        epoch = self.model_value({epoch: epoch for epoch in self.record.epochs(self.measured_on)})
        if epoch is None:
            return ()
        predicted = self.record.predictions(int(epoch), self.measured_on)
        classes = self.record.classes
        return tuple(classes[number] for number in unlearned_classes(self.record.given, predicted, len(classes)))

    @cached_property
    def measured_on(self) -> str:
        """The record that training accuracies come from: "clean" (no augmentation) if there is one, else "training"."""
        return "clean" if self.record.epochs("clean") else "training"

    @property
    def clean_subset(self) -> Curve:
        """Training accuracy on the examples whose labels are right."""
        return _shares(self._tallies["clean"])

    @property
    def noisy_subset(self) -> Curve:
        """The share of wrong labels that were memorised: training accuracy by the given labels where these are wrong."""
        return _shares(self._tallies["noisy"])

    @property
    def fitting(self) -> Curve:
        """Training accuracy by the given labels, on all examples (the GR paper's corrupted set)."""
        return _shares(self._tallies["given"])

    @property
    def true_label_accuracy(self) -> Curve:
        """Training accuracy by the true labels, on all examples that have one (the GR paper's intact set)."""
        return _shares(self._tallies["true"])

    @property
    def hybrid(self) -> Curve:
        """Accuracy on the test set and the training set together, by true labels, weighted by their sizes (IMAE, table 6).

        The paper says "clean training set", but its numbers agree with the whole training set and its true labels. Empty if the size of
        the test set is not known, as in a run that a `Recorder` wrote.
        """
        test, trained = self.test, self._tallies["true"]
        number = self.record.provenance.get("data", {}).get("test", {}).get("examples", 0) if test else 0
        epochs = (epoch for epoch in trained if epoch in test and number)
        return {epoch: (test[epoch] * number + trained[epoch].right) / (number + trained[epoch].seen) for epoch in epochs}

    @property
    def alpha(self) -> Curve:
        """α_t: the mean of ‖∂L/∂s‖₁ (twice the emphasis) up to each epoch, steps weighted by learning rate."""
        return {epoch: 2 * mean for epoch, mean in self._mean_emphasis(("clean", "noisy", "all")).items()}

    @property
    def snr(self) -> Curve:
        """Mean emphasis of clean examples divided by that of noisy examples up to each epoch, steps weighted by learning rate."""
        clean, noisy = self._mean_emphasis(("clean",)), self._mean_emphasis(("noisy",))
        return {epoch: clean[epoch] / noisy[epoch] for epoch in clean if noisy.get(epoch)}

    @cached_property
    def noise_estimate(self) -> Curve:
        """The noise rate that an adaptive loss estimated in each epoch; empty for other losses."""
        return {epoch: adapted["noise"] for epoch, adapted in self._adapted.items() if "noise" in adapted}

    @property
    def mean_emphasis(self) -> Curve:
        """Mean emphasis over the examples of each epoch."""
        return self._metric("mean_emphasis")

    def diff(self, reference: str | PathLike[str] | Dynamics) -> float | None:
        """Final test accuracy minus that of a reference run, the same loss on clean labels: the cost of the noise, usually negative."""
        other = reference if isinstance(reference, Dynamics) else Dynamics(reference)
        mine, theirs = (repr(get(run.record.settings["loss"])) for run in (self, other))
        if mine != theirs:
            raise InputError(f"The reference of diff must be a run of the same loss, {mine}. Got {str(other.folder)!r} of {theirs}.")
        if other.record.wrong is not None and other.record.wrong.any():
            raise InputError(f"The reference of diff must be a run on clean labels. Got {str(other.folder)!r}, which has wrong labels.")
        return None if self.final is None or other.final is None else self.final - other.final

    @cached_property
    def focus(self) -> Curve:
        """The p with the largest emphasis in each epoch; empty if the loss is not a function of the margin."""
        if self._margin_loss is None:
            return {}
        peaks: dict[_State, float] = {}
        for epoch in self.record.epochs():
            state = self._state(epoch)
            if state not in peaks:
                peaks[state] = curve.peak(self._emphasis_in(epoch))[0]
        return {epoch: peaks[self._state(epoch)] for epoch in self.record.epochs()}

    @cached_property
    def spread(self) -> Curve:
        """Variance of the emphasis over the training margins of each epoch; empty if the loss is not a function of the margin."""
        variances = Curve()
        if self._margin_loss is None:
            return variances
        for epoch, margins, _ in self.record.stream():
            counts = _counts(margins)
            if counts.any():
                pulls = self._pulls(epoch, _MARGINS)
                mean = np.average(pulls, weights=counts)
                variances[epoch] = float(np.average(((pulls - mean) / self._size(mean)) ** 2, weights=counts))
        return variances

    def margin_histograms(self, bins: int | Sequence[float] = 100, of: str = "training", epochs: Sequence[int] | None = None) -> Histograms:
        """Histograms of the margins of clean and noisy examples, epoch by epoch.

        Args:
            bins: the number of bins of equal width, from the smallest to the largest margin of the record; or their edges, increasing.
                The first and the last bin also count what lies beyond the edges.
            of: the record, "training" or "clean".
            epochs: the epochs to count; by default all.
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
        """Quantiles of the margins of all examples in all epochs; NaN if nothing was seen.

        Args:
            shares: the quantiles to compute, from 0 to 1.
            of: the record, "training" or "clean".
        """
        quantiles = np.asarray(shares, dtype=np.float64)
        if not ((quantiles >= 0) & (quantiles <= 1)).all():
            raise invalid_parameter("shares", "margin_quantiles", "in [0, 1]", shares)
        order = np.argsort(_MARGINS)
        counts = np.zeros(len(_MARGINS), dtype=np.int64)
        for _, margins, _ in self.record.stream(of):
            counts += _counts(margins)
        reached = counts[order].cumsum()
        if not reached[-1]:
            return np.full(quantiles.shape, np.nan)
        return np.asarray(_MARGINS[order][np.searchsorted(reached, np.maximum(quantiles * reached[-1], 1))])

    def emphasis_curve(self, epoch: int, margins: Sequence[float] | Floats) -> Floats | None:
        """The emphasis of the run's loss at some margins in an epoch; None if the loss is unknown or not a function of the margin.

        A loss that is normalised over the batch is scaled as it was on average: to a mean of 1 over the margins of the epoch, times its
        factor.
        """
        seen = self.record.margins(epoch)
        if self._margin_loss is None:
            return None
        pulls, counts = self._pulls(epoch, np.asarray(margins, dtype=np.float64)), _counts(seen)
        return pulls / self._size(np.average(self._pulls(epoch, _MARGINS), weights=counts)) if counts.any() else pulls

    @property
    def forgetting(self) -> Ints:
        """How often the prediction of each example changed from its given label to another class, over the epochs that saw it.

        Reference:
            Toneva et al., An empirical study of example forgetting during deep neural network learning, ICLR 2019.
        """
        return self._history.forgetting

    @property
    def first_fit(self) -> Ints:
        """The first epoch in which each example was predicted as labelled; −1 if none."""
        return self._history.first_fit

    @property
    def area_under_margin(self) -> Floats:
        """The mean margin of each example over the epochs that saw it; NaN if none did.

        The paper's margin compares with the largest other score; this one with the logsumexp of all others.

        Reference:
            Pleiss et al., Identifying mislabeled data using the area under the margin ranking, NeurIPS 2020.
        """
        return self._history.area_under_margin

    @cached_property
    def estimate(self) -> Estimate | None:
        """Which labels look wrong, estimated from the area under the margin without the true labels."""
        finite = self.area_under_margin[np.isfinite(self.area_under_margin)]
        return split_estimate(self.area_under_margin) if len(finite) and np.ptp(finite) > 0 else None

    def summary(self) -> dict[str, Any]:
        """The run as one row of JSON values; what the run does not have is None. Accuracies are those of its model."""
        settings, wrong, seen = self.record.settings, self.record.wrong, np.isfinite(self.area_under_margin)
        learned = ("balanced", "held_out", "held_out_balanced", "clean_subset", "noisy_subset", "fitting", "true_label_accuracy", "hybrid")
        return {
            **{name: settings.get(name) for name in ("data", "model", "loss", "noise", "method", "seed")},
            "state": self.record.status["state"],
            "epochs": len(self.record.metrics),
            "best": self.best,
            "best_epoch": self.best_epoch,
            "final": self.final,
            "kept": self.kept,
            "measured_on": self.measured_on,
            **{name: self.model_value(getattr(self, name)) for name in learned},
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

    def _mean_emphasis(self, groups: Collection[str]) -> Curve:
        """Mean emphasis of these groups together up to each epoch, steps weighted by learning rate."""
        pull = rate = 0.0
        means: Curve = {}
        for line in self.record.metrics:
            for group, sums in line.get("emphasis", {}).items():
                if group in groups:
                    pull, rate = pull + sums["pull"], rate + sums["eta"]
            if rate > 0:
                means[line["epoch"]] = pull / rate
        return means

    @cached_property
    def _tallies(self) -> dict[str, dict[int, _Tally]]:
        """Counts by subset and epoch."""
        given, true, wrong = self.record.given, self.record.true, self.record.wrong
        classed = slice(None) if true is None or (true != NO_CLASS).all() else true != NO_CLASS
        tallies: dict[str, dict[int, _Tally]] = {"given": {}, "true": {}, "clean": {}, "noisy": {}}
        for epoch, _, predictions in self.record.stream(self.measured_on):
            seen, fits = predictions >= 0, predictions == given
            tallies["given"][epoch] = _tally(fits, seen)
            if true is not None and wrong is not None:
                tallies["true"][epoch] = _tally(predictions[classed] == true[classed], seen[classed])
                tallies["clean"][epoch] = _tally(fits & ~wrong, seen & ~wrong)
                tallies["noisy"][epoch] = _tally(fits & wrong, seen & wrong)
        return tallies

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
        """The run's loss, if it is known here and its emphasis is a function of the margin alone."""
        if self.record.settings.get("method", "plain") != "plain":
            return None
        try:
            loss = get(self.record.settings["loss"])
        except InputError:  # a custom loss
            return None
        if not isinstance(loss, MarginLoss) or loss.weight is not None or loss.label_smoothing > 0:
            return None
        if isinstance(loss, Adaptive):
            return loss if self._adapted else None
        return None if _is_scheduled(loss) and self.record.recorded else loss  # a recorded loop moves its schedules itself

    def _size(self, mean: float) -> float:
        """The divisor of emphases with this mean: a loss normalised over the batch has a mean of 1, before its factor."""
        if self._margin_loss is None or not self._margin_loss.depends_on_batch:
            return 1.0
        normalised = batch_normalised(self._margin_loss)
        return 1.0 if normalised is None else mean / normalised[0]

    @cached_property
    def _adapted(self) -> dict[int, dict[str, float]]:
        """What an adaptive loss was in each epoch."""
        return {line["epoch"]: line["adapted"] for line in self.record.metrics if "adapted" in line}

    def _state(self, epoch: int) -> _State:
        """What differs between epochs in which the loss differs; equal for epochs with the same loss."""
        loss, settings = self._margin_loss, self.record.settings
        if isinstance(loss, Adaptive):
            known = max((each for each in self._adapted if each <= epoch), default=min(self._adapted))  # a run writes its metrics last
            return tuple(self._adapted[known].items())
        if loss is None or not _is_scheduled(loss):
            return 0.0
        planned = settings.get("epochs") or math.ceil(settings["steps"] / number_of_batches(len(self.record.given), settings["batch_size"]))
        return float(min(1.0, (epoch - 1) / max(1, planned - 1)))

    def _emphasis_in(self, epoch: int) -> curve.Curve:
        """The emphasis of the loss in an epoch, as a function of the margin."""
        loss, state = self._margin_loss, self._state(epoch)
        assert loss is not None
        if isinstance(state, tuple):
            try:
                cast(Adaptive, loss).restore(dict(state))
            except KeyError as missing:
                raise InputError(f"The metrics of epoch {epoch} in {str(self.record.folder)!r} lack {missing} of {loss!r}.") from None
        elif _is_scheduled(loss):
            advance(loss, state)
        return lambda d: emphasis_at(loss, d, len(self.record.classes))

    @cached_property
    def _emphasis_cache(self) -> dict[tuple[_State, bytes], Floats]:
        return {}

    def _pulls(self, epoch: int, margins: Floats) -> Floats:
        """The emphasis at some margins in an epoch, computed once for consecutive epochs with the same loss."""
        cache, key = self._emphasis_cache, (self._state(epoch), margins.tobytes())
        if key not in cache:
            if any(state != key[0] for state, _ in cache):
                cache.clear()  # a scheduled loss would add half a megabyte each epoch
            cache[key] = self._emphasis_in(epoch)(torch.from_numpy(margins)).numpy()
        return cache[key]

    def _edges(self, bins: int | Sequence[float], of: str) -> Floats:
        if not isinstance(bins, int):
            edges = np.asarray(bins, dtype=np.float64)
            if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
                raise invalid_parameter("bins", "margin_histograms", "a number of bins, or at least two increasing edges", bins)
            return edges
        if isinstance(bins, bool) or bins < 1:
            raise invalid_parameter("bins", "margin_histograms", "at least 1", bins)
        low, high = np.inf, -np.inf
        for _, margins, _ in self.record.stream(of):
            seen = _MARGINS[_counts(margins) > 0]
            low, high = min(low, seen.min(initial=np.inf)), max(high, seen.max(initial=-np.inf))
        return np.linspace(low, high, bins + 1) if low < high else np.linspace(-0.5, 0.5, bins + 1) + (low if low == high else 0.0)


def with_original_settings(run: Dynamics) -> Dynamics:
    """A run on corrected labels with the settings of the run it came from, by which it is compared; another run as it is."""
    origin = read_origin(Path(run.folder))
    if origin is None:
        return run
    return _with_settings(run, **{**origin.settings, "loss": origin.name(str(run.record.settings["loss"]))})


def number_data_sets(runs: Sequence[Dynamics]) -> list[Dynamics]:
    """Number different data sets with the same name: "arrays", then "arrays (2)"."""
    numbers = data_set_numbers([run.record for run in runs])
    return [
        run if number == 1 else _with_settings(run, data=f"{run.record.settings.get('data')} ({number})")
        for run, number in zip(runs, numbers, strict=True)
    ]


def _with_settings(run: Dynamics, **settings: Any) -> Dynamics:
    copy = Dynamics(run.folder)
    copy.record.settings.update(run.record.settings, **settings)
    return copy


def _is_scheduled(loss: MarginLoss) -> bool:
    return any(isinstance(part, Scheduled) for part in loss.modules())


def _counts(margins: Halves) -> Ints:
    """How often each of `_MARGINS` occurs; NaN is ignored."""
    return np.bincount(codes(margins), minlength=len(MARGINS))[_NUMBERS]


def _tally(right: Flags, seen: Flags) -> _Tally:
    return _Tally(int(np.count_nonzero(right)), int(np.count_nonzero(seen)))


def _shares(tallies: Mapping[int, _Tally]) -> Curve:
    return {epoch: tally.right / tally.seen for epoch, tally in tallies.items() if tally.seen}


def _last(values: Curve) -> float | None:
    return values[max(values)] if values else None
