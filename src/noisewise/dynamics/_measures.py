"""The measures that runs are compared by, their averages over seeds, and two warnings: about losses and about classes.

The report, the command line, the figures and the papers' tables share one table of measures. `underfitting` warns before training that a
loss will hardly learn; `unlearned_classes` finds after training the classes that the model does not predict.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise import curve
from noisewise.arrays import Floats, Ints
from noisewise.curriculum import Scaled, Shifted
from noisewise.errors import invalid_parameter, listed
from noisewise.losses import CONTRACT, Loss, MarginLoss, get
from noisewise.losses.ce import CE
from noisewise.margin import emphasis, simulated_margins
from noisewise.spec import as_int

Run = TypeVar("Run")

_ENOUGH_LABELS = 5
_POINT = 0.01
_FAR_LESS = 10  # a class is unlearned if it is predicted less often than once for every ten of its labels
_SAMPLES = 4096
_MOST_SCORES = 1 << 20  # drawn at once: examples times classes
_TAU = 2.0  # the curriculum paper's value for MAE on clean labels (table 9) and on WebVision with 50 classes (table 4)

# A loss will hardly learn if it starts at a smaller share of its largest emphasis than this, relative to cross-entropy. In the curriculum
# paper (emphasis scaled to a maximum of 1), AGCE† (3.0 %), AUL† (3.7 %) and MAE (4.0 %) reach 4 to 10 % on clean labels with 100 classes
# (table 2), and MAE (7.9 %) 3.7 % with 50 classes (table 4). AUL (12.4 %) reaches 88 % and AGCE (13.6 %) 67 % training accuracy with 100
# classes, and MAE (36 %) 98.7 % with 10 classes.
_START = 0.1
# A loss that pulls at least half as hard as cross-entropy learns, however much harder it pulls elsewhere (GR, β = 12).
_ENOUGH = 0.5
# A loss that is not a function of the margin has no largest emphasis, and is compared with the emphasis of cross-entropy. In table 2 NCE
# learns 10 classes, where it starts at 3.6 %, but not 100, where it starts at 0.2 %. Its authors use 10·NCE + MAE there (4.0 %).
_START_WITHOUT_CURVE = 0.01


class Measure(NamedTuple):
    """A number that a run is compared by.

    Args:
        title: its name in tables and figures.
        meaning: one sentence.
        unit: "%" for a share between 0 and 1, "" for a plain number.
    """

    title: str
    meaning: str
    unit: str


MEASURES: dict[str, Measure] = {
    "final": Measure("Test, final", "Test accuracy at the end of training.", "%"),
    "balanced": Measure(
        "Test, balanced", "The mean of the test accuracies on every class, so that rare classes count as much as others.", "%"
    ),
    "kept": Measure(
        "Test, kept", "Test accuracy of the model that the run keeps: the best on its held-out share, or the choice of Label Wave.", "%"
    ),
    "best": Measure("Test, best", "The best test accuracy of any epoch. It is chosen on the test set, so it is optimistic.", "%"),
    "held_out": Measure("Held out", "Accuracy on held-out training examples, by their given labels.", "%"),
    "fitting": Measure("Labels learned", "Training accuracy by the given labels, right or wrong.", "%"),
    "clean_subset": Measure("Right labels learned", "Training accuracy on the examples whose labels are right.", "%"),
    "noisy_subset": Measure(
        "Wrong labels learned",
        "Training accuracy on the examples whose labels are wrong, by these labels: the memorised share.",
        "%",
    ),
    "hybrid": Measure("Hybrid", "Accuracy on the test set and the training set together, against true labels.", "%"),
    "snr": Measure("snr", "Mean emphasis of right labels divided by that of wrong labels, over all of training.", ""),
    "alpha": Measure("α", "Mean of ‖∂L/∂s‖₁ over all of training: how hard the loss pulled.", ""),
}
"""The measures by the names of `Dynamics`."""


class Spread(NamedTuple):
    """Mean and sample standard deviation over seeds; the deviation of a single seed is None."""

    mean: float
    deviation: float | None


def over_seeds(values: Iterable[float | None]) -> Spread | None:
    """Mean and standard deviation of the known numbers; None if there are none.

    Example:
        >>> over_seeds([1.0, None, 2.0, 3.0])
        Spread(mean=2.0, deviation=1.0)
        >>> over_seeds([0.5]), over_seeds([None])
        (Spread(mean=0.5, deviation=None), None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def prefer_finished(runs: Sequence[Run], is_finished: Callable[[Run], bool]) -> list[Run]:
    """The finished runs, or all runs if none is finished.

    Example:
        >>> prefer_finished([1, 2, 3], lambda run: run > 1), prefer_finished([1, 2], lambda run: False)
        ([2, 3], [1, 2])
    """
    return [run for run in runs if is_finished(run)] or list(runs)


def informative_measures(measures: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measures that some row has, without those that add nothing.

    "fitting" adds nothing if all rows have "clean_subset", and "balanced" if it is within a point of the test accuracy in all rows.

    Args:
        measures: their names.
        rows: rows of runs (numbers), or of averages (mappings with a "mean").

    Example:
        >>> known, unknown = {"final": None, "fitting": 0.6, "clean_subset": 0.9}, {"final": None, "fitting": 0.8, "clean_subset": None}
        >>> informative_measures(known, [known]), informative_measures(known, [known, unknown])
        (['clean_subset'], ['fitting', 'clean_subset'])
        >>> informative_measures(["balanced"], [{"final": 0.95, "kept": None, "balanced": 0.5, "fitting": None}])
        ['balanced']
    """
    needed = {
        "fitting": any(row["fitting"] is not None and row["clean_subset"] is None for row in rows),
        "balanced": any(map(balance_matters, rows)),
    }
    return [name for name in measures if any(row[name] is not None for row in rows) and needed.get(name, True)]


def unlearned_classes(given: NDArray[Any], predicted: NDArray[Any], classes: int) -> Ints:
    """Find the classes that are predicted less than a tenth as often as they occur as labels.

    Classes with fewer than five labels are ignored, and so are examples with a prediction of −1, which were not seen.

    Args:
        given: the label of each training example.
        predicted: the class predicted for each example.
        classes: the number of classes.

    Returns:
        The indices of these classes.

    Example:
        >>> unlearned_classes(np.array([0] * 90 + [1] * 10), np.zeros(100, dtype=int), 2)
        array([1])
    """
    seen = predicted >= 0
    labels, predictions = (np.bincount(values[seen], minlength=classes)[:classes] for values in (given, predicted))
    return np.flatnonzero((labels >= _ENOUGH_LABELS) & (_FAR_LESS * predictions < labels))


def unlearned_sentence(loss: str, names: Sequence[str], classes: int) -> str:
    """Say which classes a loss did not learn, and what to try.

    Args:
        loss: the spec of the loss.
        names: the names of the classes that were not learned.
        classes: the number of classes.

    Example:
        >>> print(unlearned_sentence("gce(q=0.7)", ["rare"], 2))
        gce(q=0.7) did not learn 'rare' (1 of 2 classes): the model hardly ever predicts it. Train longer, or with another loss, such as ce.
    """
    them = "it" if len(names) == 1 else "them"
    advice = "Train longer, or with another learning rate." if loss == "ce" else "Train longer, or with another loss, such as ce."
    named = listed(map(repr, names))
    return f"{loss} did not learn {named} ({len(names):,} of {classes:,} classes): the model hardly ever predicts {them}. {advice}"


def class_accuracies(labels: NDArray[Any], predicted: NDArray[Any], classes: int) -> Floats:
    """The accuracy on the examples of each class (its recall); NaN for a class without examples.

    Args:
        labels: the class of each example.
        predicted: the class predicted for each example.
        classes: the number of classes.

    Example:
        >>> class_accuracies(np.array([0, 0, 1]), np.array([0, 1, 1]), 3)
        array([0.5, 1. , nan])
    """
    number = np.bincount(labels, minlength=classes)
    correct = np.bincount(labels[labels == predicted], minlength=classes)
    return np.where(number > 0, correct / np.maximum(number, 1), np.nan)


def balance_matters(row: Mapping[str, Any]) -> bool:
    """Whether balanced test accuracy is a point or more from the test accuracy of the model.

    Example:
        >>> balance_matters({"final": 0.95, "kept": None, "balanced": 0.5})
        True
        >>> balance_matters({"final": 0.951, "kept": None, "balanced": 0.95})
        False
    """
    accuracy, balanced = (_mean(row.get(name)) for name in ("final" if row.get("kept") is None else "kept", "balanced"))
    return accuracy is not None and balanced is not None and abs(accuracy - balanced) >= _POINT


def _mean(value: Any) -> float | None:
    mean = value["mean"] if isinstance(value, Mapping) else value
    return None if mean is None else float(mean)


def emphasis_at(loss: MarginLoss, d: Tensor, classes: int) -> Tensor:
    """The emphasis of a loss, −∂L/∂Δ, at margins `d` for this number of classes."""
    with torch.enable_grad():
        leaf = d.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss.of_margin(leaf, classes).sum(), leaf)
    return -slope


def underfitting(loss: Loss | str, classes: int, *, std: float = 1.0, margins: Any = None) -> str | None:
    """Warn if a loss will hardly learn, and suggest a curriculum that helps.

    Formula:
        warn if  E[w(Δ)] / sup w < 0.1 · E[w_CE(Δ)]  and  E[w(Δ)] < 0.5 · E[w_CE(Δ)],  Δ as before training

    Args:
        loss: the loss, or its spec.
        classes: the number of classes.
        std: standard deviation of the scores before training; 1 for the usual initialisations.
        margins: margins measured before training, to use instead of simulated ones. A loss that is not a function of the margin is
            still evaluated at simulated scores.

    Returns:
        None, or one line of text.

    Example:
        >>> print(underfitting("mae", 100))
        mae starts at 4 % of its largest emphasis with 100 classes (ce: 99 %) and will hardly learn: use scaled(mae, tau=2.0).
        >>> underfitting("mae", 10), underfitting("scaled(mae, tau=2.0)", 100)
        (None, None)

    Reference:
        A curriculum view of robust loss functions, section 5.1.
    """
    loss = get(loss)
    as_int("classes", "underfitting", classes, 2)
    if margins is None:
        d = simulated_margins(classes, std, samples=_samples(classes))
    else:
        d = torch.as_tensor(margins).detach().double().flatten().cpu()
        d = d[d.isfinite()]
        if not len(d):
            raise invalid_parameter("margins", "underfitting", "at least one finite margin", margins)
    problem = _starved(loss, classes, std, d)
    if problem is None:
        return None
    measured = None if margins is None and std == 1.0 else round(float(d.mean()), 2)
    return f"{loss!r} {problem} and will hardly learn: use {_remedy(loss, classes, std, d, measured)}."


def _samples(classes: int) -> int:
    return max(64, min(_SAMPLES, _MOST_SCORES // classes))


def _starved(loss: Loss, classes: int, std: float, d: Tensor) -> str | None:
    """How weak the loss is before training, as a phrase; None if it is strong enough."""
    if not loss.of_classes or loss.depends_on_batch or loss.adapts:  # other margins, or an emphasis that changes by itself
        return None
    cross_entropy = float(CE().emphasis(d).mean())
    if isinstance(loss, MarginLoss):
        pull = float(emphasis_at(loss, d, classes).mean())
        if pull >= _ENOUGH * cross_entropy:
            return None
        largest = curve.peak(lambda margin: emphasis_at(loss, margin, classes))[1]
        if largest <= 0 or pull >= _START * largest * cross_entropy:
            return None
        return (
            f"starts at {_percent(max(pull, 0) / largest)} of its largest emphasis with {classes} classes (ce: {_percent(cross_entropy)})"
        )
    scores = std * torch.randn(_samples(classes), classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(len(scores)) % classes
    share = float(emphasis(loss, scores, labels).mean() / emphasis(CE(), scores, labels).mean())
    return None if share >= _START_WITHOUT_CURVE else f"starts at {_percent(share)} of the emphasis of ce with {classes} classes"


def _remedy(loss: Loss, classes: int, std: float, d: Tensor, measured: float | None) -> str:
    """The scaled loss, or the loss plus a scaled MAE if scaling does not help."""
    contract = {key: loss.settings[key].default for key in CONTRACT}
    settings = {"tau": _TAU} | ({} if measured is None else {"expected": measured}) | loss.contract
    arguments = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    if isinstance(loss, MarginLoss):
        inner: Loss = loss
        while isinstance(inner, Scaled | Shifted):
            inner = inner.loss
        scaled = f"scaled({inner.spec(**contract)}, {arguments})"
        if _starved(get(scaled), classes, std, d) is None:
            return scaled
    return f"{loss!r} + scaled(mae, {arguments})"


def _percent(share: float) -> str:
    return f"{100 * share:{'.0f' if share >= 0.01 else '.1g'}} %"
