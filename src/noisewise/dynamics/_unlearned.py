"""What is not learned: a loss that will hardly start, and after training the classes that the model does not predict.

This module knows losses, margins, labels and predictions. It must not know run folders, nor how models are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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

_ENOUGH_LABELS = 5
_POINT = 0.01
_FAR_LESS = 10  # a class is unlearned if it is predicted less often than once for every ten of its labels


def unlearned_classes(given: NDArray[Any], predicted: NDArray[Any], classes: int) -> Ints:
    """Find the classes that are predicted for fewer than a tenth as many examples as are labelled so.

    Classes with fewer than five labels are left out. Examples with a prediction of −1 were not seen and are ignored.

    Args:
        given: the label of every training example.
        predicted: the class predicted for every example.
        classes: how many classes there are.

    Returns:
        The numbers of these classes.

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
        names: of the classes that were not learned.
        classes: how many classes there are.

    Example:
        >>> print(unlearned_sentence("gce(q=0.7)", ["rare"], 2))
        gce(q=0.7) did not learn 'rare' (1 of 2 classes): the model hardly ever predicts it. Train longer, or with another loss, such as ce.
    """
    them = "it" if len(names) == 1 else "them"
    advice = "Train longer, or with another learning rate." if loss == "ce" else "Train longer, or with another loss, such as ce."
    named = listed(map(repr, names))
    return f"{loss} did not learn {named} ({len(names):,} of {classes:,} classes): the model hardly ever predicts {them}. {advice}"


def class_accuracies(labels: NDArray[Any], predicted: NDArray[Any], classes: int) -> Floats:
    """The accuracy on the examples of every class (its recall); NaN for a class without examples.

    Args:
        labels: the class of every example.
        predicted: the class predicted for every example.
        classes: how many classes there are.

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


def emphasis_among(loss: MarginLoss, d: Tensor, classes: int) -> Tensor:
    """How hard a loss pulls at margins `d` when there are so many classes: −∂L/∂Δ."""
    with torch.enable_grad():
        leaf = d.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss.of_margin(leaf, classes).sum(), leaf)
    return -slope


_SAMPLES = 4096
_LARGEST = 1 << 20  # scores drawn at once: examples times classes
_TAU = 2.0  # the curriculum paper's for MAE on clean labels (table 9) and on WebVision with 50 classes (table 4); more noise wants more

# Share of its own largest emphasis a loss must start at, beside cross-entropy's. In the curriculum paper (all emphases brought
# to a maximum of 1) those that start below fit nothing: AGCE† 3.0 %, AUL† 3.7 %, MAE 4.0 % with 100 classes
# reach 4 to 10 % on clean labels in table 2, MAE with 50 classes (7.9 %) 3.7 % in table 4. Those that start above do train: AUL from
# 12.4 % to 88 %, AGCE from 13.6 % to 67 % training accuracy with 100 classes, MAE with 10 classes (36 %) to 98.7 %.
_START = 0.1
# A loss that pulls at least half as hard as cross-entropy is not starved, however much harder it pulls elsewhere (GR, β = 12).
_ENOUGH = 0.5
# A loss of more than the margin has no one curve to take the maximum of; it is measured against cross-entropy alone. In table 2
# NCE fits 10 classes, where it starts at 3.6 % of cross-entropy's, and not 100, where it starts at 0.2 %. The authors of NCE use
# 10·NCE + MAE there, which starts at 4.0 %.
_START_WITHOUT_CURVE = 0.01


def underfitting(loss: Loss | str, classes: int, *, std: float = 1.0, margins: Any = None) -> str | None:
    """Say whether a loss will hardly start, and which curriculum mends that.

    Formula:
        alarm if  E[w(Δ)] / sup w < 0.1 · E[w_CE(Δ)]  and  E[w(Δ)] < 0.5 · E[w_CE(Δ)],  Δ as before training

    Args:
        loss: the loss, or its spec.
        classes: how many there are.
        std: standard deviation of the scores before training; 1 for the usual initialisations.
        margins: margins measured before training, used instead; a loss of more than the margin is still judged at simulated
            scores.

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
        d = simulated_margins(classes, std, samples=_drawn(classes))
    else:
        d = torch.as_tensor(margins).detach().double().flatten().cpu()
        d = d[d.isfinite()]
        if not len(d):
            raise invalid_parameter("margins", "underfitting", "at least one finite margin", margins)
    found = _starved(loss, classes, std, d)
    if found is None:
        return None
    measured = None if margins is None and std == 1.0 else round(float(d.mean()), 2)
    return f"{loss!r} {found} and will hardly learn: use {_remedy(loss, classes, std, d, measured)}."


def _drawn(classes: int) -> int:
    return max(64, min(_SAMPLES, _LARGEST // classes))


def _starved(loss: Loss, classes: int, std: float, d: Tensor) -> str | None:
    """What is wrong at the start, in words, or None."""
    if not loss.of_classes:
        return None  # it has other margins
    if loss.depends_on_batch:
        return None  # its emphasis on an example is whatever the batch makes it: a mean of 1 where it is normalised
    cross_entropy = float(CE().emphasis(d).mean())
    if isinstance(loss, MarginLoss):
        pull = float(emphasis_among(loss, d, classes).mean())
        if pull >= _ENOUGH * cross_entropy:
            return None
        largest = curve.peak(lambda margin: emphasis_among(loss, margin, classes))[1]
        if largest <= 0 or pull >= _START * largest * cross_entropy:
            return None  # one that only pushes away cannot be helped by moving it
        return (
            f"starts at {_percent(max(pull, 0) / largest)} of its largest emphasis with {classes} classes (ce: {_percent(cross_entropy)})"
        )
    scores = std * torch.randn(_drawn(classes), classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(len(scores)) % classes
    share = float(emphasis(loss, scores, labels).mean() / emphasis(CE(), scores, labels).mean())
    return None if share >= _START_WITHOUT_CURVE else f"starts at {_percent(share)} of the emphasis of ce with {classes} classes"


def _remedy(loss: Loss, classes: int, std: float, d: Tensor, measured: float | None) -> str:
    """The scaled loss; where that cannot be had or does not help, the loss beside a scaled MAE, which always pulls."""
    contract = {key: loss.settings[key].default for key in CONTRACT}
    asked = {"tau": _TAU} | ({} if measured is None else {"expected": measured}) | loss.contract
    arguments = ", ".join(f"{key}={value!r}" for key, value in asked.items())
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
