"""The loss without hyper-parameters: it estimates the noise rate while it trains, and becomes robust when wrong labels are memorised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.exact import at_least_float, log_softmax
from noisewise.extensions import extension
from noisewise.losses._adaptive import Adaptive
from noisewise.margin import margin_of_log_prob

SUREST = 0.25
"""The share of the examples predicted as a class whose labels are compared with the prediction."""

LEARNS, MEMORISES = 0.80, 0.95
"""q rises from 0 to 1 as the model reproduces the first to the second share of the labels that may be right."""

BALANCED = 0.5
"""The model memorises if the share of other labels among its surest predictions is below this part of the share among all."""

CLEAN, NOISY = 0.03, 0.10
"""With up to the first noise rate, the loss is cross-entropy; from the second on, the rate does not limit how robust it is."""

START, RAMP = 0.85, 0.25
"""q in the first epoch, and its largest change in one epoch."""

COVERED = 0.3
"""A class is given up if it is predicted for less than this share of its labels that may be right."""

LEARNING = 0.35
"""The least q while labels look wrong."""

PATIENCE = 0.15
"""The share of the way down to a lower estimate of the noise rate that is taken in one epoch."""

MARGIN = 0.04
"""What is added to the noise rate before it is compared with the labels that differ from the predictions."""

LARGEST, LARGEST_FROM, GROWTH = 3.0, 0.40, 1.5
"""The largest size of the loss, the noise rate from which on it may be so large, and the largest factor in one epoch."""

TAU = 2.0
"""The scaled MAE starts at the margin −2, as the curriculum paper's for clean labels, and further below 0 with noise."""

_ERROR = 0.02  # of the estimate, at least
_GROUPS, _STEPS = 128, 64  # of the table of predictions: classes (modulo the groups) by sureness
_LOWEST, _HIGHEST = -6.0, 14.0  # the range of sureness: the margin of the predicted class
_CELLS, _WIDEST = 512, 32.0  # of the histogram of margins: its cells, and where it ends on both sides
_ROUNDS = 100
_DECIDED = ("q", "assumed", "size")  # what `now` contains
_TOGETHER = 2**16  # scores that are noted together on the CPU


