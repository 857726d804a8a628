"""Pictures as models see them: rows of RGB octets, upright, on white.

Files are decoded by Pillow: this is imported by who decodes, and by nobody else.
"""

import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

from inferd.client.media import MediaError

MAX_PICTURE_PIXELS: Final = 2**25
"""Pixels of one picture, 33 million: a daemon's model looks at no larger one, and none is
made smaller unasked. A small file may claim to hold more."""
STRIP_BYTES: Final = 1024 * 1024
"""Bytes of rows that are copied at once."""

_FORMATS: Final = (
    *("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG"),
    *("PPM", "QOI", "TIFF", "WEBP"),
)
"""What is read: others are rare, and some would have other programs run."""
_DEEP: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
"""Modes of grey with 16 bits, which would be cut off at white instead of scaled."""
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
"""What Pillow raises on files that are broken."""


class PictureError(MediaError):
    """This is no picture that can be used."""


class Picture:
    """A picture that is decoded."""

    def __init__(self, image: Image.Image) -> None:
        """Take in an image of mode RGB."""
        self._image = image
        self.width, self.height = image.size

    def strips(self) -> Iterator[bytes]:
        """Give ``width * height * 3`` octets, row after row from the top, some at once."""
        n_rows = max(1, STRIP_BYTES // (3 * self.width))
        for top in range(0, self.height, n_rows):
            bottom = min(top + n_rows, self.height)
            yield self._image.crop((0, top, self.width, bottom)).tobytes()


def read_picture(path: Path) -> Picture:
    """Decode a file: the first picture in it, turned upright, on white.

    Raises:
        PictureError: it is no file of a picture, it is broken, or it has more than
            ``MAX_PICTURE_PIXELS``.

    Bounds:
        Memory: eight bytes a pixel while it is turned, thirteen if it is transparent.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is odd and can be read
            with Image.open(file, formats=_FORMATS) as image:
                _refuse_large(image)
                ImageOps.exif_transpose(image, in_place=True)
                image.load()
                return Picture(_on_white(image))
    except UnidentifiedImageError as error:
        raise PictureError("no picture that is known here") from error
    except _FAULTS as error:
        raise PictureError(_words(error)) from error


def _refuse_large(image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PICTURE_PIXELS:
        raise PictureError(
            f"{width} x {height} pixels, at most {MAX_PICTURE_PIXELS} are read"
        )


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode in _DEEP:
        return image.convert("I").point(lambda grey: grey * _TO_OCTETS).convert("RGB")
    if image.mode == "F":
        raise PictureError("its pixels are fractions")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
