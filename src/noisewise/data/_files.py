"""Image files and their labels: what a reader returns when the images are too many to hold in memory.

A streaming source reads the files one batch at a time; `ImageFiles.load` decodes a small set at once. It must not know
which data set the files belong to.
"""

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

from noisewise.data._dataset import Dataset, check_examples, positions_of
from noisewise.data._decoder import LARGE, open_image, to_rgb
from noisewise.errors import InputError, NoisewiseWarning, listed, reason

if TYPE_CHECKING:
    from PIL import Image

_MEMORY = 32 << 30
_ONE_AT_A_TIME = Lock()


class Unreadable(NoisewiseWarning):
    """Some images cannot be read, and were left out as was asked."""


@contextmanager
def opened(path: str | Path) -> Iterator[Image.Image]:
    """An image file, open; whatever is wrong with it is said in one sentence."""
    try:
        with open_image(path) as image:
            yield image
    except Exception as error:  # a damaged image can fail in any way its decoder can
        raise InputError(
            f"The image {str(path)!r} cannot be read: {reason(error)}. Replace the file or leave it out; "
            "set 'unreadable' to 'skip' to leave out all such images."
        ) from error


@contextmanager
def without_pillow_warnings() -> Iterator[None]:
    """Leave out what Pillow warns of: an image is either read or refused. Enter it in one thread at a time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def decode(path: str | Path, size: tuple[int, int] | None = None) -> Tensor:
    """Read one image file as RGB. Several threads take turns, so that one image is decoded at a time.

    Args:
        path: a file in one of the formats `FORMATS`, of at most `MAX_PIXELS` pixels.
        size: the (height, width) to resize to; None keeps the image's own.

    Returns:
        uint8 (3, height, width).
    """
    with _ONE_AT_A_TIME, without_pillow_warnings(), opened(path) as image:
        rgb = to_rgb(image, size)
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _damage(path: str) -> str | None:
    """What is wrong with an image file, or None."""
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
        labels: the labels that were given, int64 (N,). They may be wrong.
        classes: the name of every class; its length is the number of classes.
        true_labels: the labels known to be right, or None.
        ids: what the source calls every example, or None.
        groups: what else is known of every example, by name, int64 (N,) each: "identity", "camera", "tracklet".
        name: what the data set is called.
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
        check_examples(self.name, len(self), "file", self.labels, len(self.classes), columns)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFiles({self.name}: {len(self)} files, {len(self.classes)} classes)"

    def take(self, which: Tensor) -> ImageFiles:
        """The files at the given positions (or where a mask is true), everything else kept."""
        positions = positions_of(which, len(self))
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
        """Those that can be read: every file is tried, and a warning names the others."""
        with without_pillow_warnings(), ThreadPoolExecutor() as threads:
            damage = list(threads.map(_damage, self.paths))
        left = [position for position, found in enumerate(damage) if found is None]
        if len(left) == len(self):
            return self
        if not left:
            raise InputError(f"None of the {len(self):,} images of {self.name} can be read. {damage[0]}")
        names = self.ids or self.paths
        out = listed(repr(names[position]) for position, found in enumerate(damage) if found is not None)
        text = f"{len(self) - len(left):,} of the {len(self):,} images of {self.name} cannot be read and are left out: {out}."
        warnings.warn(text, Unreadable, stacklevel=7)
        return self.take(torch.tensor(left))

    def load(self, size: tuple[int, int]) -> Dataset:
        """Decode every file into memory, resized to one (height, width).

        Raises:
            InputError: a file cannot be read (the message names it), or they are too many for memory.
        """
        needed = 3 * len(self) * size[0] * size[1]
        if needed > _MEMORY:
            raise InputError(f"The {len(self)} images of {self.name} need {needed >> 30} GiB at {size}. Stream them, or take fewer.")
        inputs = torch.empty((len(self), 3, *size), dtype=torch.uint8)
        for position, path in enumerate(self.paths):
            inputs[position] = decode(path, size)
        return Dataset(inputs, self.labels, self.classes, true_labels=self.true_labels, ids=self.ids or self.paths, name=self.name)
