"""One update: gather, augment, forward, loss, backward, update, record. On a GPU all of it is one CUDA graph.

A step stores its results in tensors on the device and reads nothing back, so the host does not wait until the epoch ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from noisewise.data import Augmentation, Dataset, smallest_part
from noisewise.losses import Accumulation, Adaptive, Loss
from noisewise.margin import margin
from noisewise.methods import Batch, LossPull, Method, Pull, State
from noisewise.models import Classifier
from noisewise.train._optimisers import Updater


@dataclass
class Tally:
    """The sums over the steps of an epoch, on the device.

    Args:
        margins: the margin of every example when it was last seen; NaN before.
        predictions: the class with the highest score at that time; −1 before.
        pull: Σ η w over right and over wrong labels, where w is half the L1 norm of ∂L/∂scores and η the learning rate.
        eta: Σ η over right and over wrong labels.
        emphasis: Σ w over right and over wrong labels.
        number: the number of right and of wrong labels seen.
        loss: Σ loss, unless it follows from the margins.
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

        predictions = torch.full((number,), -1, dtype=torch.int64, device=device)
        margins = torch.full((number,), torch.nan, device=device)
        return cls(margins, predictions, zeros(2), zeros(2), zeros(2), zeros(2), zeros(), predictions.new_full((), -1), zeros())

    def clear(self) -> None:
        for part in fields(Tally):
            getattr(self, part.name).fill_({"margins": torch.nan, "predictions": -1, "bad_step": -1}.get(part.name, 0))

    def settle(self) -> None:
        """Sum up what was noted and added. Call it at the end of an epoch."""

    def gather(self) -> None:
        """Combine the tallies of all processes of a data-parallel run."""
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
        """Store margins and predictions of some examples at the step with this number. A margin is not finite if the loss is not."""
        self.note_margins(index, margins, scores.argmax(1), number)
        self.worst.copy_(torch.fmax(self.worst, scores.abs().amax().double()))

    @torch.no_grad()
    def note_margins(self, index: Tensor, margins: Tensor, predictions: Tensor, number: Tensor) -> None:
        """`note` without scores."""
        self.margins[index] = margins.to(self.margins.dtype)
        self.predictions[index] = predictions
        broken = ~torch.isfinite(margins.sum()) & (self.bad_step < 0)
        self.bad_step.copy_(torch.where(broken, number, self.bad_step))

    @torch.no_grad()
    def add(self, sums: Tensor, counts: Tensor, eta: Tensor) -> None:
        """Add the sums of a batch (Σ w of right labels, of wrong labels, Σ loss) and its numbers of right and wrong labels."""
        self.emphasis += sums[:2]
        self.pull += eta * sums[:2]
        self.eta += eta * counts
        self.number += counts
        self.loss += sums[2]

    def metrics(self, truth_known: bool) -> dict[str, Any]:
        """The emphasis of the epoch for a line of metrics; separately for right and wrong labels if the true labels are known."""
        pull, eta = self.pull.tolist(), self.eta.tolist()
        groups = ("clean", "noisy") if truth_known else ("all",)
        return {
            "mean_emphasis": float(self.emphasis.sum()) / float(self.number.sum()),
            "emphasis": {group: {"pull": pull[position], "eta": eta[position]} for position, group in enumerate(groups)},
        }


@dataclass
class LateTally(Tally):
    """A tally for the CPU, where a small operation costs as much as the arithmetic of a small batch.

    It collects the results of steps and sums them up when `settle` is called, in the same order and so with the same bits.

    Args:
        seen: of every batch, the number of its step, the sum of its margins, and its highest |score|.
        sums: of every step, the arguments of `add`.
    """

    seen: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    sums: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def clear(self) -> None:
        self.seen.clear()
        self.sums.clear()
        super().clear()

    def note(self, index: Tensor, scores: Tensor, margins: Tensor, number: Tensor) -> None:
        self.margins[index] = margins.to(self.margins.dtype)
        self.predictions[index] = scores.argmax(1)
        self.seen.append((int(number), margins.sum(), scores.abs().amax()))

    def add(self, sums: Tensor, counts: Tensor, eta: Tensor) -> None:
        self.sums.append((sums, counts, eta))

    @torch.no_grad()
    def settle(self) -> None:
        if self.seen:
            numbers, totals, highest = zip(*self.seen, strict=True)
            broken = torch.stack(totals).isfinite().logical_not().nonzero()
            if len(broken) and int(self.bad_step) < 0:
                self.bad_step.fill_(numbers[int(broken[0])])
            known = torch.stack(highest).double()
            self.worst.copy_(torch.fmax(self.worst, known.masked_fill(known.isnan(), 0).amax()))
        if self.sums:
            sums, counts, eta = (torch.stack(column) for column in zip(*self.sums, strict=True))
            pull, loss = sums[:, :2], sums[:, 2]
            eta = eta.unsqueeze(1)
            for total, parts in (
                (self.emphasis, pull),
                (self.pull, eta * pull),
                (self.eta, eta * counts),
                (self.number, counts),
                (self.loss, loss),
            ):
                total.copy_(torch.cat([total.unsqueeze(0), parts]).cumsum(0)[-1])  # torch.sum would add in another order
        self.seen.clear()
        self.sums.clear()


