"""What a run trains and tests on, and where it all came from."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import noisewise
from noisewise.arrays import NO_CLASS, places_of
from noisewise.data import Dataset, ImageFiles, Stream, augmentations, read, split
from noisewise.data._arrays import like_those
from noisewise.data._official import Official
from noisewise.data._own import is_official
from noisewise.data._table import is_table
from noisewise.errors import InputError, invalid_parameter, listed, reason
from noisewise.noise import Corruption
from noisewise.spec import readable
from noisewise.train._git import head_commit
from noisewise.train._settings import Settings


@dataclass(frozen=True)
class Sources:
    """The data of a run.

    Args:
        train: with the labels it is trained on.
        validation: a share of the training examples that is kept out, wrong labels and all; or None.
        test: with right labels; or None.
        corruption: what the noise did; or None.
        read_from: what the training and the test set can be read from again, by "train" and "test"; None where nobody knows.
    """

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    corruption: Corruption | None
    read_from: Mapping[str, Mapping[str, Any] | None]

    def to(self, device: torch.device) -> Sources:
        moved = [None if part is None else part.to(device) for part in (self.train, self.validation, self.test)]
        assert moved[0] is not None
        return replace(self, train=moved[0], validation=moved[1], test=moved[2])


def gather(data: Any, test: Any, settings: Settings) -> Sources:
    """Read the data, corrupt the training labels, set the validation share apart."""
    train, test = read_both(data, test)
    check_augment(train, settings)
    read_from = {"train": train.source, "test": None if test is None else test.source}
    corruption = None
    if settings.noise != "none":
        corruption = train.corruption(settings.noise, seed=settings.seed)
        train = train.corrupted(corruption)
    validation = None
    if settings.validation > 0:
        try:
            validation, train = split(train, settings.validation, seed=settings.seed)
        except InputError:  # the share itself was checked with the other settings
            wanted = f"one that leaves neither part of {len(train)} examples empty"
            raise invalid_parameter("validation", "a run", wanted, settings.validation) from None
    return Sources(train, validation, test, corruption, read_from)


def check_augment(data: Dataset, settings: Settings) -> None:
    """Refuse an augmentation of what is no images: it would do nothing."""
    if data.inputs.dim() != 4 and augmentations.get(settings.augment).name != "none":
        raise invalid_parameter("augment", "a run", '"none" where the inputs are no images', settings.augment)


def check_apart(folder: Path, sources: Sources) -> None:
    """Refuse a run inside a folder of images: it would be taken for a class when they are read again."""
    for source in (Path(found["source"]) for found in sources.read_from.values() if found and _kind(found["source"]) == "folder"):
        if source.resolve() in folder.resolve().parents:
            raise InputError(
                f"The run folder {str(folder)!r} lies in the folder of images {str(source)!r}, where it would be taken for a class. "
                "Give one outside."
            )


def read_both(data: Any, test: Any) -> tuple[Dataset, Dataset | None]:
    """Training and test set, with the same columns and classes, the test set with its true labels where it has some.

    An official data set brings its own test set.
    """
    train = read(data)
    if test is None and isinstance(data, str) and is_official(data):
        test = data
    if test is None:
        return train, None
    found = _read_test(test, train) if isinstance(test, str | os.PathLike) else read(test)
    alike = _with_classes(_with_features(found, train), train.classes)
    if alike.inputs.shape[1:] != train.inputs.shape[1:]:
        raise InputError(
            f"The test set must have inputs shaped {tuple(train.inputs.shape[1:])}, like the training set's. "
            f"Got {tuple(alike.inputs.shape[1:])}; give another test set."
        )
    alike = replace(alike, inputs=like_those(alike.inputs, str(train.inputs.dtype), "The inputs of the test set"))
    return train, _with_truth(alike).read_from(found.source)


def _read_test(test: str | os.PathLike[str], train: Dataset) -> Dataset:
    """Read a test set from its path or name, as the training set was read: with its options, columns and classes."""
    given, kind = as_before(test, train.source), _kind(test)
    given |= {"split": "test"} if kind == "official" else {"classes": train.classes}
    if kind == "table" and train.features is not None:
        given["features"] = train.features
    try:
        return read(**given)
    except InputError as error:
        raise InputError(f"The test set cannot be read as the training set {train.name!r} was: {error}") from None


def as_before(source: str | os.PathLike[str], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of `read` that read one thing as another was read, as far as the two are of one kind.

    Args:
        source: a path or a name.
        before: the arguments the other was read with; None where nobody knows.
    """
    given = dict(before or {})
    if given and _kind(given["source"]) != _kind(source):
        given = {name: given[name] for name in ("size", "memory", "unreadable") if name in given}
    return {**given, "source": source}


def _kind(source: str | os.PathLike[str]) -> str:
    return "official" if isinstance(source, str) and is_official(source) else "table" if is_table(source) else "folder"


def _with_features(test: Dataset, train: Dataset) -> Dataset:
    """The test set with its columns as the training set has them; it may have more."""
    if train.features is None or test.features is None or test.features == train.features:
        return test
    places = places_of(test.features)
    missing = [name for name in train.features if name not in places]
    if missing:
        raise InputError(
            f"The test set {test.name!r} has no column {listed(map(repr, missing))}, which the training set {train.name!r} has. "
            f"Its columns are {listed(test.features)}; give one with all of them."
        )
    columns = torch.tensor([places[name] for name in train.features], device=test.inputs.device)
    return replace(test, inputs=test.inputs[:, columns], features=train.features)


