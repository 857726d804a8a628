"""Pictures and sound as clients send them: read, checked, and told apart by their bytes."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from inferd.job import PIXEL_BYTES, SAMPLE_BYTES, Media
from inferd.worker.backend import RefusedError
from inferd.worker.limits import (
    MEDIA_AUDIO_MIN_S,
    MEDIA_AUDIO_S,
    MEDIA_PIXELS,
    MEDIA_SIDE_PIXELS,
    MEDIA_SIDE_RATIO,
    SOUND_MAX,
)

__all__ = ["Medium", "Senses", "pseudo_tokens", "read_medium"]

_TOKEN_BYTES: Final = 4
_NEGATIVE: Final = np.int32(-(2**31))

Bytes = npt.NDArray[np.uint8]


class Senses(NamedTuple):
    """What a projector takes."""

    vision: bool = False
    sample_rate: int = 0
    """Of sound, samples a second; 0 where it takes none."""


class Medium(NamedTuple):
    """A picture or a sound."""

    media: Media
    """What the client says of it, which is true."""
    data: Bytes
    """RGB octets, row by row; or the octets of samples."""
    digest: bytes
    """SHA-256 of all that tells it apart from others: kind, shape and data."""

    @property
    def name(self) -> str:
        """Say which one it is, to the client."""
        return _name(self.media)


def read_medium(media: Media, fd: int, senses: Senses) -> Medium:
    """Read what a client has sent, and see that a library can be given it.

    Args:
        media: what it is to be.
        fd: of the file that begins with its bytes.
        senses: what the model takes.

    Raises:
        RefusedError: it is something else, or out of bounds; nothing is read then.
    """
    _refuse_kind(media, senses)
    if media.kind == "image":
        _refuse_shape(media)
    else:
        _refuse_length(media)
    data = _read(media, fd)
    if media.kind == "audio":
        _refuse_samples(media, data.view("<f4"))
    shape = (media.kind, media.width, media.height, media.sample_rate)
    digest = hashlib.sha256(repr(shape).encode())
    digest.update(data.data)
    return Medium(media, data, digest.digest())


def pseudo_tokens(digest: bytes, sizes: Iterable[int]) -> list[list[int]]:
    """Make up tokens for the places that a medium takes in a prompt.

    They are negative, as no token is, and tell media apart: a prompt with another picture
    begins like this one up to the picture and no further.

    Args:
        digest: of the medium.
        sizes: places of its parts.

    Returns:
        For each part as many as it has places.
    """
    parts = list(sizes)
    stream = hashlib.shake_256(digest).digest(_TOKEN_BYTES * sum(parts))
    tokens = (np.frombuffer(stream, "<i4") | _NEGATIVE).tolist()
    ends = np.cumsum(parts).tolist()
    return [tokens[end - n : end] for n, end in zip(parts, ends, strict=True)]


def _name(media: Media) -> str:
    return f"attachment {json.dumps(media.id)}"


def _refuse_kind(media: Media, senses: Senses) -> None:
    if media.is_open:
        raise RefusedError(f"{_name(media)}: this model takes no open audio")
    if media.kind == "image" and not senses.vision:
        raise RefusedError(f"{_name(media)}: this model takes no images")
    if media.kind == "audio" and not senses.sample_rate:
        raise RefusedError(f"{_name(media)}: this model takes no audio")
    if media.kind == "audio" and media.sample_rate != senses.sample_rate:
        raise RefusedError(
            f"{_name(media)}: a sample rate of {media.sample_rate} Hz, this model takes "
            f"{senses.sample_rate} Hz"
        )


def _refuse_shape(media: Media) -> None:
    """Refuse a picture that is too large, too narrow, or not as large as it says."""
    sides = sorted((media.width, media.height))
    size = f"{media.width} x {media.height} pixels"
    if sides[0] < 1:
        raise RefusedError(f"{_name(media)}: {size}")
    if sides[0] * sides[1] > MEDIA_PIXELS or sides[1] > MEDIA_SIDE_PIXELS:
        raise RefusedError(
            f"{_name(media)}: {size}; at most {MEDIA_PIXELS} pixels, and "
            f"{MEDIA_SIDE_PIXELS} to a side, are taken"
        )
    if sides[1] > MEDIA_SIDE_RATIO * sides[0]:
        raise RefusedError(
            f"{_name(media)}: {size}; one side may be {MEDIA_SIDE_RATIO} times the other"
        )
    expected = media.width * media.height * PIXEL_BYTES
    if media.n_bytes != expected:
        raise RefusedError(
            f"{_name(media)}: {media.n_bytes} bytes, {size} have {expected}"
        )


def _refuse_length(media: Media) -> None:
    """Refuse sound that is too short or too long to be looked at."""
    if media.n_bytes % SAMPLE_BYTES:
        raise RefusedError(
            f"{_name(media)}: {media.n_bytes} bytes are no whole samples of "
            f"{SAMPLE_BYTES} bytes"
        )
    seconds = media.n_bytes / SAMPLE_BYTES / media.sample_rate
    if not MEDIA_AUDIO_MIN_S <= seconds <= MEDIA_AUDIO_S:
        raise RefusedError(
            f"{_name(media)}: {seconds:g} s of sound, {MEDIA_AUDIO_MIN_S:g} to "
            f"{MEDIA_AUDIO_S:g} s are taken"
        )


def _read(media: Media, fd: int) -> Bytes:
    data = np.empty(media.n_bytes, np.uint8)
    n_read = 0
    while n_read < media.n_bytes:
        n = os.preadv(fd, [data[n_read:].data], n_read)
        if not n:
            raise RefusedError(
                f"{_name(media)}: its file ends after {n_read} of {media.n_bytes} bytes"
            )
        n_read += n
    return data


def _refuse_samples(media: Media, samples: npt.NDArray[np.float32]) -> None:
    """Refuse what is no number, or one that no sum survives."""
    is_sound = np.abs(samples) <= SOUND_MAX  # nor is what is no number
    if is_sound.all():
        return
    first = int(np.argmin(is_sound))
    fault = "too large" if np.isfinite(samples[first]) else "not finite"
    raise RefusedError(f"{_name(media)}: sample {first} is {fault}")