def right_and_wrong(data: Dataset) -> Tensor:
    """A mask shaped (2, N): row 0 is 1 for right labels, row 1 for wrong ones. Labels count as right if the true labels are not known."""
    wrong = data.wrong if data.wrong is not None else torch.zeros_like(data.labels, dtype=torch.bool)
    return torch.stack([~wrong, wrong]).double()


Prepare = Callable[[Tensor], Tensor]
"""Turns raw inputs into inputs of the model."""


class Scorer(nn.Module):
    """A model whose scores are float32 even if it computes in bfloat16, because large scores lose their order in half precision.

    The last layer of built-in models is computed in float32 too.
    """

    def __init__(self, model: nn.Module, half: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.half_precision = half
        self.ends_in_head = isinstance(model, Classifier) and type(model).forward is Classifier.forward

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.half_precision:
            return self.model(inputs).float()  # type: ignore[no-any-return]
        if self.ends_in_head:
            return self.head(self.features(inputs))
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
            return self.model(inputs).float()  # type: ignore[no-any-return]

    def features(self, inputs: Tensor) -> Tensor:
        """The embedding, the input of `head`."""
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=self.half_precision):
            return self.model.features(inputs).float()  # type: ignore[no-any-return]

    def head(self, features: Tensor) -> Tensor:
        """The scores of embeddings."""
        return self.model.head(features)  # type: ignore[no-any-return]


class Networks(nn.Module):
    """The forward pass of a method in training, as one module that data parallelism can wrap.

    Args:
        networks: compute scores.
        method: combines them.
        state: the state of the method.
    """

    def __init__(self, networks: Sequence[nn.Module], method: Method, state: State) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.method, self.state = method, state

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        return self.method.scores(tuple(self.networks), self.state, batch)


