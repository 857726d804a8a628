"""Small files of pictures and sound."""

import wave
from io import BytesIO

from PIL import Image


def png_file(width: int = 8, height: int = 8) -> bytes:
    """Return a picture of one colour."""
    file = BytesIO()
    Image.new("RGB", (width, height), (200, 90, 20)).save(file, "PNG")
    return file.getvalue()


def wav_file(n_samples: int = 1600) -> bytes:
    """Return a silence, of 16,000 samples a second."""
    file = BytesIO()
    with wave.open(file, "wb") as writing:
        writing.setparams((1, 2, 16_000, 0, "NONE", ""))
        writing.writeframes(bytes(2 * n_samples))
    return file.getvalue()
