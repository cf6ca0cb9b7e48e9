"""What a method sees of one step: the examples of a batch, their views, and the rest of the batch in other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """The examples of one step in this process.

    Everything is a tensor on the device, because a CUDA graph repeats the step without running Python again.

    Args:
        index: the positions of the examples in the training set, (n,).
        labels: their given labels, (n,).
        inputs: their raw inputs, before augmentation.
        prepare: turns raw inputs into inputs of a network, with a new augmentation in every call.
        whole: the size of the batch over all processes.
        lr: the learning rate of this step, a tensor without dimensions.
        progress: the share of the training that is done, from 0 to 1, a tensor without dimensions.
        generator: random numbers that are the same in all processes.
        stands_in: whether the examples only fill the place of a process that has none in this batch.
        notes: what a method stores in `Method.scores` for `Method.pulls` of the same step.
    """

    index: Tensor
    labels: Tensor
    inputs: Tensor
    prepare: Callable[[Tensor], Tensor]
    whole: int
    lr: Tensor
    progress: Tensor
    generator: torch.Generator
    stands_in: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def view(self) -> Tensor:
        """The inputs of a network, with a new augmentation in every call."""
        return self.prepare(self.inputs)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of the whole batch, from those of this process: (whole, …), in the order of the batch."""
        world = _place()[1]
        if world == 1:
            return rows
        most = -(-self.whole // world)
        mine = rows.new_zeros((most, *rows.shape[1:]))
        own = 0 if self.stands_in else len(rows)
        mine[:own] = rows[:own]
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        return torch.stack(parts, 1).flatten(0, 1)[: self.whole]

    def own(self, rows: Tensor) -> Tensor:
        """The rows of this process, from those of the whole batch."""
        rank, world = _place()
        return rows if world == 1 else rows[:1] if self.stands_in else rows[rank::world]

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if _place()[1] == 1:
            return value
        value = torch.zeros_like(value) if self.stands_in else value.clone()
        dist.all_reduce(value)
        return value

    def rank(self, values: Tensor) -> Tensor:
        """The position of every example of this process if the whole batch is sorted by a value, the smallest first.

        Example:
            >>> batch = Batch(*[torch.arange(3)] * 3, lambda inputs: inputs, 3, torch.tensor(0.1), torch.tensor(0.0), torch.Generator())
            >>> batch.rank(torch.tensor([0.5, 0.1, 0.3]))
            tensor([2, 0, 1])
        """
        return self.own(self.gather(values).argsort(stable=True).argsort())

    def permutation(self) -> Tensor:
        """A random order of the whole batch, the same in all processes."""
        return torch.rand(self.whole, generator=self.generator, device=self.index.device).argsort()


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
