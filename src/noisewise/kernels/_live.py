"""Hyper-parameters that kernels read from memory. A schedule changes them while a captured CUDA graph is replayed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from noisewise.kernels._encoding import encode, written
from noisewise.losses import Loss


@dataclass
class Live:
    """The hyper-parameters of a loss, on a device.

    Args:
        classes: the number of classes of the rows.
        source: the loss as Triton source code, which reads `numbers` from memory.
        numbers: its argument ``numbers``.
        table: its argument ``table``, or None.
        looks_at_every_class: see `Written`.
    """

    classes: int
    source: str
    numbers: Tensor
    table: Tensor | None
    looks_at_every_class: bool

    @classmethod
    def of(cls, loss: Loss, classes: int, device: torch.device) -> Live | None:
        """Those of a loss for rows with this number of classes; None if it has no kernel."""
        encoded = encode(loss, classes)
        if encoded is None:
            return None
        found = written(encoded[0], tuple(encoded[1]), classes)
        source = re.sub(r"numbers\[(\d+)\]", r"tl.load(numbers + \1)", found.source)
        table = None if found.table is None else found.table.to(device, copy=True)
        return cls(classes, source, torch.tensor(found.numbers or (0.0,), device=device), table, found.looks_at_every_class)

    def refresh(self, loss: Loss) -> bool:
        """Write the current hyper-parameters of the loss; whether kernels need no other code for them."""
        new = Live.of(loss, self.classes, torch.device("cpu"))
        if new is None or new.source != self.source or len(new.numbers) != len(self.numbers):
            return False
        self.numbers.copy_(new.numbers)
        if self.table is not None and new.table is not None:
            self.table.copy_(new.table)
        return True
