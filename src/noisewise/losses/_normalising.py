"""Normalised emphasis: divided by its maximum, by its area, or by its mean over the batch.

The first two divide by a constant. The third divides by the mean emphasis of the batch, so that the mean becomes one. The code of the IMAE
and GR authors takes the mean before `saturation` makes the emphasis fade, so their emphasis differs from ours by one factor per batch. The
mean is over all processes of a data-parallel run; for gradient accumulation, `Accumulation` divides once, at the end.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from noisewise import curve
from noisewise.errors import InputError
from noisewise.exact import margin_of
from noisewise.losses._base import CONTRACT, Combination, Loss, MarginLoss, registry

NORMALISATIONS = ("none", "maximum", "integral", "batch")
"""How an emphasis can be normalised."""


class Normalising(MarginLoss):
    """A margin loss whose emphasis is a raw `pull`, normalised in one of the ways in `NORMALISATIONS`."""

    goes_at_once = True  # unless it depends on the batch

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._whole: Accumulation | None = None
        self._alone = False

    def normalisation(self) -> str:
        """Which of `NORMALISATIONS` to use."""
        raise NotImplementedError

    def pull(self, d: Tensor) -> Tensor:
        """The emphasis before it is normalised."""
        raise NotImplementedError

    def _settle(self) -> None:
        how = self.normalisation()
        sizes = {"maximum": lambda: curve.peak(self.pull)[1], "integral": lambda: curve.area(self.pull)}
        self._scale: float = sizes[how]() if how in sizes else 1.0
        if not 0 < self._scale < math.inf:
            raise InputError(f"Cannot normalise {self!r}: the {how} of its emphasis must be finite and above 0. Got {self._scale:g}.")
        super()._settle()

    def emphasis(self, d: Tensor) -> Tensor:
        return self.pull(d) if self._scale == 1 else self.pull(d) / self._scale

    @property
    def depends_on_batch(self) -> bool:
        return self.normalisation() == "batch"

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        if not self.depends_on_batch:
            return super().per_example(scores, target, kept)
        d = margin_of(scores, target.unsqueeze(1), 1)[0].squeeze(1)
        rows = self.of_margin(d, scores.shape[1])
        with torch.no_grad():
            pulls = self.emphasis(d.detach())
            sums = torch.stack([pulls.sum(), torch.ones_like(pulls).sum()] if kept is None else [(pulls * kept).sum(), kept.sum()])
        if self._whole is not None:
            self._whole.add(sums)
            return rows
        return rows / self.mean_emphasis(sums)

    def mean_emphasis(self, sums: Tensor) -> Tensor:
        """Mean emphasis from (sum, number), over all processes of a data-parallel run."""
        if not self._alone and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            sums = sums.clone()
            dist.all_reduce(sums)
        mean = sums[0] / sums[1].clamp(min=1)
        return torch.where(mean == 0, 1.0, mean)

    def per_class(self, scores: Tensor) -> Tensor:
        if self.depends_on_batch:
            raise InputError(f"Batch normalisation needs class indices and no label smoothing. Got class probabilities for {self!r}.")
        return super().per_class(scores)


def batch_normalised(loss: Loss) -> tuple[float, Normalising] | None:
    """The factor and the loss, if a loss is a multiple of one loss that is normalised over the batch; otherwise None.

    Example:
        >>> batch_normalised(registry.get("0.5*imae(T=8, normalise='batch')"))
        (0.5, imae(T=8.0, saturation=0.001, normalise='batch'))
    """
    ((factor, first), *others) = loss.parts if isinstance(loss, Combination) else [(1.0, loss)]
    return (factor, first) if not others and isinstance(first, Normalising) and first.depends_on_batch else None


@contextmanager
def as_whole_batch(loss: Loss) -> Iterator[None]:
    """Inside this context a loss treats its input as the whole batch, ignoring any `Accumulation` and any other process."""
    parts = [part for part in loss.modules() if isinstance(part, Normalising)]
    before = [(part._whole, part._alone) for part in parts]
    for part in parts:
        part._whole, part._alone = None, True
    try:
        yield
    finally:
        for part, state in zip(parts, before, strict=True):
            part._whole, part._alone = state


def before_batch_normalisation(loss: Loss) -> tuple[float, Normalising] | None:
    """The factor and the same loss without normalisation, if a loss is normalised over the batch; otherwise None.

    The result is also None with label smoothing and inside an `Accumulation`.

    Example:
        >>> before_batch_normalisation(registry.get("0.5*imae(T=8, normalise='batch')"))
        (0.5, imae(T=8.0, saturation=0.001, normalise='none'))
    """
    multiple = batch_normalised(loss)
    if multiple is None or multiple[1]._whole is not None or loss.label_smoothing > 0:
        return None
    factor, normalised = multiple
    bare = copy.copy(normalised)
    bare._buffers = dict(normalised._buffers)
    (key,) = (key for key, declared in normalised.settings.items() if declared.choices == NORMALISATIONS)
    bare.__dict__[key] = "none"  # nothing that depends on the hyper-parameters changes
    for key in CONTRACT:
        setattr(bare, key, getattr(loss, key))
    return factor, bare


class Accumulation:
    """Batch normalisation over a batch that arrives in parts.

    Inside the block the loss does not normalise its emphasis but adds it up; `divide` then divides the gradients by the mean over all
    parts. Use reduction "sum" and divide by the number of all examples yourself, because parts may differ in size.

    Args:
        loss: a loss with batch normalisation, or a multiple of one.

    Example:
        >>> from noisewise.losses import IMAE
        >>> layer, loss = torch.nn.Linear(4, 3), IMAE(normalise="batch", reduction="sum")
        >>> inputs, labels = torch.randn(50, 4), torch.randint(3, (50,))
        >>> with Accumulation(loss) as whole:
        ...     for part in torch.arange(50).split(16):
        ...         (loss(layer(inputs[part]), labels[part]) / 50).backward()
        >>> mean = whole.divide(layer.parameters())
        >>> at_once = torch.autograd.grad(IMAE(normalise="batch")(layer(inputs), labels), layer.weight)[0]
        >>> torch.allclose(layer.weight.grad, at_once, atol=1e-6)
        True
    """

    def __init__(self, loss: Any) -> None:
        loss = registry.get(loss)
        multiple = batch_normalised(loss)
        if multiple is None:
            raise InputError(
                "Accumulation needs one loss that is normalised over the batch, or a multiple of it; other losses that depend on the "
                f"batch need the whole batch at once (accumulate=1). Got {loss!r} instead."
            )
        self._loss = multiple[1]
        self._sums: Tensor | None = None

    def __enter__(self) -> Self:
        self._sums = None
        self._loss._whole = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loss._whole = None

    def add(self, sums: Tensor) -> None:
        self._sums = sums if self._sums is None else self._sums + sums

    def divide(self, parameters: Iterable[Tensor]) -> Tensor:
        """Divide the accumulated gradients by the mean emphasis of the whole batch, and return it."""
        if self._sums is None:
            raise InputError("Accumulation.divide needs at least one loss computed inside the block. Got none.")
        mean = self._loss.mean_emphasis(self._sums)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(mean.to(parameter.grad.dtype))
        return mean


def fade(rest: Tensor, saturation: float) -> Tensor | float:
    """(1 − p) / (1 − p + saturation), given 1 − p: about 1 until an example is learned to within `saturation`, then it falls to 0.

    The IMAE and GR papers leave this factor out of their formulas; their code has it.
    """
    return rest / (rest + saturation) if saturation else 1.0
