"""The base classes of the official data sets, and `load` and `files`, which read them by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles
from noisewise.data._store import VARIABLE, Holding
from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import Named, Registry

registry: Registry[Official] = Registry("data set")
"""The official data sets by name."""


class Official(Named, registry=registry):
    """A data set as it is distributed, read into memory. Subclasses set the class attributes and implement `read`."""

    summary: ClassVar[str]
    size: ClassVar[str]
    licence: ClassVar[str]
    home: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    places: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The paths that must be in the data folder: one of each tuple."""
    holdings: ClassVar[tuple[Holding, ...]] = ()
    """The files that can be fetched; empty if access must be requested."""

    def read(self, root: Path, split: str) -> Dataset:
        """Read one split from the data folder."""
        raise NotImplementedError

    def present(self, root: Path) -> bool:
        """Whether the data folder has it; its files are not opened."""
        return all(any((root / path).exists() for path in either) for either in self.places)

    def find(self, root: Path, either: tuple[str, ...]) -> Path:
        """The first of some paths that exists in a folder."""
        for path in either:
            if (root / path).exists():
                return root / path
        advice = f"Run `noisewise data get {self.name}`" if self.holdings else f"Request it at {self.home} and copy it there"
        missing = " or ".join(either)
        raise InputError(f"The data set {self.name!r} is not in {str(root)!r}: no {missing} there. {advice}, or set {VARIABLE}.")


class OfficialFiles(Official):
    """A data set of image files. Subclasses implement `files`."""

    image_size: ClassVar[tuple[int, int]]
    """The default (height, width) of the images in memory."""

    def files(self, root: Path, split: str) -> ImageFiles:
        """List the files of one split."""
        raise NotImplementedError

    def read(self, root: Path, split: str) -> Dataset:
        return self.files(root, split).load(self.image_size)


def data_root(root: str | Path | None = None) -> Path:
    """The data folder: the given one, else $NOISEWISE_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "noisewise"


def load(spec: str | Official, split: str = "train", root: str | Path | None = None) -> Dataset:
    """Read a split of a data set into memory.

    Args:
        spec: its name or spec: "cifar10", "cifar100(labels=coarse)", "cifar10n(worst)".
        split: "train" or "test"; `describe` lists all splits.
        root: the data folder; by default $NOISEWISE_DATA or the user's cache folder.

    Raises:
        InputError: the data set is not in the data folder, or a file is damaged.

    Example:
        >>> len(load("digits"))
        1437
    """
    data = registry.get(spec)
    _check_split(data, split)
    return data.read(data_root(root), split)


def files(spec: str | Official, split: str = "train", root: str | Path | None = None) -> ImageFiles:
    """List the image files of a split.

    Args:
        spec: the name or spec of a data set of image files: "clothing1m", "webvision(classes=200)", "mars", "pku_reid".
        split: see `load`.
        root: see `load`.
    """
    data = registry.get(spec)
    if not isinstance(data, OfficialFiles):
        known = [name for name in registry if issubclass(registry[name], OfficialFiles)]  # type: ignore[arg-type]
        raise invalid_parameter("spec", "files", "a data set of image files: " + ", ".join(known), data.name)
    _check_split(data, split)
    return data.files(data_root(root), split)


def _check_split(data: Official, split: str) -> None:
    if split not in data.splits:
        raise invalid_parameter("split", data.name, "one of " + ", ".join(map(repr, data.splits)), split)
