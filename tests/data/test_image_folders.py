"""Folders and tables of images: classes, sizes, formats, and images that cannot be read."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import write_image
from PIL import Image, ImageOps, features

from fuzzing import confined
from noisewise import Run, fit
from noisewise.correct import correct, retrain
from noisewise.data import Stream, Unreadable, batches, from_folder, from_table, read
from refused import refused, warned


def test_a_folder_gives_a_class_per_sub_folder(folder: Path) -> None:
    data = from_folder(folder)
    assert repr(data) == "Dataset(pictures: 6 × (3, 4, 6) torch.uint8, 2 classes)"
    assert data.classes == ("cat", "dog") and data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.ids is not None and data.ids[2:4] == ("cat/2.png", "dog/deeper/0.JPG")
    assert data.inputs[:3, 0, 0, 0].tolist() == [0, 1, 2]
    assert from_folder(folder, size=16, classes=["dog", "bird", "cat"]).labels.tolist() == [2, 2, 2, 0, 0, 0]


def test_images_that_take_too_much_memory_are_streamed(folder: Path) -> None:
    size = 3 * 8 * 8 * 6 / 2**30
    assert not isinstance(from_folder(folder, size=8, memory=size), Stream)
    assert isinstance(from_folder(folder, size=8, memory=0.99 * size), Stream)


def test_image_paths_are_relative_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "all" / "1.png", colour=(1, 2, 3))
    write_image(tmp_path / "all" / "2.png", colour=(4, 5, 6))
    path = tmp_path / "list.csv"
    path.write_text("file,label,taken\nall/2.png,b,yesterday\nall/1.png,a,today\n")
    monkeypatch.chdir(tmp_path / "all")
    data = from_table(path, image="file")
    assert data.inputs.shape == (2, 3, 4, 6) and data.inputs.dtype == torch.uint8
    assert data.inputs[:, :, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3]]
    assert data.ids == ("all/2.png", "all/1.png")
    assert from_table(path, image="file", size=(5, 7)).inputs.shape == (2, 3, 5, 7)


def test_a_table_with_a_missing_or_broken_image_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "1.png")
    path = tmp_path / "list.csv"
    path.write_text("file,label\n1.png,a\n2.png,b\n")
    with refused("Row 1", "line 3", "file", "list.csv"):
        from_table(path, image="file")
    (tmp_path / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    for options in ({}, {"size": 8}):
        with refused("2.png"):
            from_table(path, image="file", **options)


@pytest.fixture
def damaged(folder: Path) -> Path:
    """A folder of six images and three files that cannot be read: an empty one, a truncated one, and a text file."""
    (folder / "cat" / "empty.png").write_bytes(b"")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8))
    noise.save(folder / "cat" / "cut.png")
    (folder / "cat" / "cut.png").write_bytes((folder / "cat" / "cut.png").read_bytes()[:90])
    (folder / "dog" / "text.jpg").write_text("404: not found")
    return folder


@pytest.mark.parametrize("options", [{}, {"size": 8}, {"memory": 0.0}, {"size": 8, "memory": 0.0}], ids=str)
def test_unreadable_images_can_be_skipped_with_a_warning(damaged: Path, options: dict[str, Any]) -> None:
    unreadable = ("cat/cut.png", "cat/empty.png", "dog/text.jpg")
    with pytest.warns(Unreadable) as caught:
        data = read(damaged, unreadable="skip", **options)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert all(mention in str(caught[0].message) for mention in ("3 of the 9", "pictures", *unreadable))
    for name in unreadable:
        (damaged / name).unlink()
    whole = read(damaged, unreadable="skip", **options)
    assert type(data) is type(whole) and data.ids == whole.ids and torch.equal(data.labels, whole.labels) and len(data) == 6
    assert all(map(torch.equal, *([batch.inputs for batch in batches(images, 4, shuffle=False)] for images in (data, whole))))


def test_rows_of_unreadable_images_are_skipped_too(damaged: Path) -> None:
    path = damaged / "list.csv"
    path.write_text("file,label,true,name\ncat/0.png,a,a,x\ncat/cut.png,b,a,y\ncat/1.png,b,b,z\n")
    with warned("1 of the 3", "'y'", kind=Unreadable):
        data = read(path, image="file", true_label="true", id="name", unreadable="skip")
    assert data.ids == ("x", "z") and data.labels.tolist() == [0, 1] and data.true_labels is not None
    path.write_text("file,label\ncat/cut.png,a\ndog/text.jpg,b\n")
    with refused("2"):
        read(path, image="file", unreadable="skip")
    path.write_text("file,label\ncat/0.png,a\ncat/none.png,b\n")
    with refused("cat/none.png"):
        read(path, image="file", unreadable="skip")


def test_unreadable_must_be_refuse_or_skip(damaged: Path) -> None:
    with refused("unreadable", "skip"):
        read(damaged)
    with refused("refuse", "skip", "ignore"):
        read(damaged, unreadable="ignore")


def test_a_run_on_the_readable_images_can_be_corrected_from_its_folder(damaged: Path, tmp_path: Path) -> None:
    with pytest.warns(Unreadable):
        data = read(damaged, size=8, unreadable="skip")
    run = Run(fit("linear", data, epochs=2, folder=tmp_path / "run", device="cpu"))  # opened from its folder, so without the data in memory
    with pytest.warns(Unreadable):
        again = retrain(run, correct(run.find_label_issues(), "relabel"), folder=tmp_path / "again")
    assert len(np.load(again.path / "labels/given.npy")) == 6


def test_errors_in_a_folder_name_the_path(folder: Path, tmp_path: Path) -> None:
    with refused(tmp_path / "nowhere"):
        from_folder(tmp_path / "nowhere")
    with refused(folder / ".hidden"):
        from_folder(folder / ".hidden")
    (folder / "cat").rename(tmp_path / "cat")
    with refused("dog"):
        from_folder(folder)
    (tmp_path / "cat").rename(folder / "cat")
    write_image(folder / "dog" / "wide.png", size=(9, 4))
    with refused("(4, 6)"):
        from_folder(folder)
    (folder / "dog" / "wide.png").write_bytes(b"")
    for options in ({}, {"size": 8}):
        with refused("wide.png"):
            from_folder(folder, **options)
    (folder / "empty").mkdir()
    with refused(folder / "empty"):
        from_folder(folder)
    (tmp_path / "both" / "train").mkdir(parents=True)
    (tmp_path / "both" / "test").mkdir()
    with refused(tmp_path / "both", "test, train"):
        from_folder(tmp_path / "both")


@pytest.mark.parametrize("size", [0, (4,), (4, 5, 6), "88", 2.5])
def test_an_invalid_size_is_refused(folder: Path, size: Any) -> None:
    with refused("size"):
        from_folder(folder, size=size)


@pytest.mark.parametrize("form", ["EPS", "DDS", "BLP", "AVIF"])
@pytest.mark.parametrize("options", [{}, {"size": 4, "memory": 0}], ids=["in memory", "streamed"])
def test_a_png_in_another_format_is_refused_and_starts_no_program(
    folder: Path, form: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is a complete image that Pillow could decode; a fake Ghostscript leaves a trace if it is started."""
    if form == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    ghostscript = folder.parent / "bin" / "gs"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch '{folder.parent}/started'\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(ghostscript.parent), prepend=os.pathsep)
    with Image.open(folder / "cat" / "1.png") as image:
        image.convert("P" if form == "BLP" else "RGB").save(folder / "cat" / "0.png", form)
    with confined(folder) if not options else contextlib.nullcontext(), refused("cat/0.png", "BMP", "GIF"):
        data = read(folder, **options)
        next(iter(batches(data, 6, shuffle=False)))
    assert not (folder.parent / "started").exists()


