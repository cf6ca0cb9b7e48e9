"""The script that the workers of a stream run to decode image files. It imports Pillow and nothing of this package.

As a separate script it starts fast, copies neither the memory nor the CUDA state of the training process, and needs no
`if __name__ == "__main__"` in the user's code. It ends when its standard input closes.

Each line of its input is a path in JSON. It answers with a byte 1 and the pixels (height × width × 3), or with a byte 0 if the file is
damaged or so large that the parent process must decode it alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The accepted formats, whatever the file name. Pillow knows more, and some start another program (EPS)."""

MAX_PIXELS = 2**27
"""The limit for one image: a file of half a megabyte can contain billions of pixels."""

LARGE = 2**24
"""Images of more pixels are decoded one at a time."""

_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
"""What turns an image upright, in Pillow's names, for EXIF orientations 2 to 8."""


def open_image(file: str | Path | BinaryIO, limit: int = MAX_PIXELS) -> Image.Image:
    """Open an image without decoding it, or raise `ValueError` if it has more pixels than the limit or an unknown format."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"its content is not one of {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"it has more than {limit:,} pixels: {str(error).partition(' exceeds')[0]}") from None
    if image.width * image.height > limit:
        image.close()
        raise ValueError(f"it has {image.width:,} × {image.height:,} pixels, more than {limit:,}")
    return image


def to_rgb(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """Turn an image upright, convert it to 8-bit RGB, and resize it to (height, width)."""
    from PIL import Image

    orientation = _orientation(image)
    image.load()
    rgb = _to_eight_bits(image)
    rgb = rgb if rgb.mode == "RGB" else rgb.convert("RGB")  # convert always copies
    if 2 <= orientation <= 8:
        rgb = rgb.transpose(Image.Transpose[_TURNS[orientation - 2]])
    if size is None or rgb.size == (size[1], size[0]):
        return rgb
    return rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """The (height, width) of an image after it is turned upright."""
    return (image.width, image.height) if _orientation(image) in (5, 6, 7, 8) else (image.height, image.width)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 is upright. Pillow turns TIFF files itself."""
    if image.format == "TIFF" or "exif" not in image.info:  # getexif would decode the image
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale an image with 16 bits per pixel to 8, which Pillow would clip at 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # the name depends on Pillow's version
        return image.convert("I").point(lambda value: value * (255 / 65535) + 0.5).convert("L")
    if image.mode in ("I", "F"):
        raise ValueError("the range of its pixels is not known; save it with 8 or 16 bits")
    return image


def serve(requests: BinaryIO, replies: BinaryIO, size: tuple[int, int]) -> None:
    """Answer requests until there are no more."""
    for request in requests:
        try:
            with open_image(json.loads(request), LARGE) as image:
                reply = b"\1" + to_rgb(image, size).tobytes()
        except Exception:  # the parent process reads the file again and reports the error
            reply = b"\0"
        replies.write(reply)
        replies.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, (int(sys.argv[1]), int(sys.argv[2])))
