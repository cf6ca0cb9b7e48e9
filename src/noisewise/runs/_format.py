"""The settings of a run, and what the other JSON files of a run folder hold, read and checked value by value.

A value that this version does not know is left alone. This module must not know how runs are trained, nor how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noisewise.errors import InputError, shown
from noisewise.runs._files import LARGE, Folder, exists, parse_json, read_json, read_text

if TYPE_CHECKING:
    import torch

FORMAT = 1
RECORDS = ("training", "clean")
"""The records of a run: from the training steps, and from passes in eval mode without augmentation."""

KINDS = ("margins", "predictions")
"""What a record holds of every epoch."""

EVALUATED = ("test", "validation")
"""The sets whose accuracy on every class is kept at evaluations."""

CALIBRATION = "calibration.json"

_LARGEST = 1e100  # of any number that training gives: its square is still finite


@dataclass(frozen=True, repr=False)
class Settings:
    """Everything that decides a run. The names are the same in Python, in a TOML file, on the command line and in a run folder.

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

    def __repr__(self) -> str:
        """Like an estimator of scikit-learn, only what is not a default."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = (f"{field.name}={given[field.name]!r}" for field in fields(self) if given[field.name] != field.default)
        return f"Settings({', '.join(shown)})"

    @property
    def group(self) -> int:
        """How many examples in a row have one label."""
        return 1 if self.classes_per_batch is None else self.batch_size // self.classes_per_batch

    def half(self, device: torch.device) -> bool:
        """Whether the body of the model computes in bfloat16."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Kind(NamedTuple):
    """A kind of value: its name in an error, and whether a value is one."""

    words: str
    fits: Callable[[Any], bool]

    def or_none(self) -> _Kind:
        return _Kind(f"{self.words} or null", lambda value: value is None or self.fits(value))

    def list_of(self) -> _Kind:
        return _Kind(f"a list, each entry {self.words}", lambda value: isinstance(value, list) and all(map(self.fits, value)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _at_least(least: int) -> _Kind:
    return _Kind(f"an integer of at least {least}", lambda value: type(value) is int and least <= value < 2**62)


def _is_source(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and isinstance(value.get("source"), str))


def _is_sums(value: Any) -> bool:
    return isinstance(value, dict) and _is_number(value.get("pull")) and _is_number(value.get("eta")) and value["eta"] >= 0


TEXT = _Kind("text", lambda value: isinstance(value, str))
COUNT, POSITIVE = _at_least(0), _at_least(1)
NUMBER = _Kind("a number", _is_number)
SHARE = _Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
TEMPERATURE = _Kind("a number above 0", lambda value: _is_number(value) and value > 0)
FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = _Kind("an object", lambda value: isinstance(value, dict))

_SETTINGS = {
    **dict.fromkeys(("data", "model", "loss", "noise", "optimiser", "schedule", "augment", "keep", "precision", "device"), TEXT),
    **dict.fromkeys(("epochs", "steps", "classes_per_batch", "patience"), POSITIVE.or_none()),
    **dict.fromkeys(("batch_size", "accumulate", "evaluate_every", "checkpoint_every"), POSITIVE),
    **dict.fromkeys(("normalise", "clean_pass", "compile"), FLAG),
    "seed": _Kind("an integer of at least 0", lambda value: type(value) is int and value >= 0),
    "weight_decay": NUMBER,
    "validation": SHARE,
    "clip": NUMBER.or_none(),
}
_STATUS = {"state": TEXT, "reason": TEXT.or_none(), "epoch": COUNT, "step": COUNT, "kept": COUNT}
_CHECKPOINT = {"epoch": COUNT, "step": COUNT, "best": SHARE.or_none(), "best_epoch": COUNT, "waited": COUNT}
_CORRECTION = {
    **dict.fromkeys(("folder", "policy", "labels"), TEXT),
    **dict.fromkeys(("settings", "otherwise", "source", "changes", "before"), OBJECT),
    "steps": TEXT.list_of(),
}
_BEFORE = {"labels": TEXT, "examples": POSITIVE, "wrong": COUNT.or_none(), "final": SHARE.or_none(), "best": SHARE.or_none()}
_PROVENANCE = {
    "data": _Kind("an object of objects", lambda value: OBJECT.fits(value) and all(map(OBJECT.fits, value.values()))),
    "sources": _Kind(
        "an object with the arguments that read each data set, or null",
        lambda value: isinstance(value, dict) and {"train", "test"} <= value.keys() and all(map(_is_source, value.values())),
    ),
    "recorded": FLAG,
    "normalise": TEXT.or_none(),
    "shape": COUNT.list_of().or_none(),
    "type": TEXT,
    "features": TEXT.list_of().or_none(),
}
_DATA = {"examples": COUNT, "inputs": TEXT, "sizes": TEXT, "labels": TEXT}
_METRICS = {
    "epoch": POSITIVE,
    "step": COUNT,
    **dict.fromkeys(("lr", "train_loss", "mean_emphasis", "seconds"), NUMBER.or_none()),
    **dict.fromkeys((f"{of}_{kind}" for of in EVALUATED for kind in ("accuracy", "balanced_accuracy")), SHARE.or_none()),
    "emphasis": _Kind("an object with sums", lambda value: isinstance(value, dict) and all(map(_is_sums, value.values()))),
}


def check_values(where: str, content: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> None:
    """Refuse a value that is not of its kind; those without one are not looked at.

    Args:
        where: the file they are from, for the error.
        content: the values by name.
        kinds: of the names that are known.
    """
    for name, kind in kinds.items():
        if name in content and not kind.fits(content[name]):
            raise InputError(
                f"The value of {name!r} in {where} must be {kind.words}. Got {shown(content[name])} instead; copy the run folder again."
            )


def read_settings(folder: Folder) -> dict[str, Any]:
    """What a run was asked to do; a folder without settings is not a run."""
    if not exists(folder, "settings.json"):
        raise InputError(f"There is no run in {str(folder)!r}: it holds no settings.json. Give the folder of a run.")
    settings: dict[str, Any] = read_json(folder, "settings.json")
    if settings.get("format", FORMAT) == FORMAT:  # another format may have other values
        check_settings(repr(str(Path(folder) / "settings.json")), settings)
    return settings


def load_settings(folder: Folder) -> Settings:
    """What a run was asked to do, as an object; a run of another version of noisewise is refused."""
    written = read_settings(folder)
    version = written.pop("format", FORMAT)
    known = {field.name: field.default is MISSING for field in fields(Settings)}
    wrong = [f"has format {version!r} and not {FORMAT}"] if version != FORMAT else []
    wrong += [f"has a setting {name!r} that this noisewise does not know" for name in written if name not in known]
    wrong += [f"lacks the setting {name!r}" for name, needed in known.items() if needed and name not in written]
    if wrong:
        raise InputError(f"The run in {str(folder)!r} {wrong[0]}. Read it with the version of noisewise that wrote it.")
    return Settings(**written)


def check_settings(where: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings of the wrong kind.

    Args:
        where: the file they are from, for the error.
        settings: by name.
    """
    check_values(where, settings, _SETTINGS)


def read_status(folder: Folder, needs: Sequence[str] = ()) -> dict[str, Any]:
    """How far a run came: state, epoch, step.

    Args:
        folder: of the run.
        needs: the names that must be there.
    """
    return _read_object(folder, "status.json", _STATUS, needs)


def read_provenance(folder: Folder, needs: Sequence[str] = ()) -> dict[str, Any]:
    """What a run was done with: versions, data, noise.

    Args:
        folder: of the run.
        needs: the names that must be there.
    """
    provenance = _read_object(folder, "provenance.json", _PROVENANCE, needs)
    for part in provenance.get("data", {}).values():
        check_values(repr(str(Path(folder) / "provenance.json")), part, _DATA)
    return provenance


def read_classes(folder: Folder) -> tuple[str, ...]:
    """The name of every class of a run."""
    return read_names(folder, "classes.json")


def read_names(folder: Folder, name: str) -> tuple[str, ...]:
    """A list of names in a JSON file of a run.

    Args:
        folder: of the run.
        name: of the file.
    """
    names = read_json(folder, name, list, limit=LARGE)
    if not all(map(TEXT.fits, names)):
        raise InputError(f"The file {str(Path(folder) / name)!r} must be a list of names, all of them text. Copy the run folder again.")
    return tuple(names)


def read_metrics(folder: Folder) -> tuple[dict[str, Any], ...]:
    """One entry per finished epoch of a run, in order; none before the first epoch is finished.

    Of several lines about one epoch the last counts.
    """
    if not exists(folder, "metrics.jsonl"):
        return ()
    path, entries = Path(folder) / "metrics.jsonl", dict[int, dict[str, Any]]()
    for number, line in enumerate(read_text(folder, "metrics.jsonl").splitlines(), 1):
        try:
            entry = parse_json(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "epoch" not in entry:
            raise InputError(f"Line {number} of {str(path)!r} is not the metrics of an epoch: {line[:60]!r}. Fix or delete that line.")
        check_values(f"line {number} of {str(path)!r}", entry, _METRICS)
        entries[entry["epoch"]] = entry
    return tuple(entries[epoch] for epoch in sorted(entries))


def read_shares(folder: Folder, name: str) -> dict[str, float | None]:
    """Numbers from 0 to 1 in a JSON file of a run, by name.

    Args:
        folder: of the run.
        name: of the file.
    """
    content: dict[str, float | None] = read_json(folder, name)
    check_values(repr(str(Path(folder) / name)), content, dict.fromkeys(content, SHARE.or_none()))
    return content


def read_temperature(folder: Folder) -> float:
    """What the scores of a run are divided by before they become probabilities; 1 in a run that was not calibrated."""
    if not exists(folder, CALIBRATION):
        return 1.0
    return float(_read_object(folder, CALIBRATION, {"temperature": TEMPERATURE}, ("temperature",))["temperature"])


def read_correction(folder: Folder, name: str) -> dict[str, Any]:
    """Where a run on corrected labels came from.

    Args:
        folder: of the run.
        name: of the file.
    """
    content, where = _read_object(folder, name, _CORRECTION, list(_CORRECTION)), repr(str(Path(folder) / name))
    for key in _BEFORE:
        if key not in content["before"]:
            raise InputError(f"The file {where} does not say {key!r} of the run before. Copy the run folder again.")
    check_values(where, content["before"], _BEFORE)
    check_values(where, content["changes"], dict.fromkeys(content["changes"], COUNT))
    for part in ("settings", "otherwise", "source"):
        check_settings(where, content[part])
    if "data" not in content["settings"]:
        raise InputError(f"The file {where} does not say 'data' in its settings. Copy the run folder again.")
    return content


def check_checkpoint(where: str, notes: Mapping[str, Any], epoch: int) -> None:
    """Refuse the notes of a checkpoint that do not say where to resume.

    Args:
        where: the file they are from, for the error.
        notes: by name.
        epoch: after which it was written, by the name of the file.
    """
    for name in ("epoch", "step", "best", "waited"):
        if name not in notes:
            raise InputError(f"The checkpoint {where} does not say {name!r}. Copy the run folder again.")
    check_values(where, notes, _CHECKPOINT)
    if notes["epoch"] != epoch:
        raise InputError(f"The checkpoint {where} is of epoch {notes['epoch']}, unlike its name. Copy the run folder again.")


def _read_object(folder: Folder, name: str, kinds: Mapping[str, _Kind], needs: Sequence[str] = ()) -> dict[str, Any]:
    content: dict[str, Any] = read_json(folder, name, needs=needs)
    check_values(repr(str(Path(folder) / name)), content, kinds)
    return content
