"""What a run is asked to do: spec strings and plain values, all checked before the first step.

The same names stand in Python, in a TOML file, on the command line and in a run folder. This module must not train anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from noisewise import losses, models
from noisewise.data import augmentations
from noisewise.data._own import OPTIONS
from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.noise import registry as noises
from noisewise.spec import Interval, Named, Registry, as_int, name_of, real
from noisewise.train._optimisers import registry as optimisers
from noisewise.train._processes import own_gpu
from noisewise.train._schedules import registry as schedules

_WHOLE = dict.fromkeys(
    ("epochs", "steps", "batch_size", "classes_per_batch", "accumulate", "patience", "evaluate_every", "checkpoint_every"), 1
) | {"seed": 0}
_BOUNDS = {name: Interval.parse(bounds) for name, bounds in (("weight_decay", "[0, inf)"), ("validation", "[0, 1)"), ("clip", "(0, inf)"))}
_OPTIONAL = ("epochs", "steps", "classes_per_batch", "patience", "clip")
_YES_OR_NO = ("normalise", "clean_pass", "compile")
_FILE = re.compile(r"\.\w+['\"]")  # the end of a file's name in a spec
_CHOICES = {"precision": ("auto", "float32", "bfloat16"), "keep": ("last", "best")}
_REGISTRIES: dict[str, Registry[Any]] = {
    "loss": losses.Loss.registry,
    "noise": noises,
    "optimiser": optimisers,
    "schedule": schedules,
    "augment": augmentations,
}


@dataclass(frozen=True, repr=False)
class Settings:
    """Everything that decides a run.

    Args:
        data: a data set's spec or path, or what a data set given as an object is called.
        model: a model's spec, or the class of a model given as an object.
        loss: a loss spec.
        noise: a noise spec; it is applied to the training labels.
        epochs: how many passes over the data; give this or `steps`.
        steps: how many updates.
        seed: decides weights, order, augmentation and dropout, and the noise.
        batch_size: examples per update, over all processes.
        classes_per_batch: how many groups of equal size, each of one given label, a batch is put together from; so it has at most as many
            labels, and one may come more than once. By default a batch is drawn from all examples. What is left over of every label
            makes up the last batches of an epoch, which may have more labels.
        optimiser: an optimiser spec: sgd, adam or adamw.
        schedule: a learning-rate schedule spec: constant, cosine, step or multistep. Lengths in it are steps (updates), not epochs, and
            below 1 a share of the run: multistep((0.5, 0.75)).
        weight_decay: L2 penalty.
        clip: largest norm of the whole gradient; by default there is none.
        accumulate: in how many parts a batch is gone through.
        augment: an augmentation spec, such as crop(4) + flip; evaluations take the images whole and unchanged.
        normalise: whether inputs are brought to mean 0 and variance 1 with the training set's numbers.
        validation: the share of the training examples, noisy labels and all, that is kept out to watch.
        patience: stop when so many evaluations in a row were no better on the validation share; by default it never does.
        keep: whose model the run keeps: "last" for that of the last epoch, "best" for that of the evaluation that was best on the
            validation share, the first of them if there are several.
        evaluate_every: epochs between evaluations.
        clean_pass: whether an evaluation also goes over the training set, in eval mode and without augmentation.
        checkpoint_every: epochs between checkpoints.
        precision: "float32", "bfloat16" (the last layer of our own models stays in float32), or "auto": bfloat16 on a GPU.
        compile: whether to compile the model.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1"; Apple's GPUs are not used.
    """

    data: str
    model: str
    loss: str = "ce"
    noise: str = "none"
    epochs: int | None = None
    steps: int | None = None
    seed: int = 0
    batch_size: int = 128
    classes_per_batch: int | None = None
    optimiser: str = "sgd(lr=0.1, momentum=0.9)"
    schedule: str = "cosine"
    weight_decay: float = 1e-4
    clip: float | None = None
    accumulate: int = 1
    augment: str = "none"
    normalise: bool = True
    validation: float = 0.0
    patience: int | None = None
    keep: str = "last"
    evaluate_every: int = 1
    clean_pass: bool = True
    checkpoint_every: int = 1
    precision: str = "auto"
    compile: bool = False
    device: str = "auto"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from names and values, every one checked.

        Where a spec is asked for, an object that a spec can say will do: a run folder holds text. So will a number of numpy and a
        device of torch.

        Example:
            >>> Settings.of({"data": "digits", "model": "mlp", "epochs": 5, "loss": losses.GCE(q=0.5)}).loss
            'gce(q=0.5)'
            >>> Settings.of({"data": "digits", "model": "mlp", "epochs": 5, "loss": "imea"})
            Traceback (most recent call last):
            noisewise.errors.InputError: There is no loss named 'imea'. Did you mean 'imae' or 'mse' or 'mae'?
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name in OPTIONS - set(known):
                said = repr(given[name]) if isinstance(given[name], str | int) else "…"
                raise InputError(
                    f"There is no setting named {name!r}: it says how data are read. Give noisewise.data.read(…, {name}={said}) as data."
                )
            if name not in known:
                raise unknown("setting", name, known)
        for name in ("data", "model"):
            if not given.get(name):
                raise invalid_parameter(name, "a run", "given", given.get(name))
        specs = {name: _spec(name, registry, given[name]) for name, registry in _REGISTRIES.items() if name in given}
        settings = cls(**{**{name: _plain(value) for name, value in given.items()}, **specs})
        settings._check()
        return settings

    def __repr__(self) -> str:
        """Like an estimator of scikit-learn, only what is not a default."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = (f"{field.name}={given[field.name]!r}" for field in fields(self) if given[field.name] != field.default)
        return f"Settings({', '.join(shown)})"

    def _check(self) -> None:
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                as_int(name, "a run", value, least)
        for name in _YES_OR_NO:
            if not isinstance(getattr(self, name), bool):
                raise invalid_parameter(name, "a run", "true or false", getattr(self, name))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise invalid_parameter(name, "a run", "one of " + ", ".join(map(repr, choices)), getattr(self, name))
        for name, bounds in _BOUNDS.items():
            value = getattr(self, name)
            if not (value is None and name in _OPTIONAL) and real(value) not in bounds:
                raise invalid_parameter(name, "a run", f"in {bounds}", value)
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"A run needs either epochs or steps. Got epochs={self.epochs}, steps={self.steps}.")
        if self.patience is not None and self.validation == 0:
            raise InputError("Early stopping watches a validation share. Got patience without validation; say for example validation=0.1.")
        if self.keep == "best" and self.validation == 0:
            raise InputError("The best model is found on a validation share. Got keep='best' without validation; say validation=0.1 too.")
        if self.accumulate > self.batch_size:
            raise invalid_parameter("accumulate", "a run", f"at most the batch_size, {self.batch_size}", self.accumulate)
        if self.classes_per_batch is not None and self.batch_size % self.classes_per_batch:
            raise invalid_parameter("classes_per_batch", "a run", f"a divisor of the batch_size, {self.batch_size}", self.classes_per_batch)
        loss = losses.get(self.loss)
        if not loss.of_classes:
            raise InputError(f"In a run every example has one label, a class. Got {loss!r}; train several yes/no labels in your own loop.")
        if loss.reduction != "mean":
            raise InputError(f"A run trains on the mean of a batch's losses. Got {loss!r}; leave its reduction out.")
        if loss.depends_on_batch and any(getattr(part, "label_smoothing", 0) > 0 for part in loss.modules()):
            with torch.random.fork_rng([]):  # one draws
                classes = 2 if loss.weight is None else len(loss.weight)
                loss(torch.zeros(2, classes), torch.tensor([0, 1]))  # refuses what it cannot smooth
        if self.accumulate > 1 and loss.depends_on_batch:
            losses.Accumulation(loss)  # refuses a loss that cannot be put together from parts
        for name, registry in _REGISTRIES.items():
            registry.get(getattr(self, name))
        self.place()

    @property
    def group(self) -> int:
        """How many examples in a row have one label."""
        return 1 if self.classes_per_batch is None else self.batch_size // self.classes_per_batch

    def place(self) -> torch.device:
        """The device asked for."""
        if self.device == "auto":
            return own_gpu() if torch.cuda.is_available() else torch.device("cpu")
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError):
            device = None
        if device is None or device.type not in ("cpu", "cuda"):
            raise invalid_parameter("device", "a run", "auto, cpu, cuda or cuda:0", self.device)
        number = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.type == "cuda" and (device.index or 0) >= number:
            found = f"its CUDA devices are numbered below {number}" if number else "there is no CUDA device here"
            raise invalid_parameter("device", "a run", f"one this machine has ({found})", self.device)
        return own_gpu() if device == torch.device("cuda") else device

    def half(self, device: torch.device) -> bool:
        """Whether the body of the model computes in bfloat16."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _spec(setting: str, registry: Registry[Any], value: Any) -> str:
    """The spec of what was given: as it was written, or the repr of an object, if that says all there is to the object.

    One that names a file is kept as what was read: a run must not change with the file.
    """
    if isinstance(value, str):
        return repr(registry.get(value)) if _FILE.search(value) else value
    if not isinstance(value, Named) or value.registry is not registry:
        raise invalid_parameter(setting, "a run", f"the spec of a known {registry.kind} or such an object", value)
    try:
        again = registry.get(repr(value))
    except InputError:
        again = None
    if repr(again) != repr(value) or _kinds(again) != _kinds(value):
        raise InputError(
            f"A run folder holds specs, and none says all of the {registry.kind} {value!r}: its class has no name in the registry, or a "
            "number in it is rounded when it is read. Give the class a name (name=…), or give the spec string."
        )
    return repr(value)


def _kinds(thing: Any) -> list[type]:
    """The class of a named thing and of those it is made of."""
    if isinstance(thing, nn.Module):
        return [type(part) for part in thing.modules()]
    held = [part for value in vars(thing).values() if isinstance(value, tuple) for part in value]
    return [type(part) for part in (thing, *held)]


def check_model(spec: str) -> None:
    """Refuse a model spec that names no model, before any data are read."""
    models.registry[name_of(spec)]