class Step:
    """The update of one batch.

    Args:
        networks: computes the scores of a batch: a `Networks`, perhaps inside data parallelism.
        models: the networks themselves.
        method: the training rule.
        state: its state.
        loss: the loss, with reduction "mean".
        updater: updates the parameters.
        data: the training set, with labels on the device; also its inputs, unless batches bring them.
        prepare: turns raw inputs into inputs of the model, with augmentation.
        clip: the largest gradient norm, or None.
        accumulate: the number of parts of a batch.
        batch_size: the size of all batches but the last.
        total: the number of steps of the training.
        generator: random numbers of the method.
        tally: the class of the tally.
    """

    def __init__(
        self,
        networks: nn.Module,
        models: Sequence[nn.Module],
        method: Method,
        state: State,
        loss: Loss,
        updater: Updater,
        data: Dataset,
        prepare: Prepare,
        clip: float | None,
        accumulate: int,
        batch_size: int,
        total: int,
        generator: torch.Generator,
        tally: type[Tally] = Tally,
    ) -> None:
        device = data.labels.device
        self.networks, self.models, self.method, self.state = networks, models, method, state
        self.loss, self.updater, self.data, self.prepare = loss.to(device).eval(), updater, data, prepare
        self.adaptive = self.loss if isinstance(self.loss, Adaptive) else None
        self.clip, self.accumulate, self.total, self.generator = clip, accumulate, total, generator
        self.tally = tally.of(len(data), device)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.zero = torch.zeros((), dtype=torch.float64, device=device)
        self.groups = right_and_wrong(data)
        self.pull = LossPull(self.loss, accumulates=accumulate > 1)
        self.value_from_margins = self.pull.by_emphasis and method.follows_the_loss
        self.accumulation = Accumulation(loss) if accumulate > 1 and loss.depends_on_batch else None
        self.weights = self._weights()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.least = smallest_part(batch_size, accumulate * self.world)

    def _weights(self) -> Tensor | None:
        """The weight of every example in a mean; None if all are equal."""
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
            index: the positions. With more processes than examples, some processes get the same example, which counts once.
            inputs: the inputs of these examples, if the data set does not have them in memory.
            whole: the size of the batch over all processes.
        """
        self.updater.zero_grad()
        inputs, whole = self.data.inputs[index] if inputs is None else inputs, whole or len(index)
        stands_in = self.rank >= whole
        mean_weight = self._mean_weight(index[:0] if stands_in else index, whole)
        # Processes wait for each other in every part, so all need the same number of parts, none empty. Batch normalisation cannot
        # take parts of one example, so these occur only if the settings ask for them.
        number = max(1, min(self.accumulate, whole // (self.least * self.world)))
        parts = [(index, inputs)] if number == 1 else zip(index.tensor_split(number), inputs.tensor_split(number), strict=True)
        progress = self.number / self.total
        with self.accumulation or nullcontext():
            batches = (self._batch(*part, whole, progress, stands_in) for part in parts)
            sums: Tensor = sum(self._stand_in(batch) if stands_in else self._part(batch, mean_weight) for batch in batches)  # type: ignore[assignment]
        if self.accumulation is not None:
            sums = sums / self.accumulation.divide(self.updater.parameters)
        if not stands_in:
            self.tally.add(sums, self.groups[:, index].sum(1), self.updater.lr.double())
        if self.clip is not None:
            self.updater.clip(self.clip)
        self.updater.step()
        self.method.after_step(self.models, self.state)
        self.number += 1

    def _batch(self, index: Tensor, inputs: Tensor, whole: int, progress: Tensor, stands_in: bool) -> Batch:
        labels = self.data.labels[index]
        return Batch(index, labels, inputs, self.prepare, whole, self.updater.lr, progress, self.generator, stands_in)

    def _mean_weight(self, index: Tensor, whole: int) -> Tensor | None:
        """The mean weight of the examples of a batch, over all processes."""
        if self.weights is None:
            return None
        total = self.weights[index].sum()
        if self.world > 1:
            dist.all_reduce(total)
        return torch.where(total == 0, 1.0, total / whole)

    def _part(self, batch: Batch, mean_weight: Tensor | None) -> Tensor:
        """Backpropagate some examples; return the sums of their emphases, for right and for wrong labels, and of their losses."""
        scores = self.networks(batch)
        leaves = tuple(each.detach() for each in scores)
        pulls = self.method.pulls(self.pull, self.state, batch, leaves)
        if self.data.sample_weight is not None:
            pulls = tuple(pull.weighted(self.data.sample_weight[batch.index].float()) for pull in pulls)
        size = 1.0 if mean_weight is None else 1 / mean_weight
        # The loss is a mean over the whole batch; data parallelism divides by the number of processes.
        torch.autograd.backward(scores, [pull.gradient * (size * self.world / batch.whole) for pull in pulls])
        if self.method.embeds:  # the record has scores only
            leaves, pulls = leaves[: len(leaves) // 2], pulls[: len(pulls) // 2]
        with torch.no_grad():
            combined = leaves[0] if len(leaves) == 1 else torch.stack(leaves).mean(0)
            value = _mean([self.zero if pull.value is None else pull.value.double().sum() for pull in pulls])
            margins = pulls[0].margin if len(pulls) == 1 else None
            margins = margin(combined, batch.labels) + 0 * value if margins is None else margins
            self.tally.note(batch.index, combined, margins, self.number)
            if self.adaptive is not None:
                self.adaptive.observe(combined, batch.labels)
            emphasis = _mean([_emphasis(pull) for pull in pulls])
            sums = torch.cat([self.groups[:, batch.index] @ emphasis.double(), value.view(1)])
            return sums if mean_weight is None else size * sums

    def _stand_in(self, batch: Batch) -> Tensor:
        """Do a pass that changes nothing, for a process without examples: the other processes wait for its communication."""
        scores = self.networks(batch)
        leaves = tuple(each.detach() for each in scores)
        if self.loss.depends_on_batch:
            for each in leaves:
                self.loss(each, torch.full_like(batch.index, self.loss.ignore_index))
        else:
            self.method.pulls(self.pull, self.state, batch, leaves)
        torch.autograd.backward(scores, [torch.zeros_like(each) for each in scores])
        return torch.zeros_like(self.tally.loss).expand(3)

    def mean_loss(self) -> float:
        """The mean loss of the examples of the epoch."""
        if not self.value_from_margins:
            return float(self.tally.loss) / float(self.tally.number.sum())
        margins = self.tally.margins
        with torch.no_grad():
            return float(self.loss.of_margin(margins[~margins.isnan()], len(self.data.classes)).double().mean())  # type: ignore[operator]

    def share_state(self) -> None:
        """Copy the rows of the method's state that each process changed to all others. Call it before `Tally.gather`."""
        changed = ~self.tally.margins.isnan()
        number = changed.double()
        dist.all_reduce(number)
        for name in self.method.per_example:
            rows = self.state[name]
            mask, anywhere = (each.view(-1, *[1] * (rows.dim() - 1)) for each in (changed, number > 0))
            shared = torch.where(mask, rows, torch.zeros_like(rows))
            dist.all_reduce(shared)
            rows.copy_(torch.where(anywhere, shared, rows))


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tuple(tensors)).mean(0)


