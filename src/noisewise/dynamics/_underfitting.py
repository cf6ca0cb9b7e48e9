"""The alarm that a loss will hardly start: its emphasis is next to nothing at the margins training starts from.

This module knows losses and margins. It must not know how models are trained.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisewise import curve
from noisewise.curriculum import Scaled, Shifted, simulated_margins
from noisewise.dynamics._slope import emphasis_among
from noisewise.errors import invalid_parameter
from noisewise.losses import CONTRACT, Loss, MarginLoss, get
from noisewise.losses.ce import CE
from noisewise.margin import emphasis
from noisewise.spec import as_int

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
        largest = curve.peak(lambda margin: emphasis_among(loss, margin, classes))[1]
        if largest <= 0 or pull >= min(_START * largest, _ENOUGH) * cross_entropy:
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