class Auto(Adaptive, name="auto"):
    """Between cross-entropy and a scaled MAE, as far as wrong labels are memorised. It needs no hyper-parameter and no noise rate.

    It is a `gce` at a scaled margin. A model that knows all classes reproduces the right labels only: a share 1 − η. One that reproduces
    much less still learns, and the loss moves towards cross-entropy. One that reproduces more memorises, and the loss becomes a scaled MAE.

    - e, the noise rate, is the larger of two: the share of labels other than the prediction among the surest quarter of every predicted
      class; and the rate of symmetric noise under which the labels are most likely.
    - η follows e: upwards at once, and downwards by 15 % of the way an epoch, because memorised labels are missing in e.
    - a = (1 − D) / (0.96 − η), where D is the share of all labels that differ from the prediction.
    - q is 0.85 in the first two epochs, and then moves to clip((a − 0.80) / 0.15, 0.35, 1), by at most 0.25 an epoch; to 1 if the share
      of other labels among the surest is below D / 2, so that they were memorised. If a class was predicted for fewer than 0.3 of its
      labels that may be right, q moves to 0.35 instead. In any epoch, q is at most (e − 0.03) / 0.07.
    - c = 1 − q + q · 2 / ((1 − 0.6 η) max(2, log(C − 1))), with η = 0 in the first epoch.
    - s is 1 in the first epoch, and then what makes the loss pull as hard as cross-entropy would at the margins of the epoch before: at
      least 1, at most 1 + 2 min(1, η / 0.4), and at most 1.5 times as large as before. A robust loss pulls less hard otherwise, and
      underfits in a short training.

    `fit` moves it after every epoch. In your own loop, call `update` once an epoch, or record the loop with `noisewise.Recorder`.

    Formula:
        l(p) = s (1 − σ(cΔ)^q) / (q c)
        w = s σ(cΔ)^q σ(−cΔ)

    Example:
        >>> loss = Auto()
        >>> scores = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]], requires_grad=True)
        >>> loss(scores, torch.tensor([0, 0])).detach()
        tensor(0.5869)
        >>> loss.update()["noise"]  # the estimated noise rate
        0.5

    Reference:
        noisewise; the parts are those of Zhang & Sabuncu (gce) and of A curriculum view of robust loss functions, section 5.1 (scaling).
    """

    examples: ClassVar[tuple[str, ...]] = ("auto",)

    predictions: Tensor
    labels: Tensor
    margins: Tensor
    now: Tensor
    highest: Tensor
    classes: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("predictions", torch.zeros(_GROUPS, _STEPS, 2, dtype=torch.int64))  # with the same label, and with another
        self.register_buffer("labels", torch.zeros(_GROUPS, dtype=torch.int64))
        self.register_buffer("margins", torch.zeros(_CELLS, dtype=torch.int64))
        self.register_buffer("now", torch.tensor([START, 0.0, 1.0], dtype=torch.float32))
        self.register_buffer("highest", torch.zeros(()))  # noise rate since q is 1
        self.register_buffer("classes", torch.zeros((), dtype=torch.int64))
        self.waiting: list[tuple[Tensor, Tensor]] = []  # batches that are not in the counts yet

    @property
    def q(self) -> Tensor:
        """The exponent in this epoch."""
        return self.now[0]

    @property
    def noise(self) -> Tensor:
        """The noise rate that is assumed in this epoch."""
        return self.now[1]

    @property
    def size(self) -> Tensor:
        """The factor of the loss in this epoch."""
        return self.now[2]

    def scale(self, classes: int) -> Tensor | float:
        """The factor of the margin: the scaled MAE starts with a pull that does not depend on the number of classes."""
        q, noise, _ = self.decided()
        start = max(TAU, math.log(max(classes - 1, 1)))
        factor: Tensor | float = 1 - q + q * (TAU / start) / (1 - 0.6 * noise)
        return factor

    def value(self, d: Tensor) -> Tensor:
        log_p, q = logsigmoid(d), self.decided()[0]
        if isinstance(q, float):
            return (q * log_p).expm1() / -q if q > 0 else -log_p
        return -torch.where(q > 0, (q * log_p).expm1() / torch.where(q > 0, q, 1.0), log_p)

    def emphasis(self, d: Tensor) -> Tensor:
        q = self.decided()[0]
        if isinstance(q, float):
            return (q * logsigmoid(d)).exp() * (-d).sigmoid() if q > 0 else (-d).sigmoid()
        return torch.where(q > 0, q * logsigmoid(d), 0.0).exp() * (-d).sigmoid()

    def of_margin(self, d: Tensor, classes: int) -> Tensor:
        scale = self.scale(classes)
        loss: Tensor = super().of_margin(scale * d, classes) * (self.decided()[2] / scale)
        return loss

    def emphasis_of(self, d: Tensor, classes: int) -> Tensor:
        emphasis: Tensor = self.decided()[2] * self.emphasis(self.scale(classes) * d)
        return emphasis

    def observe(self, scores: Tensor, labels: Tensor) -> None:
        if scores.device.type != "cpu" or torch.compiler.is_compiling():
            self.note(scores, labels)  # a captured CUDA graph runs no Python
            return
        self.waiting.append((scores.detach().clone(), labels.clone()))
        if sum(scores.numel() for scores, _ in self.waiting) >= _TOGETHER:
            self.settle()

    @torch.no_grad()
    def note(self, scores: Tensor, labels: Tensor) -> None:
        """Count the predictions, labels and margins of these examples."""
        self.classes.fill_(scores.shape[1])
        counts, edges = (self.predictions, self.labels, self.margins), (_LOWEST, _HIGHEST, _WIDEST)
        if extension("counting of predictions")(scores, labels, self.ignore_index, *counts, edges):
            return
        kept = labels != self.ignore_index
        predicted = scores.argmax(1)
        both = torch.stack([predicted, labels.masked_fill(~kept, 0)], 1)
        sureness, margins = margin_of_log_prob(log_softmax(at_least_float(scores)).gather(1, both)).unbind(1)
        row = (predicted % _GROUPS) * _STEPS + _cell(sureness, _LOWEST, _HIGHEST, _STEPS)
        self.predictions.view(-1).index_add_(0, 2 * row + (predicted != labels), kept.long())
        self.margins.index_add_(0, _cell(margins, -_WIDEST, _WIDEST, _CELLS), kept.long())
        self.labels.index_add_(0, labels.masked_fill(~kept, 0) % _GROUPS, kept.long())

    def settle(self) -> None:
        """Note the batches that wait. On the CPU, noting several batches at once takes a fraction of the time."""
        if self.waiting:
            scores, labels = zip(*self.waiting, strict=True)
            self.waiting.clear()
            self.note(torch.cat(scores), torch.cat(labels))

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.settle()
        super()._save_to_state_dict(*args, **kwargs)

    def update(self) -> dict[str, float]:
        self.settle()
        if dist.is_available() and dist.is_initialized():
            for counts in (self.predictions, self.labels, self.margins):
                dist.all_reduce(counts)
            dist.all_reduce(self.classes, dist.ReduceOp.MAX)
        record = dict(zip(_DECIDED, self.now.tolist(), strict=True))
        predictions, labels, margins = self.predictions.cpu(), self.labels.cpu(), self.margins.cpu()
        if not margins.any():
            return record
        likeliest, doubt = _likeliest_rate(margins, int(self.classes)), _doubt_of_surest(predictions)
        noise = max(likeliest, doubt)  # the first is too low while the model is unsure because of the noise
        # Both fall with memorisation too, so a lower estimate is believed slowly.
        assumed = max(noise, record["assumed"] + PATIENCE * (noise - record["assumed"]))
        self.highest.fill_(max(noise, float(self.highest)) if self.q == 1 else noise)
        covered = _least_covered(predictions, labels, doubt)
        disagreement = float(predictions[:, :, 1].sum() / predictions.sum())
        reproduced = (1 - disagreement) / max(1 - assumed - MARGIN, _ERROR)
        # In a model that memorises, sure examples have few wrong labels, although many labels differ from the predictions.
        wanted = 1.0 if doubt < BALANCED * disagreement else max(_between(reproduced, LEARNS, MEMORISES), LEARNING)
        if covered <= COVERED:
            wanted = LEARNING
        elif not record["assumed"]:  # the first epoch begins with an untrained model, so what it reproduces says little
            wanted = START
        q = min(max(wanted, record["q"] - RAMP), record["q"] + RAMP, _between(noise, CLEAN, NOISY))
        self.restore({"q": q, "assumed": assumed, "size": 1.0})
        largest = 1 + (LARGEST - 1) * min(1.0, assumed / LARGEST_FROM)
        size = min(max(1.0, self._pull_of_ce(margins)), GROWTH * record["size"], largest)
        self.restore({"q": q, "assumed": assumed, "size": size})
        for counts in (self.predictions, self.labels, self.margins):
            counts.zero_()
        # Memorised labels are missing in later estimates, and sure examples may have fewer wrong labels than others.
        low, high = max(0.0, min(likeliest, doubt) - _ERROR), min(1.0, float(self.highest) + _ERROR)
        saw = {"doubt": doubt, "covered": covered, "disagreement": disagreement}
        return {**record, **saw, "noise": noise, "noise_low": low, "noise_high": high}

    def restore(self, record: Mapping[str, float]) -> None:
        for place, name in enumerate(_DECIDED):
            self.now[place].fill_(record[name])

    def _pull_of_ce(self, margins: Tensor) -> float:
        """How hard cross-entropy pulls at these margins, compared with this loss."""
        middles = _middles()
        own = self.emphasis_of(middles.to(self.now.device), int(self.classes)).double().cpu()
        return float((margins * (-middles).sigmoid()).sum() / (margins * own).sum().clamp(min=torch.finfo(own.dtype).tiny))


