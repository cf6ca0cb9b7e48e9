"""What predicts: a trained model, and what its inputs were like. It must not know run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch

from noisewise.data import as_inputs, as_tensor, augmentations, is_frame, match_dtype, read_features
from noisewise.errors import InputError, invalid_parameter, reason

EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Predictor:
    """A trained model, and what its inputs were like.

    Args:
        model: gives scores, in eval mode.
        normalise: the spec of what scaled its inputs, or None.
        shape: of one input; None where nobody knows, as of the oldest runs.
        kind: the type the inputs had, as torch calls it; "" where nobody knows, as of the oldest runs. None where nobody ever saw them, as
            of a loop that was recorded: they go to the model as they are.
        words: what was trained, in a sentence.
        features: the names of the columns of the table it was trained on; None where that had none.
        temperature: what scores are divided by before they become probabilities.
    """

    model: torch.nn.Module
    normalise: str | None
    shape: Sequence[int] | None
    kind: str | None
    words: str
    features: Sequence[str] | None = None
    temperature: float = 1.0

    def probabilities(self, inputs: Any) -> torch.Tensor:
        """Class probabilities of raw inputs: (N, classes), on the model's device.

        Args:
            inputs: see `scores`.
        """
        return (self.scores(inputs) / self.temperature).softmax(1)

    @torch.no_grad()
    def scores(self, inputs: Any) -> torch.Tensor:
        """Scores of raw inputs: (N, classes), on the model's device.

        Args:
            inputs: as they were given to `fit`; of a loop that was recorded, as the model takes them. The columns of a DataFrame, or of a
                table whose path is given, are found by the names of those that were trained on.
        """
        raw = self._raw(inputs)
        device = next(self.model.parameters(), raw).device
        normalise = None if self.normalise is None else augmentations.get(self.normalise)
        kind = raw.dtype if self.kind is None else torch.float32
        found = []
        for batch in torch.split(raw, EVALUATION_BATCH):
            # What nothing scales is copied: a model may work in place, and these may be the caller's.
            found.append(self._scored(batch.to(device, kind, copy=True) if normalise is None else normalise(batch.to(device))))
        return torch.cat(found)

    def _raw(self, inputs: Any) -> torch.Tensor:
        if self.kind is None:
            weights = (weight.dtype for weight in self.model.parameters() if weight.is_floating_point())
            raw = as_tensor(inputs, next(weights, torch.float32))
            if not raw.dim() or not len(raw):
                raise invalid_parameter("inputs", "predict", "shaped (N, …) with at least one example", tuple(raw.shape))
            return raw
        raw = match_dtype(self._numbers(inputs), self.kind, "The inputs given to predict", scaled=self.normalise is not None)
        shape = raw.shape[1:] if self.shape is None else tuple(self.shape)
        if raw.shape[1:] != shape:
            got = tuple(raw.shape[1:])
            raise InputError(f"The {self.words} was trained on examples shaped {shape}. Got {got}; give inputs like those.")
        return raw

    def _numbers(self, inputs: Any) -> torch.Tensor:
        if self.features is not None and (is_frame(inputs) or isinstance(inputs, str | PathLike)):
            return read_features(inputs, self.features)
        if isinstance(inputs, str | PathLike):
            raise InputError(f"The {self.words} was trained on no table with named columns. Got {str(inputs)!r}; give an array of inputs.")
        return as_inputs(inputs)

    def _scored(self, inputs: torch.Tensor) -> torch.Tensor:
        shape = tuple(inputs.shape)  # now: a model may change it
        try:
            found = self.model(inputs).float()
        except InputError:
            raise
        except Exception as error:  # a module of the user's own may raise anything
            raise InputError(
                f"The model of the {self.words} cannot score inputs shaped {shape}: {reason(error)}. Give inputs that it takes."
            ) from error
        if found.dim() != 2 or len(found) != shape[0]:
            raise InputError(
                f"The model of the {self.words} must give scores shaped ({shape[0]}, classes). Got {tuple(found.shape)} instead."
            )
        return found  # type: ignore[no-any-return]
