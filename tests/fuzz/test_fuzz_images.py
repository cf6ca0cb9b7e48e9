"""Damaged images and idx files are read or refused."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fuzzing import mutated, survives
from noisewise.data import Unreadable, read

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)


def encoded(mode: str, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, form, **options)
    return file.getvalue()


def seeds() -> Iterator[bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    yield from (encoded("RGB", "PNG", exif=exif), encoded("P", "PNG", transparency=b"\0\x80"), encoded("I;16", "PNG"), encoded("1", "PNG"))
    yield from (encoded("RGB", "JPEG", exif=exif), encoded("CMYK", "JPEG"), encoded("L", "JPEG", progressive=True))
    yield from (
        encoded("RGB", "WEBP"),
        encoded("RGBA", "WEBP", lossless=True),
        encoded("P", "GIF"),
        encoded("RGB", "BMP"),
        encoded("L", "PPM"),
    )
    yield from (encoded("RGB", "TIFF"), encoded("RGB", "TIFF", compression="tiff_lzw"), encoded("L", "TIFF", compression="tiff_deflate"))


def test_changed_images_are_read_or_refused(tmp_path: Path, times: int) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        Image.fromarray(PIXELS).save(tmp_path / kind / "whole.png")
    path = tmp_path / "cat" / "changed.png"

    def load(case: bytes) -> None:
        path.write_bytes(case)
        read(tmp_path, size=(3, 4))

    refused = survives(load, list(seeds()), 1000 * times, tmp_path)
    assert 200 * times < refused < 950 * times


@pytest.mark.filterwarnings("ignore::noisewise.data.Unreadable")
def test_changed_images_are_read_or_skipped_in_several_threads(tmp_path: Path, times: int) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        Image.fromarray(PIXELS).save(tmp_path / kind / "whole.png")
    draw, valid = random.Random(1), list(seeds())
    number = 300 * times
    for position in range(number):
        (tmp_path / "cat" / f"{position}.png").write_bytes(mutated(draw.choice(valid), draw))
    with pytest.warns(Unreadable) as caught:
        data = read(tmp_path, size=4, unreadable="skip")
    assert len(caught) == 1 and number / 10 < len(data) < number


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape) + array.tobytes()


def changed(case: bytes, draw: random.Random) -> bytes:
    """Change the bytes of a file, or the content of a compressed one."""
    if case[:2] == b"\x1f\x8b" and draw.random() < 0.5:
        return gzip.compress(mutated(gzip.decompress(case), draw), mtime=0)
    return mutated(case, draw)


def test_changed_idx_files_are_read_or_refused(tmp_path: Path, times: int) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    labels = np.array([1, 2, 3], np.uint8)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    images = idx(np.resize(PIXELS, (3, 28, 28)))

    def load(case: bytes) -> None:
        (folder / "train-images-idx3-ubyte").write_bytes(case)
        read("mnist", root=tmp_path)

    refused = survives(load, [images, gzip.compress(images, mtime=0)], 350 * times, tmp_path, mutate=changed)
    assert refused > 100 * times

    def load_labels(case: bytes) -> None:
        (folder / "train-images-idx3-ubyte").write_bytes(images)
        (folder / "train-labels-idx1-ubyte").write_bytes(case)
        read("mnist", root=tmp_path)

    assert survives(load_labels, [idx(labels), gzip.compress(idx(labels), mtime=0)], 250 * times, tmp_path, mutate=changed) > 100 * times
