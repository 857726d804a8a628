"""Decode images with Pillow into rows of RGB bytes, upright, on a white background.

Imported only to decode one.
"""

import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from inferd.client.media.errors import MediaError

MAX_PICTURE_PIXELS: Final = 2**25
"""Pixels of one image, 33 million: no model accepts a larger one, and images are not scaled
down silently. A small file may claim to hold more."""
STRIP_BYTES: Final = 1024 * 1024
"""Bytes of one block of rows."""

PICTURE_FORMATS: Final = (
    *("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG"),
    *("PPM", "QOI", "TIFF", "WEBP"),
)
"""Formats that are decoded: others are rare, and some would run other programs."""
_DEEP: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
"""16-bit grey modes, which Pillow would clip at white instead of scaling."""
_TO_OCTETS: Final = 255 / 65_535
_FAULTS: Final = (
    Image.DecompressionBombError,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
"""Exceptions of Pillow for broken files."""


class PictureError(MediaError):
    """A file cannot be decoded as an image."""


class Picture:
    """A decoded image.

    Args:
        image: of mode RGB.
    """

    def __init__(self, image: Image.Image) -> None:
        self._image = image
        self.width, self.height = image.size

    def strips(self) -> Iterator[bytes]:
        """Yield ``width * height * 3`` bytes, rows from the top, in blocks of rows."""
        n_rows = max(1, STRIP_BYTES // (3 * self.width))
        for top in range(0, self.height, n_rows):
            bottom = min(top + n_rows, self.height)
            yield self._image.crop((0, top, self.width, bottom)).tobytes()


def read_picture(path: Path) -> Picture:
    """Decode the first image of a file, as ``decode_picture`` does.

    Raises:
        PictureError: it cannot be read or decoded.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise PictureError(_message(error)) from error
    with file:
        return decode_picture(file, MAX_PICTURE_PIXELS)


def decode_picture(file: BinaryIO, max_pixels: int) -> Picture:
    """Decode the first image of an open file: rotated as EXIF says, on a white background.

    Args:
        file: to read from the beginning; can be searched.
        max_pixels: as its header has them; nothing larger is decoded.

    Raises:
        PictureError: it is not an image file, is broken, or has over ``max_pixels``.

    Bounds:
        Memory: 8 bytes per pixel while it is rotated, 13 if it is transparent.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that are odd but readable
            with Image.open(file, formats=PICTURE_FORMATS) as image:
                _refuse_large(image, max_pixels)
                ImageOps.exif_transpose(image, in_place=True)
                image.load()
                return Picture(_on_white(image))
    except UnidentifiedImageError as error:
        raise PictureError(
            f"not an image in one of {', '.join(PICTURE_FORMATS)}"
        ) from error
    except _FAULTS as error:
        raise PictureError(_message(error)) from error


def _refuse_large(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise PictureError(
            f"{width} x {height} pixels, at most {max_pixels} are allowed"
        )


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode in _DEEP:
        return image.convert("I").point(lambda grey: grey * _TO_OCTETS).convert("RGB")
    if image.mode == "F":
        raise PictureError("its pixels are floating-point numbers")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
