"""One update: gather, augment, forward, loss, backward, update, record. On a GPU all of it is one CUDA graph.

A step leaves everything it learns about its examples in tensors on the device and reads nothing back, so the host is free
until the epoch ends. This module must not know epochs, files or evaluation.
"""

from __future__ import annotations

import copy
import functools
import operator
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from noisewise.data import Augmentation, Dataset, smallest_part
from noisewise.exact import margin_of
from noisewise.kernels import loss_and_gradient, usable
from noisewise.losses import Accumulation, Loss, MarginLoss, before_batch_normalisation
from noisewise.margin import margin
from noisewise.models import Classifier
from noisewise.train._optimisers import Updater


@dataclass
class Tally:
    """What an epoch's steps add up, on the device.

    Args:
        margins: of every example when its turn came; NaN before.
        predictions: the class with the highest score then; −1 before.
        pull: Σ η w over right and over wrong labels, where w is half the L1 norm of ∂L/∂scores and η the learning rate.
        eta: Σ η over the same.
        emphasis: Σ w over the same.
        number: how many right and wrong labels there were; an example that came twice counts twice.
        loss: Σ loss, where it does not follow from the margins.
        bad_step: the first step whose loss was not finite, or −1.
        worst: the largest |score| so far.
    """

    margins: Tensor
    predictions: Tensor
    pull: Tensor
    eta: Tensor
    emphasis: Tensor
    number: Tensor
    loss: Tensor
    bad_step: Tensor
    worst: Tensor

    @classmethod
    def of(cls, number: int, device: torch.device) -> Tally:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        whole = torch.full((number,), -1, dtype=torch.int64, device=device)
        nan = torch.full((number,), torch.nan, device=device)
        return cls(nan, whole, zeros(2), zeros(2), zeros(2), zeros(2), zeros(), whole.new_full((), -1), zeros())

    def clear(self) -> None:
        for name, value in vars(self).items():
            value.fill_({"margins": torch.nan, "predictions": -1, "bad_step": -1}.get(name, 0))

    def gather(self) -> None:
        """Put together what the processes of a data-parallel run tallied, every example once."""
        never = torch.iinfo(self.bad_step.dtype).max
        self.margins.nan_to_num_(nan=-torch.inf)
        self.bad_step.masked_fill_(self.bad_step < 0, never)
        dist.all_reduce(self.bad_step, dist.ReduceOp.MIN)
        for value in (self.margins, self.predictions, self.worst):
            dist.all_reduce(value, dist.ReduceOp.MAX)
        self.margins.masked_fill_(self.margins == -torch.inf, torch.nan)
        self.bad_step.masked_fill_(self.bad_step == never, -1)
        for value in (self.pull, self.eta, self.emphasis, self.number, self.loss):
            dist.all_reduce(value)

    @torch.no_grad()
    def note(self, index: Tensor, scores: Tensor, margins: Tensor, number: Tensor) -> None:
        """Note what a step showed of some examples.

        Args:
            index: their positions.
            scores: (N, C).
            margins: of their labels; not finite where the loss is not.
            number: of the step.
        """
        self.margins[index] = margins.to(self.margins.dtype)
        self.predictions[index] = scores.argmax(1)
        broken = ~torch.isfinite(margins.sum()) & (self.bad_step < 0)
        self.bad_step.copy_(torch.where(broken, number, self.bad_step))
        self.worst.copy_(torch.fmax(self.worst, scores.abs().amax().double()))

    @torch.no_grad()
    def add(self, sums: Tensor, counted: Tensor, eta: Tensor) -> None:
        """Add up what a batch showed.

        Args:
            sums: Σ w of right labels, of wrong labels, and Σ loss.
            counted: how many right and wrong labels it had.
            eta: the learning rate.
        """
        self.emphasis += sums[:2]
        self.pull += eta * sums[:2]
        self.eta += eta * counted
        self.number += counted
        self.loss += sums[2]

    def shown(self, told_apart: bool) -> dict[str, Any]:
        """How hard the loss pulled, as a line of metrics has it; right and wrong labels for themselves where they are told apart."""
        pull, eta = self.pull.tolist(), self.eta.tolist()
        groups = ("clean", "noisy") if told_apart else ("all",)
        return {
            "mean_emphasis": float(self.emphasis.sum()) / float(self.number.sum()),
            "emphasis": {group: {"pull": pull[position], "eta": eta[position]} for position, group in enumerate(groups)},
        }


