"""What an official data set is: a name, splits, files in the data folder, and how they are read."""

from __future__ import annotations

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
    """A data set as its makers distribute it, read into memory. Subclasses set the class attributes and write `read`."""

    summary: ClassVar[str]
    size: ClassVar[str]
    licence: ClassVar[str]
    home: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    places: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """What must be in the data folder: of each tuple, one path."""
    holdings: ClassVar[tuple[Holding, ...]] = ()
    """What can be fetched; empty where the makers ask for a request first."""

    def read(self, root: Path, split: str) -> Dataset:
        """Read one split from the data folder."""
        raise NotImplementedError

    def present(self, root: Path) -> bool:
        """Whether the data folder holds it; its files are not opened."""
        return all(any((root / path).exists() for path in either) for either in self.places)

    def find(self, root: Path, either: tuple[str, ...]) -> Path:
        """The first of some paths that the data folder holds."""
        for path in either:
            if (root / path).exists():
                return root / path
        advice = f"Run `noisewise data get {self.name}`" if self.holdings else f"Ask for it at {self.home} and put it there"
        raise InputError(
            f"The data set {self.name!r} is not in {str(root)!r}: no {' or '.join(either)} there. "
            f"{advice}, or say where it is in {VARIABLE}."
        )

    def check_split(self, split: str) -> None:
        if split not in self.splits:
            raise invalid_parameter("split", self.name, "one of " + ", ".join(map(repr, self.splits)), split)


class OfficialFiles(Official):
    """A data set of image files, which may be too many for memory. Subclasses write `files`."""

    image_size: ClassVar[tuple[int, int]]
    """The (height, width) that images are resized to in memory."""

    def files(self, root: Path, split: str) -> ImageFiles:
        """List the files of one split."""
        raise NotImplementedError

    def read(self, root: Path, split: str) -> Dataset:
        return self.files(root, split).load(self.image_size)