def _with_classes(test: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The test set with its labels numbered as the training set's classes are; it may lack some of them."""
    if test.classes == classes:
        return test
    places = places_of(classes)
    for name in test.classes:
        if name not in places:
            raise InputError(f"The test set has a class {name!r} that the training set has not. Its classes are {listed(classes)}.")
    numbers = torch.tensor([places[name] for name in test.classes], device=test.labels.device)
    numbers_of_truth = torch.cat([numbers, numbers.new_tensor([NO_CLASS])])  # −1 is its last place
    true_labels = None if test.true_labels is None else numbers_of_truth[test.true_labels]
    return replace(test, labels=numbers[test.labels], true_labels=true_labels, classes=classes, human={})


def _with_truth(test: Dataset) -> Dataset:
    """The test set with the labels that are known to be right, which a model is tested by."""
    truth = test.true_labels
    return test if truth is None else replace(test, labels=torch.where(truth == NO_CLASS, test.labels, truth))


def called(data: Any) -> str:
    """What the settings say of data that were given as an object."""
    if isinstance(data, str | os.PathLike | Official):
        return str(data)
    if isinstance(data, Dataset | ImageFiles):
        return data.name
    if isinstance(data, DataLoader):
        return "loader"
    return "arrays" if isinstance(data, tuple | list) else type(data).__name__


def provenance(sources: Sources, device: torch.device) -> dict[str, Any]:
    """Versions, checksums and the state of the code: what one needs to know to trust or repeat a run."""
    parts = {"train": sources.train, "validation": sources.validation, "test": sources.test}
    corruption = sources.corruption
    return {
        "noisewise": noisewise.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "sources": dict(sources.read_from),
        "data": {name: _checksums(part) for name, part in parts.items() if part is not None},
        "noise": None if corruption is None else {"spec": readable(corruption.noise), "digest": corruption.digest, "rate": corruption.rate},
        "git": _git(),
    }


def recorded_sources(provenance: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any] | None]:
    """What the training and the test set of a run can be read from again, by "train" and "test": arguments of `read`, or None.

    Args:
        provenance: of the run. One from before sources were written has only the name of its data, in the settings.
        settings: of the run.
    """
    if "sources" in provenance:
        return provenance["sources"]  # type: ignore[no-any-return]
    data = str(settings["data"])
    named = is_official(data) or "/" in data or "." in data
    return {"train": {"source": data} if named else None, "test": {"source": data, "split": "test"} if is_official(data) else None}


def _checksums(data: Dataset) -> dict[str, Any]:
    """What identifies a data set."""
    return {
        "name": data.name,
        "examples": len(data),
        **_input_digests(data),
        "labels": digest(data.labels),
        "truth": None if data.true_labels is None else digest(data.true_labels),
        "names": digest_of([*data.classes, "", *(data.ids or ())]),
    }


def _input_digests(data: Dataset, rows: Tensor | None = None) -> dict[str, str]:
    """What identifies the inputs of a data set; images that stay on disk are known by their paths and the sizes of their files."""
    if not isinstance(data, Stream):
        return {"inputs": digest(data.inputs, rows)}
    paths = data.paths if rows is None else [data.paths[row] for row in rows.tolist()]
    return {"inputs": digest_of(paths), "sizes": digest_of(map(_size, paths))}


def may_have_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data that the user gave may have the inputs of a run.

    Images on disk may have moved since, and may have been in memory then; a run of a `Recorder` says nothing of its inputs.

    Args:
        recorded: what the run's provenance says of its training set.
        data: a data set.
        rows: the positions in it of the examples of the run, in order; by default all.
    """
    now = _input_digests(data, rows)
    if ("sizes" in recorded) != ("sizes" in now):
        return True
    name = "sizes" if "sizes" in now else "inputs"
    return bool(recorded.get(name, now[name]) == now[name])


def has_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data have exactly the inputs that a run recorded; see `may_have_inputs` for the arguments."""
    now = _input_digests(data, rows)
    return now == {name: recorded[name] for name in ("inputs", "sizes") if name in recorded}


def read_recorded(source: Mapping[str, Any]) -> Dataset:
    """Read a data set with the arguments that a run recorded."""
    try:
        return read(**source)
    except TypeError as error:
        raise InputError(
            f"The provenance.json of the run has wrong options for reading its data ({reason(error)}). Copy the run folder again."
        ) from None


def digest_of(lines: Iterable[str]) -> str:
    """What tells a list of lines from others."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _size(path: str) -> str:
    try:
        return str(Path(path).stat().st_size)
    except OSError:
        return "missing"  # which is said where it is read


def digest(values: Tensor, rows: Tensor | None = None) -> str:
    """What identifies a tensor, or some of its rows; it is read in parts, because it may fill the memory."""
    shape = tuple(values.shape) if rows is None else (len(rows), *values.shape[1:])
    found = hashlib.sha256(f"{values.dtype} {shape}".encode())
    for part in _parts(values.detach().view(1) if values.dim() == 0 else values.detach(), rows):
        found.update(part.resolve_conj().resolve_neg().contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _parts(values: Tensor, rows: Tensor | None) -> Iterator[Tensor]:
    size = max(1, 2**24 // max(1, values[:1].numel() * values.element_size()))
    for start in range(0, len(values if rows is None else rows), size):
        part = slice(start, start + size)
        yield values[part if rows is None else rows[part]]


def _git() -> dict[str, Any] | None:
    """The commit of the folder the user works in; None where there is no repository.

    Git's own files are read and nothing is run: commands of git start programs that the repository's configuration names. So whether files
    were changed since the commit is not known.
    """
    commit = head_commit(Path.cwd())
    return None if commit is None else {"commit": commit}