def _between(value: float, low: float, high: float) -> float:
    """0 up to the first bound, 1 from the second on, and linear between them."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _cell(values: Tensor, low: float, high: float, cells: int) -> Tensor:
    """The cell of each value in a histogram; values outside are in the first and in the last."""
    return ((values - low) * (cells / (high - low))).nan_to_num(0).clamp(0, cells - 1).long()


def _doubt_of_surest(predictions: Tensor) -> float:
    """The share of the surest examples of every group whose label differs from the prediction."""
    counts = predictions.flip(1).double()  # the surest first
    seen = counts.sum(2)
    before = seen.cumsum(1) - seen
    wanted = (SUREST * seen.sum(1, keepdim=True) - before).clamp(min=0)
    part = (wanted / seen.clamp(min=1)).clamp(max=1)  # the last cell is counted in part
    return float((part * counts[:, :, 1]).sum() / (part * seen).sum())


def _least_covered(predictions: Tensor, labels: Tensor, doubt: float) -> float:
    """The smallest ratio of the predictions of a class to its labels that may be right."""
    given = labels > 0
    return float((predictions.sum((1, 2))[given] / labels[given]).min()) / max(1 - doubt, _ERROR)


def _middles() -> Tensor:
    """The middles of the cells of the histogram of margins."""
    width = 2 * _WIDEST / _CELLS
    return torch.arange(_CELLS, dtype=torch.float64) * width + (width / 2 - _WIDEST)


def _likeliest_rate(margins: Tensor, classes: int) -> float:
    """The rate of symmetric noise under which the labels are most likely, by expectation maximisation on a histogram of margins."""
    middles = _middles()
    rate = 0.5 * (1 - 1 / max(classes, 2))
    for _ in range(_ROUNDS):
        wrong = (-middles - math.log((1 - rate) * max(classes - 1, 1) / rate)).sigmoid()
        rate = max(1e-6, float((wrong * margins).sum() / margins.sum()))
    return rate