def write_huge_png(path: Path, width: int, height: int) -> None:
    """Write a white PNG that has a few hundred bytes for every million pixels."""
    line, packer = b"\0" + b"\xff" * (width // 8), zlib.compressobj(9)
    rows = b"".join([*(packer.compress(line) for _ in range(height)), packer.flush()])
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    parts = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def test_images_with_too_many_pixels_are_refused_before_decoding(folder: Path) -> None:
    for number in range(2):
        write_huge_png(
            folder / "cat" / f"{number}.png", 16_000, 12_000 if number else 8_500
        )  # Pillow refuses one and warns about the other
    for options in ({"size": 4}, {}):
        with refused("cat/0.png", "16,000 × 8,500"):
            read(folder, **options)
    with warned("2 of the 6", kind=Unreadable) as caught:
        assert len(read(folder, size=4, unreadable="skip")) == 4
    assert len(caught) == 1
    (folder / "cat" / "0.png").unlink()
    with refused("1.png", "134,217,728", "192000000"):
        read(folder, size=4)


def test_a_photograph_of_a_hundred_million_pixels_is_read_if_it_is_resized(tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        write_huge_png(tmp_path / kind / "large.png", 4_800, 4_000)
    with refused("4,000", "4,800", "16,777,216"):
        read(tmp_path)
    write_huge_png(tmp_path / "cat" / "large.png", 12_000, 8_400)
    data = read(tmp_path, size=4)
    assert data.inputs.shape == (2, 3, 4, 4) and int(data.inputs.min()) == 255
    streamed = read(tmp_path, size=4, memory=0)
    assert isinstance(streamed, Stream) and torch.equal(next(iter(batches(streamed, 2, shuffle=False))).inputs, data.inputs)


@pytest.mark.parametrize("memory", [4, 0], ids=["in memory", "streamed"])
@pytest.mark.parametrize(
    ("ending", "orientation"),
    [("png", orientation) for orientation in range(1, 9)] + [("jpg", 1), ("jpg", 6), ("tiff", 1), ("tiff", 3)],
)
def test_photographs_are_turned_upright(tmp_path: Path, orientation: int, ending: str, memory: float) -> None:
    upright = Image.fromarray(np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6))
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        upright.save(tmp_path / kind / f"x.{ending}", exif=exif)
    data = read(tmp_path, memory=memory)
    pixels = data.inputs if memory else next(data.images([torch.arange(2)]))  # type: ignore[attr-defined]
    with Image.open(tmp_path / f"a/x.{ending}") as image:
        image.load()  # loading turns a TIFF upright
        expected = np.array(ImageOps.exif_transpose(image))
    assert np.array_equal(pixels[0, 0], expected) and (orientation == 1) == (
        abs(expected[0, 0].astype(int)) < 9 and expected.shape == (4, 6)
    )


@pytest.mark.parametrize("memory", [4, 0], ids=["in memory", "streamed"])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bit_images_are_scaled_to_eight_bits(tmp_path: Path, ending: str, memory: float) -> None:
    values = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        Image.fromarray(values).save(tmp_path / kind / f"x.{ending}")
    data = read(tmp_path, memory=memory)
    pixels = data.inputs if memory else next(data.images([torch.arange(2)]))  # type: ignore[attr-defined]
    assert (pixels - torch.from_numpy(values / 257)).abs().max() < 0.51


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_float_and_32_bit_images_are_refused(tmp_path: Path, dtype: Any) -> None:
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        Image.fromarray(np.zeros((4, 4), dtype)).save(tmp_path / kind / "x.tiff")
    with refused("8", "16"):
        read(tmp_path)


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "one.png")
    write_image(tmp_path / "b" / "two.png")
    name = os.fsencode(tmp_path / "a") + b"/caf\xe9.png"
    try:
        Path(os.fsdecode(name)).write_bytes((tmp_path / "a/one.png").read_bytes())
    except OSError:
        pytest.skip("this file system accepts only UTF-8 names")
    with refused("a/caf\\udce9.png", "UTF-8"):
        read(tmp_path)


@pytest.mark.parametrize("noise", ["instance(0.3)", "open_set(0.3)"])
def test_noise_that_depends_on_images_is_refused_if_they_are_on_disk(folder: Path, noise: str) -> None:
    data = from_folder(folder, size=8, memory=0)
    with refused(noise):
        data.corrupted(noise)
    assert len(from_folder(folder, size=8).corrupted(noise)) == 6
