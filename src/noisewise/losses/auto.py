"""The loss without hyper-parameters: it estimates the noise rate while it trains, and becomes as robust as that rate requires."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.exact import margin_of
from noisewise.losses._adaptive import Adaptive

SUREST = 0.25
"""The share of the examples predicted as a class whose labels are compared with the prediction."""

ROBUST_FROM, ROBUST_AT = 0.03, 0.10
"""If up to the first share of these labels differ, the loss is cross-entropy, and from the second on a scaled MAE."""

RAMP = 0.25
"""The largest increase of q in one epoch. MAE from the start on can give up classes; slower, the model memorises wrong labels."""

TAU = 2.0
"""The scaled MAE starts at the margin −2, as the curriculum paper's for clean labels, and further below 0 with noise."""

_ERROR = 0.02  # of the estimate, at least
_GROUPS, _STEPS = 128, 64  # of the table of predictions: classes (modulo the groups) by sureness
_LOWEST, _HIGHEST = -6.0, 14.0  # the range of sureness: the margin of the predicted class
_CELLS, _WIDEST = 512, 32.0  # of the histogram of margins: its cells, and where it ends on both sides
_ROUNDS = 100


class Auto(Adaptive, name="auto"):
    """Cross-entropy that turns into a scaled MAE as far as labels are wrong. It needs no hyper-parameter and no noise rate.

    It is a `gce` at a scaled margin. Its exponent q follows the labels of sure examples: of those predicted as a class, the quarter with
    the surest predictions should have that label. If some have another one, the next epoch is more robust. Cross-entropy comes first, so
    that the model learns every class.

    It also estimates the noise rate. The estimate does not change the loss.

    `fit` moves it after every epoch. In your own loop, call `update` once an epoch, or record the loop with `noisewise.Recorder`.

    Formula:
        l(p) = (1 − σ(cΔ)^q) / (q c)
        w = σ(cΔ)^q σ(−cΔ)
        q = 0 in the first epoch; then clip((ρ − 0.03) / 0.07, 0, 1), but at most 0.25 more than in the epoch before
        c = 1 − q + q · 2 / ((1 − 0.6 ρ) max(2, log(C − 1)))
        ρ = the share of labels other than the prediction among the surest quarter of every predicted class, in the last epoch
        η̂ = max(ρ, η), where η is the rate of symmetric noise under which the labels are most likely, given the predictions

    Example:
        >>> loss = Auto()
        >>> scores = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]], requires_grad=True)
        >>> loss(scores, torch.tensor([0, 0]))  # cross-entropy, in the first epoch
        tensor(2.0360, grad_fn=<MeanBackward0>)
        >>> round(loss.update()["noise"], 2)  # the estimated noise rate
        0.5
        >>> loss.q  # in the second epoch
        tensor(0.2500)

    Reference:
        noisewise; the parts are those of Zhang & Sabuncu (gce) and of A curriculum view of robust loss functions, section 5.1 (scaling).
    """

    examples: ClassVar[tuple[str, ...]] = ("auto",)

    predictions: Tensor
    margins: Tensor
    q: Tensor
    scale: Tensor
    highest: Tensor
    classes: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("predictions", torch.zeros(_GROUPS, _STEPS, 2, dtype=torch.int64))  # with the same label, and with another
        self.register_buffer("margins", torch.zeros(_CELLS, dtype=torch.int64))
        self.register_buffer("q", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("highest", torch.zeros(()))  # noise rate since q is 1
        self.register_buffer("classes", torch.zeros((), dtype=torch.int64))

    def value(self, d: Tensor) -> Tensor:
        log_p, q = logsigmoid(self.scale * d), self.q
        risen = torch.where(q > 0, (q * log_p).expm1() / torch.where(q > 0, q, 1.0), log_p)
        return -risen / self.scale

    def emphasis(self, d: Tensor) -> Tensor:
        d = self.scale * d
        return torch.where(self.q > 0, self.q * logsigmoid(d), 0.0).exp() * (-d).sigmoid()

    @torch.no_grad()
    def observe(self, scores: Tensor, labels: Tensor) -> None:
        kept = labels != self.ignore_index
        predicted, classes = scores.argmax(1), scores.shape[1]
        sureness, margins = (margin_of(scores, label.unsqueeze(1), 1)[0].squeeze(1) for label in (predicted, labels.masked_fill(~kept, 0)))
        row = (predicted % _GROUPS) * _STEPS + _cell(sureness, _LOWEST, _HIGHEST, _STEPS)
        self.predictions.view(-1).index_add_(0, 2 * row + (predicted != labels), kept.long())
        self.margins.index_add_(0, _cell(margins, -_WIDEST, _WIDEST, _CELLS), kept.long())
        self.classes.fill_(classes)

    def update(self) -> dict[str, float]:
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.predictions)
            dist.all_reduce(self.margins)
            dist.all_reduce(self.classes, dist.ReduceOp.MAX)
        record, classes = {"q": float(self.q), "scale": float(self.scale)}, int(self.classes)
        if not self.margins.any():
            return record
        likeliest, surest = _likeliest_rate(self.margins.cpu(), classes), _among_surest(self.predictions.cpu())
        noise = max(likeliest, surest)  # the first is too low while the model is unsure because of the noise
        self.highest.fill_(max(noise, float(self.highest)) if self.q == 1 else noise)
        self._move(surest, classes)
        self.predictions.zero_()
        self.margins.zero_()
        # Memorised labels are missing in later estimates, and sure examples may have fewer wrong labels than others.
        low, high = max(0.0, min(likeliest, surest) - _ERROR), min(1.0, float(self.highest) + _ERROR)
        return {**record, "surest": surest, "noise": noise, "noise_low": low, "noise_high": high}

    def _move(self, surest: float, classes: int) -> None:
        wanted = min(1.0, max(0.0, (surest - ROBUST_FROM) / (ROBUST_AT - ROBUST_FROM)))
        q = min(wanted, float(self.q) + RAMP)
        scale = TAU / (1 - 0.6 * surest) / max(TAU, math.log(max(classes - 1, 1)))
        self.restore({"q": q, "scale": 1 - q + q * scale})

    def restore(self, record: Mapping[str, float]) -> None:
        self.q.fill_(record["q"])
        self.scale.fill_(record["scale"])


