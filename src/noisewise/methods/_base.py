"""The base class of methods: training rules that need more than a loss.

The engine does everything else: data, augmentation, updates, CUDA graphs, checkpoints, data parallelism, the record. In every step it asks
the method for the scores of its networks (`scores`) and for the gradient with respect to them (`pulls`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.losses import Loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import Named, Registry

registry: Registry[Method] = Registry("method")
"""The methods by name."""

State = dict[str, Tensor]
"""The tensors that a method keeps, by name. They change in place only, and are saved in checkpoints."""


@dataclass(frozen=True)
class Scored:
    """The training set as the networks score it between two epochs, in eval mode and without augmentation. Computed on demand.

    Args:
        scores: the scores of a network, by its number, or the combined scores (None): (N, classes).
        features: the inputs of the last layer of the first network, of some examples: (n, size).
        generator: random numbers of this epoch, on the CPU, the same in all processes.
        losses: the loss of every example with its given label, by the combined scores: (N,).
    """

    scores: Callable[[int | None], Tensor]
    features: Callable[[Tensor], Tensor]
    generator: torch.Generator
    losses: Callable[[], Tensor] | None = None


class Method(Named, registry=registry):
    """A training rule. A subclass overrides what it changes; without any change it trains one network with the loss.

    Define `objective`, a differentiable loss of every example, or `pulls`, the gradients themselves. Both run inside a CUDA graph: use
    tensors only, and no Python decisions that depend on values. A number that changes during training is a state tensor without
    dimensions. Selecting examples is a weight of 0 or 1.

    Example:
        >>> class Distill(Method):
        ...     def objective(self, loss, state, batch, scores):
        ...         log_p = scores[0].log_softmax(1)
        ...         return -0.5 * log_p.gather(1, batch.labels[:, None])[:, 0] - 0.5 * (log_p.exp().detach() * log_p).sum(1)
        >>> Distill()
        distill
    """

    networks: ClassVar[int] = 1
    """The number of networks."""

    trained: ClassVar[int | None] = None
    """The number of networks that are trained with gradients, the first ones; `after_step` changes the others. By default all."""

    views: ClassVar[int] = 1
    """The number of augmented views of a batch that a step uses."""

    noise_rate: ClassVar[str | None] = None
    """The name of the setting that is the noise rate, or a guess of it."""

    per_example: ClassVar[tuple[str, ...]] = ()
    """The names of state tensors with one row per training example. Processes of a data-parallel run share the rows they changed."""

    needs_whole_batch: ClassVar[bool] = False
    """Whether an example is treated according to the rest of its batch, which then cannot be processed in parts."""

    mixes: ClassVar[bool] = False
    """Whether networks are trained on mixed inputs. The record is then from a pass in eval mode after every epoch."""

    relabels: ClassVar[bool] = False
    """Whether the targets of training differ from the given labels. The record has the margins of the given labels all the same."""

    embeds: ClassVar[bool] = False
    """Whether `scores` also returns the embedding of every trained network, after all scores; `pulls` then has their gradients too."""

    reads_features: ClassVar[bool] = False
    """Whether `begin_epoch` uses `Scored.features`, which only models of noisewise have."""

    examples: ClassVar[tuple[str, ...]] = ()
    """Specs that tests train with."""

    @property
    def refresh_every(self) -> int:
        """The number of steps after which `refresh` is called each time; 0 for never."""
        return 0

    @property
    def follows_the_loss(self) -> bool:
        """Whether the gradient is that of the loss alone."""
        return type(self).pulls is Method.pulls and type(self).objective is Method.objective

    def check(self, loss: Loss, data: Dataset) -> None:
        """Raise `InputError` if the method cannot be used with this loss or these data. Called before any work."""

    def start(self, data: Dataset, seed: int) -> State:
        """The state before training, on the device of the labels."""
        return {}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        """Change the state before an epoch, in place; `epoch` counts from 1. This runs outside of CUDA graphs."""

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        """The scores to differentiate, one tensor for every view of every trained network; by default one view.

        A method with `embeds` calls ``network.features(inputs)`` and ``network.head(features)``, and returns both.
        """
        inputs = batch.prepare(batch.inputs)
        return tuple(network(inputs) for network in networks[: self.trained])

    def objective(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> Tensor:
        """The loss of every example, (n,), as a differentiable function of the scores."""
        raise NotImplementedError(f"{type(self).__name__} must define objective or pulls")

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        """The gradient of the sum of the losses with respect to the scores of every trained network.

        Args:
            loss: computes the pull of the loss of the run: ``loss(scores, labels)``, or ``loss.rows`` with the loss of every example.
            state: the state, which may be changed in place.
            batch: the examples.
            scores: the result of `scores`, detached.
        """
        if self.follows_the_loss:
            return tuple(loss(each, batch.labels) for each in scores)
        with torch.enable_grad():
            leaves = tuple(each.detach().requires_grad_() for each in scores)
            values = self.objective(loss, state, batch, leaves)
            gradients = torch.autograd.grad(values.sum(), leaves)
        return tuple(Pull(gradient, values.detach()) for gradient in gradients)

    def after_step(self, networks: Sequence[nn.Module], state: State) -> None:
        """Change networks that are not trained with gradients, after every update."""

    def refresh(self, loss: Loss, state: State, lr: Tensor) -> None:
        """Change the state after every `refresh_every` steps, in place. This runs outside of CUDA graphs."""

    def combine(self, scores: Sequence[Tensor]) -> Tensor:
        """The scores that the run is tested, recorded and used with, from those of all networks; by default their average."""
        return scores[0] if len(scores) == 1 else torch.stack(tuple(scores)).mean(0)


def relabels(spec: str) -> bool:
    """Whether the method of a spec trains on other targets than the given labels. A method that is not known here does not.

    Example:
        >>> relabels("mixup(alpha=0.2)"), relabels("elr"), relabels("from_another_version")
        (True, False, False)
    """
    try:
        return registry.get(spec).relabels
    except InputError:
        return False


def refuse_batch_loss(method: Method, loss: Loss) -> None:
    """Refuse a loss that depends on the whole batch, for methods that treat examples differently."""
    if loss.depends_on_batch:
        raise InputError(f"The method {method!r} weights examples one by one. Got the loss {loss!r}, which depends on the whole batch.")


class Ensemble(nn.Module):
    """Several networks whose scores a method combines.

    Args:
        method: combines the scores.
        networks: the networks.
    """

    def __init__(self, method: Method, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.method = method
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.method.combine([network(inputs) for network in self.networks])


def networks_of(model: nn.Module) -> list[nn.Module]:
    """The networks of a model: those of an ensemble, or the model itself."""
    return list(model.networks) if isinstance(model, Ensemble) else [model]
