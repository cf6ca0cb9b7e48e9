"""A data set from a folder of images, and the choice between memory and disk for all image files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from noisewise.data._column import Column, encode
from noisewise.data._dataset import Dataset
from noisewise.data._decoder import LARGE, upright_size
from noisewise.data._files import ImageFiles, opened, without_pillow_warnings
from noisewise.data._stream import Stream
from noisewise.errors import InputError, invalid_parameter

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
SPLITS = frozenset({"dev", "test", "train", "training", "val", "valid", "validation"})


def from_folder(
    path: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    classes: Sequence[str] | None = None,
    memory: float = 4.0,
    unreadable: str = "refuse",
) -> Dataset:
    """Read a folder that has one sub-folder of images per class.

    Args:
        path: the folder; the name of each sub-folder is the label of all images in and below it.
        size: the side, or the (height, width), to resize every image to; not needed if all images have one size.
        classes: the names of the classes in order; by default the names of the sub-folders, sorted.
        memory: how many GiB the decoded images may take; larger data sets stay on disk, see `Stream`.
        unreadable: "refuse" unreadable images, or "skip" them: then every image is tested first, and a warning lists the skipped ones.

    Returns:
        The data set, with the path of each image inside the folder as its id.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}; give one that has a sub-folder of images for every class.")
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not folders:
        raise InputError(f"The folder {str(root)!r} has no sub-folder of images; put the images of every class into a sub-folder.")
    names = {folder.name.lower() for folder in folders}
    if names <= SPLITS:
        raise InputError(f"The sub-folders of {str(root)!r} are splits ({', '.join(sorted(names))}), not classes; read one of them.")
    images = {folder: images_below(folder) for folder in folders}
    if empty := next((folder for folder, below in images.items() if not below), None):
        raise InputError(f"The folder {str(empty)!r} has no image ({', '.join(sorted(IMAGE_SUFFIXES))}); add images to it, or delete it.")
    files = [file for below in images.values() for file in below]
    labels = Column([folder.name for folder, below in images.items() for _ in below], f"the sub-folders of {str(root)!r}")
    numbered, _, known = encode(labels, None, classes)
    ids = tuple(file.relative_to(root).as_posix() for file in files)
    if name := next((name for name in ids if name.encode(errors="replace").decode() != name), None):
        raise InputError(f"The name of the file {name!a} is not UTF-8. Rename it.")
    listed = ImageFiles(tuple(map(str, files)), numbered, known, ids=ids, name=root.resolve().name)
    return load_or_stream(listed, size=size, memory=memory, unreadable=unreadable)


def images_below(folder: Path) -> list[Path]:
    """The image files in and below a folder, sorted by path; hidden ones are left out."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def load_or_stream(
    files: ImageFiles, *, size: int | tuple[int, int] | None = None, memory: float = 4.0, unreadable: str = "refuse"
) -> Dataset:
    """Decode image files into memory, or make a `Stream` of them if they take more than ``memory`` GiB; see `from_folder`."""
    if not memory >= 0:
        raise invalid_parameter("memory", "a folder or table of images", "a number of GiB in [0, inf)", memory)
    if unreadable not in ("refuse", "skip"):
        raise invalid_parameter("unreadable", "a folder or table of images", "'refuse' or 'skip'", unreadable)
    if unreadable == "skip":
        files = files.readable()
    height, width = _common_size(files) if size is None else as_size(size)
    if 3 * height * width * len(files) > memory * 2**30:
        return Stream.of(files, (height, width))
    return files.load((height, width))


def as_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """A size as (height, width)."""
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise invalid_parameter("size", "a folder or table of images", "a number of pixels or a pair (height, width)", size)
    return sides[0], sides[1]


def _common_size(files: ImageFiles) -> tuple[int, int]:
    """The (height, width) in the headers of all files; they must agree."""
    first: tuple[int, int] | None = None
    with without_pillow_warnings():
        for path in files.paths:
            with opened(path) as image:
                size = upright_size(image)
            first = first or size
            if size != first:
                sizes = f"{first} for {files.paths[0]!r} and {size} for {path!r}"
                raise InputError(f"The images of {files.name} have different sizes: {sizes}; set 'size' to resize them.")
    assert first is not None
    if first[0] * first[1] > LARGE:
        pixels = f"{first[0]:,} × {first[1]:,} pixels, more than the limit of {LARGE:,}"
        raise InputError(f"The images of {files.name} have {pixels}; set 'size' to resize them.")
    return first
