"""Losses that set their own hyper-parameters during training, from the scores and labels they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from noisewise.exact import going_forward
from noisewise.losses._base import MarginLoss


class Adaptive(MarginLoss):
    """A margin loss that changes between epochs.

    In training mode it notes the scores and labels of every batch (`observe`). `update`, called once at the end of every epoch, decides
    from these notes what the loss is in the next one. Notes and decisions are buffers that are written in place: they are part of
    `state_dict`, and a captured CUDA graph sees them change.

    `fit` and `Recorder.end_epoch` call `update`. In a loop without them, call it yourself.

    Attributes:
        now: a buffer with the numbers that `update` changes, from which `of_margin` computes; a kernel reads them in every step. A loss
            without it has no kernel.
    """

    adapts: ClassVar[bool] = True

    now: Tensor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("now", None)

    def decided(self) -> Sequence[Any]:
        """What `now` contains: tensors, which a captured graph and a kernel read again, or numbers in eager mode on a CPU.

        There, arithmetic with tensors that hold one number takes longer than that of a small batch.
        """
        assert self.now is not None
        eager = not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())
        return self.now.tolist() if eager and self.now.is_cpu else self.now.unbind()

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        labels = target if kept is None else target.masked_fill(~kept, self.ignore_index)
        self.notice(scores.movedim(1, -1).reshape(-1, scores.shape[1]), labels.flatten())
        return super().per_example(scores, target, kept)

    def notice(self, scores: Tensor, labels: Tensor) -> None:
        """Observe scores (N, C) and labels (N,) if the model trains on them."""
        # Inside torch.func, nothing outside of the function may change.
        if self.training and scores.requires_grad and not (going_forward() or torch._C._are_functorch_transforms_active()):
            self.observe(scores.detach(), labels)

    def observe(self, scores: Tensor, labels: Tensor) -> None:
        """Note a batch of scores (N, C) and labels (N,). Examples with the label `ignore_index` are ignored."""
        raise NotImplementedError

    def update(self) -> dict[str, float]:
        """Decide from all batches since the last call, of all processes of a data-parallel run. Without a batch, nothing changes.

        Returns:
            What the loss was in the epoch that ends, as `restore` takes it, and what it saw.
        """
        raise NotImplementedError

    def restore(self, record: Mapping[str, float]) -> None:
        """Make the loss what it was in the epoch that `update` returned this record for."""
        raise NotImplementedError

    def _has_closed_form(self) -> bool:
        return True