def _emphasis(pull: Pull) -> Tensor:
    return 0.5 * pull.gradient.abs().sum(1) if pull.emphasis is None else pull.emphasis


class Scoring:
    """Computes margins and predictions of a data set in eval mode, batch by batch.

    Args:
        score: computes scores.
        data: the data set, with labels on the device; also its inputs, unless batches bring them.
        prepare: turns raw inputs into inputs of the model.

    Attributes:
        margins: the margins of the given labels.
        predictions: the classes with the highest score.
    """

    def __init__(self, score: Callable[[Tensor], Tensor], data: Dataset, prepare: Prepare) -> None:
        self.score, self.data, self.prepare = score, data, prepare
        self.margins = torch.full((len(data),), torch.nan, device=data.labels.device)
        self.predictions = torch.full_like(data.labels, -1)

    @torch.no_grad()
    def __call__(self, index: Tensor, inputs: Tensor | None = None) -> None:
        scores = self.score(self.prepare(self.data.inputs[index] if inputs is None else inputs))
        self.margins[index] = margin(scores, self.data.labels[index])
        self.predictions[index] = scores.argmax(1)


class GraphedStep:
    """A step captured in CUDA graphs, one for every batch size (the last batch of an epoch is smaller).

    Args:
        step: the step, of training or of scoring; its data set is on the device.
        generators: the random generators it uses.
        state: every tensor that a step changes and reads again; warming up restores them.
    """

    def __init__(self, step: Step | Scoring, generators: tuple[torch.Generator, ...], state: Callable[[], list[Tensor]]) -> None:
        self._step, self._generators, self._state = step, generators, state
        self._graphs: dict[int, tuple[Tensor, Any]] = {}
        self._pool: Any = None

    def __call__(self, index: Tensor, inputs: Tensor | None = None, whole: int | None = None) -> None:
        if len(index) not in self._graphs:
            self._graphs[len(index)] = self._capture(index)
        static_index, graph = self._graphs[len(index)]
        static_index.copy_(index)
        graph.replay()

    def run_undone(self, index: Tensor) -> None:
        """Run the step once without a graph, and restore its state."""
        with self._restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the numbers may be arbitrary
            self._step(index)

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Restore the state and the generators after the block."""
        values = [tensor.clone() for tensor in self._state()]
        seeds = [generator.get_state() for generator in self._generators]
        yield
        for tensor, value in zip(self._state(), values, strict=True):
            tensor.copy_(value)
        for generator, seed in zip(self._generators, seeds, strict=True):
            generator.set_state(seed)

    def _capture(self, index: Tensor) -> tuple[Tensor, Any]:
        static_index = index.clone()
        with self._restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that gradients were first computed on another stream
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._step(static_index)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                graph.register_generator_state(generator)
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(static_index)
            torch.cuda.synchronize()  # torch seeds the generators on the capture stream, and a replay does not wait for it
        self._pool = self._pool or graph.pool()
        return static_index, graph


def prepared(augment: Augmentation, normalise: Augmentation | None, generator: torch.Generator, last: bool) -> Prepare:
    """Make a function that augments and normalises raw inputs; `last` says that the model takes images with channels last."""

    def prepare(inputs: Tensor) -> Tensor:
        if inputs.dim() == 4:
            inputs = augment(inputs, generator)
        if normalise is not None:
            inputs = normalise(inputs)
        elif not inputs.is_floating_point():
            inputs = inputs.float()
        return inputs.contiguous(memory_format=torch.channels_last) if last and inputs.dim() == 4 else inputs

    return prepare
