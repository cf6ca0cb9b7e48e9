"""A trained run, read from its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from noisewise import methods, plugins
from noisewise.data import Normalise, augmentations
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError, invalid_parameter, listed, shown
from noisewise.extensions import extension
from noisewise.models import Classifier, with_weights
from noisewise.runs import RunFolder, load_settings, read_classes, read_encoding, read_temperature
from noisewise.spec import in_short, name_of
from noisewise.train._predictor import Predictor
from noisewise.train._request import device_of


class Run:
    """A trained run, read from its folder.

    Args:
        folder: the run folder; it may come from another machine.
        data: the training data, if you have them; `report` shows examples from them.
        test: the test data, if you have them; retraining on corrected labels uses them too.
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
        """ "finished", "interrupted", "failed" or "running"; also "running" if the process was killed."""
        return str(self._folder.status()["state"])

    @property
    def kept_epoch(self) -> int:
        """The epoch whose model the run keeps; for an unfinished run, the last epoch."""
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
        """The device in the settings."""
        return device_of(self.settings)

    @property
    def dynamics(self) -> Dynamics:
        """The measures of the papers, computed from the record."""
        return Dynamics(self.path)

    @property
    def unlearned(self) -> tuple[str, ...]:
        """The classes that the model did not learn: it predicts them less than a tenth as often as they occur in the labels."""
        return self.dynamics.unlearned

    @property
    def temperature(self) -> float:
        """Scores are divided by it before softmax. It is fitted on the validation share; 1 for a run without one."""
        return read_temperature(self.path)

    def find_label_issues(self, *, score: str = "combined", features: Any = None) -> Any:
        """Find labels that look wrong, from the record of the run, or from features.

        Args:
            score: what to rank by; see `noisewise.audit.audit`.
            features: one row of numbers for each training example. If given, models that do not see the label judge it, as in
                `noisewise audit` on tables; later audits of this run use that too.

        Returns:
            The audit, a `noisewise.audit.Audit`: the doubtful labels, and suggested labels.

        Example:
            >>> import tempfile
            >>> from noisewise import fit
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
            ...     issues = run.find_label_issues()
            ...     wrong = run.dynamics.record.wrong
            >>> bool(issues.is_issue[wrong].mean() > 0.8), bool(wrong[issues.is_issue].mean() > 0.9)
            (True, True)
        """
        return extension("audit")(self, score=score, features=features)

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write a report page about this run; `options` are those of `noisewise.report.report`."""
        return Path(extension("report")(self, output, **options))

    def model(self, into: torch.nn.Module | None = None) -> torch.nn.Module:
        """The trained model, in eval mode.

        Args:
            into: a module with the same layers, for a run whose model was given as an object.
        """
        tensors, notes = self._folder.read_tensors("model.safetensors")
        if into is None:
            spec = str(notes.get("model"))
            try:
                return self._networks(spec, tensors).eval()
            except (InputError, RuntimeError):  # a custom module may have the name of a built-in model
                if plugins.missing("model", name_of(spec)) is not None:
                    raise
                raise InputError(f"The run in {str(self.path)!r} has a custom model. Give into=…, a module with the same layers.") from None
        if not isinstance(into, torch.nn.Module):
            raise invalid_parameter("into", "a run", "a module with the layers of its model", into)
        fill(into, tensors, "given as into=…", self._folder)
        return into.eval()

    def _networks(self, spec: str, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """The model of a spec, or all networks of the method, with the weights of the run."""
        method = methods.get(self.settings.method)
        if method.networks == 1:
            return with_weights(spec, tensors)
        parts = [f"networks.{number}." for number in range(method.networks)]
        weights = [{name.removeprefix(part): value for name, value in tensors.items() if name.startswith(part)} for part in parts]
        return methods.Ensemble(method, [with_weights(spec, each) for each in weights])

    def predict(self, inputs: Any, into: torch.nn.Module | None = None) -> torch.Tensor:
        """Class probabilities for raw inputs, normalised like the training inputs: (N, classes), on the model's device.

        Networks trained with robust losses are overconfident. A run with a validation share (``validation=0.1``) therefore calibrates the
        probabilities on it: scores are divided by `temperature`, which does not change the predicted class.

        Args:
            inputs: in the form that `fit` takes: numpy arrays, torch tensors or lists, images in any supported layout. For a recorded loop,
                as the model takes them. For a run on a table, also a DataFrame or the path of a table; its columns are selected by name.
                For a run on embeddings, the embeddings of the new examples, as an array or a file; if a model given by name computed
                them, also texts, or images.
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
        """A `Predictor` that can be pickled and no longer needs the folder; for `into` see `model`."""
        provenance = self._folder.provenance(needs=("normalise",))
        recorded_scale(self._folder)  # refuses a spec that is not a normalisation
        # A Recorder writes none of them.
        shape, dtype, features, embedder = (provenance.get(name) for name in ("shape", "type", "features", "embedder"))
        name = f"run in {str(self.path)!r}"
        encoding = read_encoding(self.path)
        return Predictor(self.model(into), provenance["normalise"], shape, dtype, name, features, self.temperature, encoding, embedder)

    def export(self, output: str | os.PathLike[str], into: torch.nn.Module | None = None) -> Path:
        """Write the model for programs without noisewise, as .onnx or .pt2; see `noisewise.integrations.export.export`."""
        return Path(extension("export")(self, output, into=into))

    def __fspath__(self) -> str:
        """The path of the folder, so that a run can be given where a path is expected."""
        return str(self.path)

    def __repr__(self) -> str:
        dynamics = self.dynamics
        tested = "" if dynamics.accuracy is None else f", test accuracy {100 * dynamics.accuracy:.2f} %"
        unlearned = f", did not learn {listed(map(repr, dynamics.unlearned))}" if dynamics.unlearned else ""
        return f"Run({str(self.path)!r}: {in_short(self.settings.loss)} on {self.settings.data}, {self.state}{tested}{unlearned})"


def recorded_scale(folder: RunFolder) -> Normalise | None:
    """The normalisation of the inputs of a run, or None."""
    spec = folder.provenance().get("normalise")
    scale = None if spec is None else augmentations.get(spec)
    if scale is not None and not isinstance(scale, Normalise):
        raise InputError(
            f"The file {str(folder.path / 'provenance.json')!r} is damaged: 'normalise' must be a normalisation of inputs. "
            f"Got {shown(spec)}; copy the run folder again."
        )
    return scale


def fill(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], name: str, folder: RunFolder) -> None:
    """Load the weights of a run into a model with the same layers; `name` is the name of the model in errors."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).partition("\n\t")[2].partition("\n")[0].rstrip(". ")
        raise InputError(f"The layers of the model {name} differ from those of the run in {str(folder.path)!r}: {first}.") from None


def is_built_in(model: torch.nn.Module) -> bool:
    """Whether a model can be built from its repr."""
    return isinstance(model, Classifier) and bool(type(model).name)


def is_unmodified(model: torch.nn.Module) -> bool:
    """Whether a built-in model has no hooks and no custom layers, so that a CUDA graph captures all it does."""
    _, *parts = model.modules()
    foreign = (type(part).__module__.partition(".")[0] not in ("torch", "noisewise") for part in parts)
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooked = (getattr(part, kind) for part in (model, *parts) for kind in kinds)
    return is_built_in(model) and not any(hooked) and not any(foreign)