def _cell(values: Tensor, low: float, high: float, cells: int) -> Tensor:
    """The cell of each value in a histogram; values outside are in the first and in the last."""
    return ((values - low) * (cells / (high - low))).nan_to_num(0).clamp(0, cells - 1).long()


def _among_surest(predictions: Tensor) -> float:
    """The share of the surest examples of every group whose label differs from the prediction."""
    counts = predictions.flip(1).double()  # the surest first
    seen = counts.sum(2)
    before = seen.cumsum(1) - seen
    wanted = (SUREST * seen.sum(1, keepdim=True) - before).clamp(min=0)
    part = (wanted / seen.clamp(min=1)).clamp(max=1)  # the last cell is counted in part
    return float((part * counts[:, :, 1]).sum() / (part * seen).sum())


def _likeliest_rate(margins: Tensor, classes: int) -> float:
    """The rate of symmetric noise under which the labels are most likely, by expectation maximisation on a histogram of margins."""
    width = 2 * _WIDEST / _CELLS
    middles = torch.arange(_CELLS, dtype=torch.float64) * width + (width / 2 - _WIDEST)
    rate = 0.5 * (1 - 1 / max(classes, 2))
    for _ in range(_ROUNDS):
        wrong = (-middles - math.log((1 - rate) * max(classes - 1, 1) / rate)).sigmoid()
        rate = max(1e-6, float((wrong * margins).sum() / margins.sum()))
    return rate
