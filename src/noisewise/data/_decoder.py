"""The program a stream runs to decode image files: it knows Pillow, and nothing of this package.

It is run as a script, not forked and not through `multiprocessing`: so it starts in a moment, copies neither the memory nor
the CUDA state of the process that trains, and needs no guard in the user's script. It ends when its input does, however the
process at the other end went.

On its input, one line of JSON names a file. On its output, one byte: 1, and the pixels (height × width × 3) follow; 0, and the
file cannot be read here, because it is damaged or so large that only one such image may be decoded at a time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What an image file may hold, whatever its name ends in. Pillow knows others, some of which start a program (EPS)."""

MAX_PIXELS = 2**27
"""The most pixels of one image. A file of half a megabyte may state billions, and each takes four bytes or more when it is decoded."""

LARGE = 2**24
"""Images of more pixels are decoded one at a time."""

_ORIENTATION = 0x0112  # the tag of EXIF that says how a camera was held
_TURNS = {  # what brings a photograph upright, by Pillow's name
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def open_image(file: str | Path | BinaryIO, limit: int = MAX_PIXELS) -> Image.Image:
    """Open an image without decoding it.

    Args:
        file: its path, or its content.
        limit: the most pixels it may have.

    Raises:
        ValueError: it has more, or is of no format that is read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"its content is not one of {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"it has more than the {limit:,} pixels that are read: {str(error).partition(' exceeds')[0]}") from None
    if image.width * image.height > limit:
        image.close()
        raise ValueError(f"it has {image.width:,} × {image.height:,} pixels, more than the {limit:,} that are read")
    return image


def to_rgb(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """The image upright, in three channels of eight bits, resized to (height, width) where it is not that already."""
    from PIL import Image

    held = _orientation(image)
    image.load()
    rgb = _in_eight_bits(image)
    rgb = rgb if rgb.mode == "RGB" else rgb.convert("RGB")  # which would copy it
    if held in _TURNS:
        rgb = rgb.transpose(Image.Transpose[_TURNS[held]])
    if size is None or rgb.size == (size[1], size[0]):
        return rgb
    return rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Its (height, width) when it is upright."""
    lies = _orientation(image) in (5, 6, 7, 8)
    return (image.width, image.height) if lies else (image.height, image.width)


def _orientation(image: Image.Image) -> int:
    """How the camera was held, by EXIF's numbers; 1 for upright, and for a TIFF, which Pillow turns itself."""
    if image.format == "TIFF" or "exif" not in image.info:  # to look for it further on would decode the image
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """An image with one channel of sixteen bits scaled to eight, where Pillow would cut it off at 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # the name depends on Pillow's version
        return image.convert("I").point(lambda value: value * (255 / 65535) + 0.5).convert("L")
    if image.mode in ("I", "F"):
        raise ValueError("its numbers have no range that is known; save it with 8 or 16 bits")
    return image


def serve(requests: BinaryIO, replies: BinaryIO, size: tuple[int, int]) -> None:
    """Answer requests until there are no more."""
    for request in requests:
        try:
            with open_image(json.loads(request), LARGE) as image:
                reply = b"\1" + to_rgb(image, size).tobytes()
        except Exception:  # the process that asked reads the file again to say what is wrong with it
            reply = b"\0"
        replies.write(reply)
        replies.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, (int(sys.argv[1]), int(sys.argv[2])))
