"""A run that was trained: a folder, and what can be read from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from noisewise.data import Normalise, augmentations
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError, invalid_parameter, listed, shown
from noisewise.extensions import extension
from noisewise.models import Classifier, with_weights
from noisewise.runs import RunFolder, load_settings, read_classes, read_temperature
from noisewise.spec import in_short
from noisewise.train._predictor import Predictor
from noisewise.train._request import device_of


class Run:
    """A trained run, read from its folder.

    Args:
        folder: the run folder; it may come from another machine.
        data: what it was trained on, where that is at hand; `report` shows examples from it.
        test: what it was tested on, where that is at hand; a run on corrected labels is tested on it too.
    """

    def __init__(self, folder: str | os.PathLike[str], *, data: Any = None, test: Any = None) -> None:
        self._folder = RunFolder(folder)
        self.data, self.test = data, test
        self.settings = load_settings(folder)

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def state(self) -> str:
        """ "finished", "interrupted", "failed", or "running", as it says of itself also when it was killed without a word."""
        return str(self._folder.status()["state"])

    @property
    def kept_epoch(self) -> int:
        """The epoch whose model it keeps: of a run that is not finished the last so far."""
        status = self._folder.status()
        return int(status.get("kept", status["epoch"]))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per finished epoch."""
        return self._folder.metrics()

    @property
    def provenance(self) -> dict[str, Any]:
        return self._folder.provenance()

    @property
    def classes(self) -> tuple[str, ...]:
        return read_classes(self.path)

    @property
    def device(self) -> torch.device:
        """The device it is trained on, as its settings say."""
        return device_of(self.settings)

    @property
    def dynamics(self) -> Dynamics:
        """What the papers measure, read off the record."""
        return Dynamics(self.path)

    @property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the model did not learn: it predicts them for fewer than a tenth as many examples as are labelled so."""
        return self.dynamics.unlearned

    @property
    def temperature(self) -> float:
        """What scores are divided by before they become probabilities: found on the validation share, 1 in a run without one."""
        return read_temperature(self.path)

    def find_label_issues(self, *, score: str = "combined") -> Any:
        """Find out which labels look wrong, from the record the run left.

        Args:
            score: what to rank by; see `noisewise.audit.audit`.

        Returns:
            The audit, a `noisewise.audit.Audit`: the doubtful labels, and what they should be.

        Example:
            >>> import tempfile
            >>> from noisewise import fit
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
            ...     found = run.find_label_issues()
            ...     wrong = run.dynamics.record.wrong
            >>> bool(found.is_issue[wrong].mean() > 0.8), bool(wrong[found.is_issue].mean() > 0.9)
            (True, True)
        """
        return extension("audit")(self, score=score)

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write a page that shows what happened; `options` are those of `noisewise.report.report`."""
        return Path(extension("report")(self, output, **options))

    def model(self, into: torch.nn.Module | None = None) -> torch.nn.Module:
        """The trained model, in eval mode.

        Args:
            into: a module of the same shape, for a run whose model was given as an object.
        """
        tensors, notes = self._folder.read_tensors("model.safetensors")
        if into is None:
            try:
                return with_weights(str(notes.get("model")), tensors).eval()
            except (InputError, RuntimeError):  # the name of a module may be that of a model of ours
                raise InputError(
                    f"The run in {str(self.path)!r} has a model of your own. Give one with the same layers as into=…."
                ) from None
        if not isinstance(into, torch.nn.Module):
            raise invalid_parameter("into", "a run", "a module with the layers of its model", into)
        fill(into, tensors, "given as into=…", self._folder)
        return into.eval()

    def predict(self, inputs: Any, into: torch.nn.Module | None = None) -> torch.Tensor:
        """Class probabilities for raw inputs, scaled as the training inputs were: (N, classes), on the model's device.

        Robust losses make a network far too sure of itself. In a run with a validation share (``validation=0.1``) the probabilities are
        therefore calibrated on it: scores are divided by `temperature`, which does not change the predicted class.

        Args:
            inputs: as they were given to `fit`: numpy arrays, torch tensors or lists, images in any layout that it takes; of a loop that
                was recorded, as the model takes them. Where a table was trained on, also a DataFrame or the path of a table: its
                columns are found by their names, and others are left out.
            into: see `model`.

        Example:
            >>> import tempfile
            >>> from noisewise import fit
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     run = fit("mlp", ([[0.1], [0.2], [2.1], [2.2]], ["short", "short", "long", "long"]), epochs=20, folder=folder)
            ...     [run.classes[number] for number in run.predict([[0.0], [2.5]]).argmax(1)]
            ['short', 'long']
        """
        return self.predictor(into).probabilities(inputs)

    def predictor(self, into: torch.nn.Module | None = None) -> Predictor:
        """What predicts, read once: it needs the folder no more, and can be pickled.

        Args:
            into: see `model`.
        """
        origin = self._folder.provenance(needs=("normalise",))
        recorded_scale(self._folder)  # refuses what is no scale
        kind = None if origin.get("recorded") else origin.get("type", "")
        words, features = f"run in {str(self.path)!r}", origin.get("features")  # older runs do not say
        return Predictor(self.model(into), origin["normalise"], origin.get("shape"), kind, words, features, self.temperature)

    def __fspath__(self) -> str:
        """A run stands for its folder wherever one is asked for."""
        return str(self.path)

    def __repr__(self) -> str:
        dynamics = self.dynamics
        tested = "" if dynamics.accuracy is None else f", test accuracy {100 * dynamics.accuracy:.2f} %"
        unlearned = f", did not learn {listed(map(repr, dynamics.unlearned))}" if dynamics.unlearned else ""
        return f"Run({str(self.path)!r}: {in_short(self.settings.loss)} on {self.settings.data}, {self.state}{tested}{unlearned})"


def recorded_scale(folder: RunFolder) -> Normalise | None:
    """What scaled the inputs of a run; None where nothing did."""
    spec = folder.provenance().get("normalise")
    scale = None if spec is None else augmentations.get(spec)
    if scale is not None and not isinstance(scale, Normalise):
        raise InputError(
            f"The file {str(folder.path / 'provenance.json')!r} must say how to normalise inputs. "
            f"Got {shown(spec)}; copy the run folder again."
        )
    return scale


def fill(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], words: str, folder: RunFolder) -> None:
    """Give a model the weights of a run.

    Args:
        model: of the same layers.
        tensors: its state.
        words: what the model is called.
        folder: of the run.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).partition("\n\t")[2].partition("\n")[0].rstrip(". ")
        raise InputError(f"The model {words} has other layers than that of the run in {str(folder.path)!r}: {first}.") from None


def is_ours(model: torch.nn.Module) -> bool:
    """Whether a model can be built again from its repr."""
    return isinstance(model, Classifier) and bool(type(model).name)


def is_all_ours(model: torch.nn.Module) -> bool:
    """Whether a model is one of ours in every part, and nobody hooked into it: then all it does is done by its layers."""
    first, *parts = model.modules()
    return is_ours(first) and not any(map(_is_hooked, (first, *parts))) and not any(map(_is_foreign, parts))


def _is_foreign(part: torch.nn.Module) -> bool:
    return type(part).__module__.partition(".")[0] not in ("torch", "noisewise")


def _is_hooked(part: torch.nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