def right_and_wrong(data: Dataset) -> Tensor:
    """(2, N) 1 where a label is right and where it is wrong; all are right where that is not known."""
    wrong = data.wrong if data.wrong is not None else torch.zeros_like(data.labels, dtype=torch.bool)
    return torch.stack([~wrong, wrong]).double()


Prepare = Callable[[Tensor], Tensor]
"""Turns raw inputs into what a model takes."""


class Scorer(nn.Module):
    """A model whose scores are float32 whatever its body computes in: large scores lose their order in half precision.

    The last layer of our own models is computed in float32 too; where another module has one, only its author knows.
    """

    def __init__(self, model: nn.Module, half: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.half_precision = half
        self.ends_in_head = isinstance(model, Classifier) and type(model).forward is Classifier.forward

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.half_precision:
            return self.model(inputs).float()  # type: ignore[no-any-return]
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
            found = self.model.features(inputs) if self.ends_in_head else self.model(inputs)
        return self.model.head(found.float()) if self.ends_in_head else found.float()  # type: ignore[no-any-return]


class Step:
    """The update of one batch.

    Args:
        scorer: gives scores.
        loss: the loss, with reduction "mean".
        updater: changes the parameters.
        data: the training set; its labels are on the device, its inputs too unless batches bring them.
        prepare: turns raw inputs into what the model takes, augmentation included.
        clip: largest gradient norm, or None.
        accumulate: in how many parts a batch is gone through.
        batch_size: of all batches but the last.
    """

    def __init__(
        self,
        scorer: nn.Module,
        loss: Loss,
        updater: Updater,
        data: Dataset,
        prepare: Prepare,
        clip: float | None,
        accumulate: int,
        batch_size: int,
    ) -> None:
        device = data.labels.device
        self.scorer, self.loss, self.updater, self.data, self.prepare = scorer, loss.to(device), updater, data, prepare
        self.clip, self.accumulate = clip, accumulate
        self.tally = Tally.of(len(data), device)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.groups = right_and_wrong(data)
        # A loss of the margin alone needs no automatic differentiation: its emphasis is its gradient, its value follows later.
        self.by_emphasis = (
            isinstance(loss, MarginLoss) and type(loss).of_margin is MarginLoss.of_margin and not (loss.contract or loss.depends_on_batch)
        )
        # Nor does one that is brought to size over the batch, where a kernel gives emphasis and value together.
        self.by_kernel = self.by_emphasis or (accumulate == 1 and not loss.contract and before_batch_normalisation(loss) is not None)
        self.accumulation = Accumulation(loss) if accumulate > 1 and loss.depends_on_batch else None
        self.weights = self._weights()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.least = smallest_part(batch_size, accumulate * self.world)

    def _weights(self) -> Tensor | None:
        """What every example weighs in a mean, where they do not all weigh the same."""
        if not {"weight", "ignore_index"} & self.loss.contract.keys():
            return None
        weight, kept = self.loss.weight, (self.data.labels != self.loss.ignore_index).double()
        if weight is None:
            return kept
        self.loss.check_weight(len(self.data.classes))
        return kept * weight.double()[self.data.labels]

    def __call__(self, index: Tensor, inputs: Tensor | None = None, whole: int | None = None) -> None:
        """Update on the examples at these positions.

        Args:
            index: the positions; where processes outnumber the examples of a batch, one that is left without gets any of them.
            inputs: of these examples, where the data set does not hold them.
            whole: the size of the batch over all processes.
        """
        self.updater.zero_grad()
        inputs, whole = self.data.inputs[index] if inputs is None else inputs, whole or len(index)
        stands_in = self.rank >= whole
        mean_weight = self._mean_weight(index[:0] if stands_in else index, whole)
        # As many parts in every process, and none empty, because they wait for each other in every part; nor of one example, which
        # batch normalisation cannot take, unless that was asked for.
        number = max(1, min(self.accumulate, whole // (self.least * self.world)))
        parts = zip(index.tensor_split(number), inputs.tensor_split(number), strict=True)
        with self.accumulation or nullcontext():
            found = [self._stand_in(*part) if stands_in else self._part(*part, whole, mean_weight) for part in parts]
        sums = functools.reduce(operator.add, found)
        if self.accumulation is not None:
            sums = sums / self.accumulation.divide(self.updater.parameters)
        if not stands_in:
            self.tally.add(sums, self.groups[:, index].sum(1), self.updater.lr.double())
        if self.clip is not None:
            self.updater.clip(self.clip)
        self.updater.step()
        self.number += 1

    def _mean_weight(self, index: Tensor, whole: int) -> Tensor | None:
        """What the examples of a batch weigh on average, over all processes."""
        if self.weights is None:
            return None
        total = self.weights[index].sum()
        if self.world > 1:
            dist.all_reduce(total)
        return torch.where(total == 0, 1.0, total / whole)

    def _part(self, index: Tensor, inputs: Tensor, whole: int, mean_weight: Tensor | None) -> Tensor:
        """Gradients of some examples; their emphases added up, of right and of wrong labels, and their losses."""
        labels = self.data.labels[index]
        scores = self.scorer(self.prepare(inputs))
        leaf = scores.detach()
        if self.by_kernel and usable(leaf):
            margins, emphasis, gradient, value = self._by_kernel(leaf, labels)
        else:
            margins, emphasis, gradient, value = (self._by_emphasis if self.by_emphasis else self._by_differentiation)(leaf, labels)
        size = 1.0 if mean_weight is None else self.weights[index].mean() / mean_weight  # type: ignore[index]
        # A mean over this part counts for its share of the batch; data parallelism divides by the number of processes.
        scores.backward(gradient * (size * self.world / whole))
        self.tally.note(index, leaf, margins, self.number)
        return size * torch.cat([self.groups[:, index] @ emphasis.double(), value.double().view(1)])

    def _stand_in(self, index: Tensor, inputs: Tensor) -> Tensor:
        """Do what the processes do together, with an example that counts for nothing."""
        scores = self.scorer(self.prepare(inputs))
        if self.loss.depends_on_batch:
            self.loss(scores.detach(), torch.full_like(index, self.loss.ignore_index))
        scores.backward(torch.zeros_like(scores))
        return torch.zeros_like(self.tally.loss).expand(3)

    @torch.no_grad()
    def _by_kernel(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Margins, emphases, ∂(sum of losses)/∂scores and the sum of losses from one kernel."""
        each = copy.copy(self.loss)
        each.reduction = "none"
        found = loss_and_gradient(each, scores, labels)
        return found.margin, found.emphasis, found.gradient, found.value.double().sum()

    @torch.no_grad()
    def _by_emphasis(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same from the emphasis in closed form, but for the losses, which follow from the margins."""
        label = labels.unsqueeze(1)
        margins, pull = margin_of(scores, label, 1)
        emphasis = self.loss.emphasis(margins)  # type: ignore[operator]
        gradient = pull * (emphasis / pull.sum(1, keepdim=True)).nan_to_num(0.0, 0.0)
        return margins.squeeze(1), emphasis.squeeze(1), gradient.scatter_(1, label, -emphasis), torch.zeros_like(self.tally.loss)

    def _by_differentiation(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same for any loss."""
        leaf = scores.requires_grad_()
        value = self.loss(leaf, labels)
        (gradient,) = torch.autograd.grad(value, leaf)
        with torch.no_grad():
            gradient, total = gradient * len(labels), value.double() * len(labels)
            return margin(leaf, labels) + 0 * value, 0.5 * gradient.abs().sum(1), gradient, total  # a margin of NaN where the loss is

    def mean_loss(self) -> float:
        """The mean loss of the examples seen since the tally was cleared."""
        if not self.by_emphasis:
            return float(self.tally.loss) / float(self.tally.number.sum())
        margins = self.tally.margins
        return float(self.loss.value(margins[~margins.isnan()]).double().mean())  # type: ignore[operator]


class Scoring:
    """Margins of the given labels and predictions, in eval mode: what a batch shows is left at the places of its examples.

    Args:
        scorer: gives scores.
        data: the data set; its labels are on the device, its inputs too unless batches bring them.
        prepare: turns raw inputs into what the model takes.

    Attributes:
        margins: of every example so far.
        predictions: the class with the highest score.
    """

    def __init__(self, scorer: nn.Module, data: Dataset, prepare: Prepare) -> None:
        self.scorer, self.data, self.prepare = scorer, data, prepare
        self.margins = torch.full((len(data),), torch.nan, device=data.labels.device)
        self.predictions = torch.full_like(data.labels, -1)

    @torch.no_grad()
    def __call__(self, index: Tensor, inputs: Tensor | None = None) -> None:
        scores = self.scorer(self.prepare(self.data.inputs[index] if inputs is None else inputs))
        self.margins[index] = margin(scores, self.data.labels[index])
        self.predictions[index] = scores.argmax(1)


class GraphedStep:
    """A step captured in CUDA graphs, one for every size of batch (the last of an epoch is smaller).

    Args:
        step: the step, of training or of scoring; its data set lies on the device.
        generators: the random generators it draws from.
        state: every tensor that a step changes and reads again, so that rehearsing it leaves no trace.
    """

    def __init__(self, step: Step | Scoring, generators: tuple[torch.Generator, ...], state: Callable[[], list[Tensor]]) -> None:
        self._step, self._generators, self._state = step, generators, state
        self._graphs: dict[int, tuple[Tensor, Any]] = {}
        self._pool: Any = None

    def __call__(self, index: Tensor, inputs: Tensor | None = None, whole: int | None = None) -> None:
        if len(index) not in self._graphs:
            self._graphs[len(index)] = self._capture(index)
        held, graph = self._graphs[len(index)]
        held.copy_(index)
        graph.replay()

    def _capture(self, index: Tensor) -> tuple[Tensor, Any]:
        held = index.clone()
        kept = [tensor.clone() for tensor in self._state()]
        seeds = [generator.get_state() for generator in self._generators]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that gradients were first made on another stream, which is what is meant here
            for _ in range(3):
                self._step(held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(held)
        torch.cuda.synchronize()  # torch seeds the generators on the stream of the capture, for which a replay does not wait
        self._pool = self._pool or graph.pool()
        for tensor, value in zip(self._state(), kept, strict=True):
            tensor.copy_(value)
        for generator, seed in zip(self._generators, seeds, strict=True):
            generator.set_state(seed)
        return held, graph


def prepared(augment: Augmentation, normalise: Augmentation | None, generator: torch.Generator, last: bool) -> Prepare:
    """Raw inputs to what the model takes: augmented, normalised, in the memory order its convolutions like."""

    def prepare(inputs: Tensor) -> Tensor:
        if inputs.dim() == 4:
            inputs = augment(inputs, generator)
        if normalise is not None:
            inputs = normalise(inputs)
        elif not inputs.is_floating_point():
            inputs = inputs.float()
        return inputs.contiguous(memory_format=torch.channels_last) if last and inputs.dim() == 4 else inputs

    return prepare
