"""Image files and their labels, which can be decoded into memory or streamed from disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from noisewise.data._dataset import Dataset, as_positions, check_examples
from noisewise.data._decoder import LARGE, open_image, to_rgb
from noisewise.errors import InputError, NoisewiseWarning, listed, reason, warn

if TYPE_CHECKING:
    from PIL import Image

_MEMORY = 32 << 30
_ONE_AT_A_TIME = Lock()


class Unreadable(NoisewiseWarning):
    """Some images cannot be read and were skipped."""


@contextmanager
def opened(path: str | Path) -> Iterator[Image.Image]:
    """Open an image file; every error becomes an `InputError` that names the file."""
    try:
        with open_image(path) as image:
            yield image
    except Exception as error:  # a damaged image can fail in any way its decoder can
        advice = "Replace or delete the file, or set 'unreadable' to 'skip' to leave out all such images."
        raise InputError(f"The image {str(path)!r} cannot be read: {reason(error)}. {advice}") from error


@contextmanager
def without_pillow_warnings() -> Iterator[None]:
    """Hide the warnings of Pillow: an image is either read or refused. Not thread-safe."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def decode(path: str | Path, size: tuple[int, int] | None = None) -> Tensor:
    """Read one image file as RGB, uint8 (3, height, width). Threads take turns, so that one image is decoded at a time.

    Args:
        path: a file in one of the formats `FORMATS`, of at most `MAX_PIXELS` pixels.
        size: the (height, width) to resize to; None keeps the size of the image.
    """
    with _ONE_AT_A_TIME, without_pillow_warnings(), opened(path) as image:
        rgb = to_rgb(image, size)
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _problem(path: str) -> str | None:
    """Why an image file cannot be read, or None if it can."""
    try:
        with opened(path) as image, _ONE_AT_A_TIME if image.width * image.height > LARGE else nullcontext():
            to_rgb(image, None)
    except InputError as error:
        return str(error)
    return None


@dataclass(frozen=True, repr=False)
class ImageFiles:
    """Paths of images and their labels.

    Args:
        paths: one file per example.
        labels: the given labels, int64 (N,). They may be wrong.
        classes: the name of every class.
        true_labels: the true labels, or None.
        ids: a unique name for every example, or None.
        groups: other facts about every example by name, int64 (N,) each: "identity", "camera", "tracklet".
        name: the name of the data set.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    true_labels: Tensor | None = None
    ids: tuple[str, ...] | None = None
    groups: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "images"

    def __post_init__(self) -> None:
        columns = {"true_labels": self.true_labels, **self.groups}
        check_examples(self.name, len(self), self.labels, len(self.classes), columns)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFiles({self.name}: {len(self)} files, {len(self.classes)} classes)"

    def take(self, which: Tensor) -> ImageFiles:
        """The files at the given positions, or where a mask is true."""
        positions = as_positions(which, len(self))
        chosen = positions.tolist()
        return replace(
            self,
            paths=tuple(self.paths[position] for position in chosen),
            labels=self.labels[positions],
            true_labels=None if self.true_labels is None else self.true_labels[positions],
            ids=None if self.ids is None else tuple(self.ids[position] for position in chosen),
            groups={name: values[positions] for name, values in self.groups.items()},
        )

    def readable(self) -> ImageFiles:
        """The files that can be decoded; a warning names the others."""
        with without_pillow_warnings(), ThreadPoolExecutor() as threads:
            problems = list(threads.map(_problem, self.paths))
        kept = [position for position, problem in enumerate(problems) if problem is None]
        if len(kept) == len(self):
            return self
        if not kept:
            raise InputError(f"None of the {len(self):,} images of {self.name} can be read. {problems[0]}")
        names = self.ids or self.paths
        skipped = listed(repr(names[position]) for position, problem in enumerate(problems) if problem is not None)
        number = len(self) - len(kept)
        warn(f"{number:,} of the {len(self):,} images of {self.name} cannot be read and are left out: {skipped}.", Unreadable)
        return self.take(torch.tensor(kept))

    def load(self, size: tuple[int, int]) -> Dataset:
        """Decode every file into memory, resized to one (height, width).

        Raises:
            InputError: a file cannot be read (the message names it), or the images do not fit into memory.
        """
        needed = 3 * len(self) * size[0] * size[1]
        if needed > _MEMORY:
            raise InputError(f"The {len(self)} images of {self.name} need {needed >> 30} GiB at {size}. Stream them, or take fewer.")
        inputs = torch.empty((len(self), 3, *size), dtype=torch.uint8)
        for position, path in enumerate(self.paths):
            inputs[position] = decode(path, size)
        return Dataset(
            inputs,
            self.labels,
            self.classes,
            true_labels=self.true_labels,
            ids=self.ids or self.paths,
            name=self.name,
            groups=self.groups,
        )
