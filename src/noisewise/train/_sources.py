"""What a run trains and tests on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from noisewise.arrays import NO_CLASS, places_of
from noisewise.data import Dataset, ImageFiles, Official, augmentations, is_official, like_those, read, split
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.noise import Corruption
from noisewise.runs import Settings, as_before, make_provenance, source_kind


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

    def provenance(self, device: torch.device) -> dict[str, Any]:
        """What the run is made with; see `noisewise.runs.make_provenance`."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return make_provenance(parts, self.read_from, self.corruption, device)


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
    for source in (Path(found["source"]) for found in sources.read_from.values() if found and source_kind(found["source"]) == "folder"):
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
    given, kind = as_before(test, train.source), source_kind(test)
    given |= {"split": "test"} if kind == "official" else {"classes": train.classes}
    if kind == "table" and train.features is not None:
        given["features"] = train.features
    try:
        return read(**given)
    except InputError as error:
        raise InputError(f"The test set cannot be read as the training set {train.name!r} was: {error}") from None


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
