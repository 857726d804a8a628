"""What a file is, by its first bytes; pure.

A file is never what its name or its sender says: a browser is sent no type but these.
"""

from typing import Final, Literal

MediumKind = Literal["picture", "sound"]
_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "audio/webm"),
)
_RIFF: Final = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}
_MP3_SYNC: Final = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")
"""How a frame of MPEG layer 3 begins that has no tag before it."""
_MP4: Final = b"ftyp"
_AVIF: Final = (b"avif", b"avis")


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a picture or a recording; ``None`` for anything else."""
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12])
    if data[4:8] == _MP4:
        return "image/avif" if data[8:12] in _AVIF else "audio/mp4"
    return "audio/mpeg" if data.startswith(_MP3_SYNC) else None


def kind_of_medium(media_type: str) -> MediumKind:
    """Tell what a file of such a type is."""
    return "picture" if media_type.startswith("image/") else "sound"
