"""A run that was trained: a folder, and what can be read from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from noisewise.data import augmentations
from noisewise.models import Classifier
from noisewise.models import get as get_model
from noisewise.train._folder import RunFolder
from noisewise.train._settings import Settings

if TYPE_CHECKING:
    from noisewise.dynamics import Dynamics


class Run:
    """A trained run, read from its folder.

    Args:
        folder: the run folder; it may come from another machine.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = RunFolder(folder)
        written = self._folder.read_json("settings.json")
        written.pop("format", None)
        self.settings = Settings(**written)

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def state(self) -> str:
        """ "running", "finished", "interrupted" or "failed"."""
        return str(self._folder.read_json("status.json")["state"])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per finished epoch."""
        return self._folder.metrics()

    @property
    def provenance(self) -> dict[str, Any]:
        return dict(self._folder.read_json("provenance.json"))

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self._folder.read_json("classes.json"))

    @property
    def dynamics(self) -> Dynamics:
        """What the papers measure, read off the record."""
        from noisewise.dynamics import Dynamics

        return Dynamics(self.path)

    def model(self, into: torch.nn.Module | None = None) -> torch.nn.Module:
        """The trained model, in eval mode.

        Args:
            into: a module of the same shape, for a run whose model was given as an object.
        """
        tensors, notes = self._folder.read_tensors("model.safetensors")
        model = get_model(notes["model"]) if into is None else into
        model.load_state_dict(tensors)
        return model.eval()

    def predict(self, inputs: torch.Tensor, into: torch.nn.Module | None = None) -> torch.Tensor:
        """Class probabilities for raw inputs, scaled as the training inputs were: (N, classes).

        Args:
            inputs: as they were given to `fit`.
            into: see `model`.
        """
        normalise = self.provenance["normalise"]
        prepared = inputs.float() if normalise is None else augmentations.get(normalise)(inputs)
        with torch.no_grad():
            return self.model(into)(prepared).float().softmax(1)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        lines = [line for line in self.metrics if "test_accuracy" in line]
        tested = f", test accuracy {100 * lines[-1]['test_accuracy']:.2f} %" if lines else ""
        return f"Run({str(self.path)!r}: {self.settings.loss} on {self.settings.data}, {self.state}{tested})"


def is_ours(model: torch.nn.Module) -> bool:
    """Whether a model can be built again from its repr."""
    return isinstance(model, Classifier) and bool(type(model).name)
