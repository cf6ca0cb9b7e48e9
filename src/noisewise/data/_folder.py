"""A data set from a folder of images, and the choice every reader of image files makes: into memory, or streamed from disk.

It must not know how a table names its images.
"""

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
        size: the side, or the (height, width), to resize every image to. It may be left out where all have one size.
        classes: the names of the classes in their order; by default the sub-folders', sorted.
        memory: how many GiB the decoded images may take; more of them stay on disk, see `Stream`.
        unreadable: "refuse" images that cannot be read, or "skip" them: then every image is tried first, and a warning names those
            that are left out.

    Returns:
        The data set, with the path of each image inside the folder as its id.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}; give one that has a sub-folder of images for every class.")
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    names = {folder.name.lower() for folder in folders}
    if folders and names <= SPLITS:
        raise InputError(f"The sub-folders of {str(root)!r} are splits ({', '.join(sorted(names))}), not classes; read each by itself.")
    images = {folder: _images_below(folder) for folder in folders}
    for folder, found in images.items():
        if not found:
            raise InputError(f"The folder {str(folder)!r} holds no image ({', '.join(sorted(IMAGE_SUFFIXES))}); fill it or remove it.")
    files = [file for found in images.values() for file in found]
    if not files:
        raise InputError(f"The folder {str(root)!r} has no sub-folder of images; put the images of every class into one of its own.")
    labels = Column([folder.name for folder, found in images.items() for _ in found], f"the sub-folders of {str(root)!r}")
    numbered, _, known = encode(labels, None, classes)
    ids = tuple(file.relative_to(root).as_posix() for file in files)
    for name in ids:
        if not _is_text(name):
            raise InputError(f"The name of the file {name!a} is not UTF-8, and cannot be written down. Rename it.")
    return gather(ImageFiles(tuple(map(str, files)), numbered, known, ids=ids, name=root.resolve().name), size, memory, unreadable)


def _is_text(name: str) -> bool:
    """Whether a file's name is one in UTF-8; others are kept in signs that no file of text can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _images_below(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def gather(files: ImageFiles, size: int | tuple[int, int] | None, memory: float, unreadable: str = "refuse") -> Dataset:
    """Decode image files into memory, or stream them where they would take too much of it.

    Args:
        files: the files and their labels.
        size: the side, or (height, width), to resize to; None where all images have one size.
        memory: how many GiB the decoded images may take.
        unreadable: "refuse" those that cannot be read, or "skip" them.
    """
    if not memory >= 0:
        raise invalid_parameter("memory", "a folder or table of images", "a number of GiB in [0, inf)", memory)
    if unreadable not in ("refuse", "skip"):
        raise invalid_parameter("unreadable", "a folder or table of images", "'refuse' or 'skip'", unreadable)
    if unreadable == "skip":
        files = files.readable()
    height, width = _common_size(files) if size is None else one_size(size)
    if 3 * height * width * len(files) > memory * 2**30:
        return Stream.of(files, (height, width))
    return files.load((height, width))


def one_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """A size as (height, width)."""
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise invalid_parameter("size", "a folder or table of images", "a number of pixels or a pair (height, width) of them", size)
    return sides[0], sides[1]


def _common_size(files: ImageFiles) -> tuple[int, int]:
    """The (height, width) that all files say they have, without decoding them."""
    with without_pillow_warnings():
        sizes = map(_stated_size, files.paths)
        first = next(sizes)
        for path, size in zip(files.paths[1:], sizes, strict=True):
            if size != first:
                raise InputError(
                    f"The images of {files.name} must have one size where none is asked for. Got {first} for {files.paths[0]!r} "
                    f"and {size} for {path!r}; set 'size' to resize them."
                )
    if first[0] * first[1] > LARGE:
        raise InputError(
            f"The images of {files.name} have {first[0]:,} × {first[1]:,} pixels, more than the {LARGE:,} that are kept of an image; "
            "set 'size' to resize them."
        )
    return first


def _stated_size(path: str) -> tuple[int, int]:
    with opened(path) as image:
        return upright_size(image)
