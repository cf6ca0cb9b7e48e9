"""A trained model that predicts from raw inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch

from noisewise.data import (
    Encoding,
    as_inputs,
    as_tensor,
    augmentations,
    embed_new,
    has_named_columns,
    is_vectors,
    match_dtype,
    read_features,
    read_rows,
    read_vectors,
)
from noisewise.errors import InputError, invalid_parameter, reason

EVALUATION_BATCH = 1024
"""The number of examples that are scored at a time."""


@dataclass(frozen=True)
class Predictor:
    """A trained model that predicts from raw inputs.

    Args:
        model: the model, in eval mode.
        normalise: the spec of the normalisation of its inputs, or None.
        shape: the shape of one input; None for a recorded loop.
        dtype: the type of the training inputs, such as "torch.uint8"; None for a recorded loop, whose model gets its inputs unchanged.
        run_name: the name of the run in error messages.
        features: the column names of the table it was trained on; None if it was not a table.
        temperature: scores are divided by it before softmax.
        encoding: how the columns of a table became the inputs; None if it was not a table.
        embedder: where its inputs came from, if they were embeddings: "embed" as `noisewise.data.read` takes it, and the "columns" of text.
    """

    model: torch.nn.Module
    normalise: str | None
    shape: Sequence[int] | None
    dtype: str | None
    run_name: str
    features: Sequence[str] | None = None
    temperature: float = 1.0
    encoding: Encoding | None = None
    embedder: Mapping[str, Any] | None = None

    def probabilities(self, inputs: Any) -> torch.Tensor:
        """Class probabilities of raw inputs (see `scores`): (N, classes), on the model's device."""
        return (self.scores(inputs) / self.temperature).softmax(1)

    @torch.no_grad()
    def scores(self, inputs: Any) -> torch.Tensor:
        """Scores of raw inputs: (N, classes), on the model's device.

        Args:
            inputs: in the form that `fit` takes; for a recorded loop, as the model takes them. The columns of a DataFrame, or of a table
                given by its path, are selected by name.
        """
        raw = self._raw(inputs)
        device = next(self.model.parameters(), raw).device
        normalise = None if self.normalise is None else augmentations.get(self.normalise)
        dtype = raw.dtype if self.dtype is None else torch.float32
        scores = []
        for batch in torch.split(raw, EVALUATION_BATCH):
            # Copy inputs that are not normalised, because a model may change them in place.
            scores.append(self._score(batch.to(device, dtype, copy=True) if normalise is None else normalise(batch.to(device))))
        return torch.cat(scores)

    def _raw(self, inputs: Any) -> torch.Tensor:
        if self.dtype is None:
            weights = (weight.dtype for weight in self.model.parameters() if weight.is_floating_point())
            raw = as_tensor(inputs, next(weights, torch.float32))
            if not raw.dim() or not len(raw):
                raise invalid_parameter("inputs", "predict", "shaped (N, …) with at least one example", tuple(raw.shape))
            return raw
        if is_vectors(inputs):
            numbers = read_vectors(inputs).rows
        elif self.embedder is not None and _needs_embedding(inputs):
            numbers = embed_new(inputs, self.embedder["embed"], tuple(self.embedder["columns"]))
        elif self.encoding is not None and (has_named_columns(inputs) or isinstance(inputs, str | PathLike)):
            numbers = read_rows(inputs, self.encoding)
        elif self.features is not None and (has_named_columns(inputs) or isinstance(inputs, str | PathLike)):
            numbers = read_features(inputs, self.features)
        elif isinstance(inputs, str | PathLike):
            raise InputError(f"The {self.run_name} was not trained on a table with named columns. Got {str(inputs)!r}; give an array.")
        else:
            numbers = as_inputs(inputs)
        raw = match_dtype(numbers, self.dtype, "The inputs given to predict", scaled=self.normalise is not None)
        if raw.shape[1:] != tuple(self.shape or ()):
            got = tuple(raw.shape[1:])
            raise InputError(
                f"The {self.run_name} was trained on examples shaped {tuple(self.shape or ())}. Got {got}; give inputs of that shape."
            )
        return raw

    def _score(self, inputs: torch.Tensor) -> torch.Tensor:
        shape = tuple(inputs.shape)  # a model may change it
        try:
            scores: torch.Tensor = self.model(inputs).float()
        except InputError:
            raise
        except Exception as error:  # a custom module may raise anything
            raise InputError(
                f"The model of the {self.run_name} cannot score inputs shaped {shape}: {reason(error)}. Give inputs that it takes."
            ) from error
        if scores.dim() != 2 or len(scores) != shape[0]:
            raise InputError(
                f"The model of the {self.run_name} must return scores shaped ({shape[0]}, classes). Got {tuple(scores.shape)} instead."
            )
        return scores


def _needs_embedding(inputs: Any) -> bool:
    """Whether new inputs are texts, images, or where to read them, and not embeddings."""
    if isinstance(inputs, list | tuple):
        return bool(inputs) and isinstance(inputs[0], str)
    return isinstance(inputs, str | PathLike) or has_named_columns(inputs) or getattr(inputs, "ndim", 2) == 4
