"""What predicts: a trained model, and what its inputs were like. It must not know run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from noisewise.data import augmentations
from noisewise.data._arrays import as_inputs, like_those
from noisewise.errors import InputError

EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Predictor:
    """A trained model, and what its inputs were like.

    Args:
        model: gives scores, in eval mode.
        normalise: the spec of what scaled its inputs, or None.
        shape: of one input; None where nobody knows, as of the oldest runs.
        kind: the type the inputs had, as torch calls it.
        words: what was trained, in a sentence.
    """

    model: torch.nn.Module
    normalise: str | None
    shape: Sequence[int] | None
    kind: str
    words: str

    @torch.no_grad()
    def scores(self, inputs: Any) -> torch.Tensor:
        """Scores of raw inputs: (N, classes), on the model's device.

        Args:
            inputs: as they were given to `fit`.
        """
        raw = like_those(as_inputs(inputs), self.kind, "The inputs given to predict", scaled=self.normalise is not None)
        shape = raw.shape[1:] if self.shape is None else tuple(self.shape)
        if raw.shape[1:] != shape:
            got = tuple(raw.shape[1:])
            raise InputError(f"The {self.words} was trained on examples shaped {shape}. Got {got}; give inputs like those.")
        scaled = _copied if self.normalise is None else augmentations.get(self.normalise)
        device = next(self.model.parameters(), raw).device
        return torch.cat([self.model(scaled(batch.to(device))).float() for batch in torch.split(raw, EVALUATION_BATCH)])


def _copied(batch: torch.Tensor) -> torch.Tensor:
    """Inputs that nothing scales, in memory of their own: a model may work in place, and these may be the caller's."""
    return batch.to(torch.float32, copy=True)
