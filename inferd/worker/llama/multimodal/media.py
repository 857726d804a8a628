"""Read and check images and audio from clients, and identify them by digest."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from inferd.backend.job import PIXEL_BYTES, SAMPLE_BYTES, Media
from inferd.limits.worker import (
    MEDIA_AUDIO_MIN_S,
    MEDIA_AUDIO_S,
    MEDIA_PIXELS,
    MEDIA_SIDE_PIXELS,
    MEDIA_SIDE_RATIO,
    SAMPLE_MAX,
)
from inferd.worker.backend import RefusedError

__all__ = ["MediaData", "Modalities", "placeholder_tokens", "read_medium"]

_TOKEN_BYTES: Final = 4
_NEGATIVE: Final = np.int32(-(2**31))

Bytes = npt.NDArray[np.uint8]


class Modalities(NamedTuple):
    """Kinds of media that a projector accepts."""

    vision: bool = False
    sample_rate: int = 0
    """Sample rate of audio in Hz; 0 if it accepts none."""


class MediaData(NamedTuple):
    """Raw data of an image or of audio."""

    media: Media
    """The client's description, which was checked."""
    data: Bytes
    """RGB bytes row by row, or bytes of 32-bit float samples."""
    digest: bytes
    """SHA-256 of kind, shape and data."""

    @property
    def name(self) -> str:
        """Name of the attachment, for messages to the client."""
        return _name(self.media)


def read_medium(media: Media, fd: int, modalities: Modalities) -> MediaData:
    """Read an attachment, and check that it is valid input for the library.

    Args:
        media: the client's description.
        fd: descriptor of a file that begins with the data.
        modalities: kinds of media that the model accepts.

    Raises:
        RefusedError: the data does not fit its description, or exceeds a limit; kind and
            size are checked before any data is read.
    """
    _refuse_kind(media, modalities)
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
    return MediaData(media, data, digest.digest())


def placeholder_tokens(digest: bytes, sizes: Iterable[int]) -> list[list[int]]:
    """Generate placeholder tokens for a medium in a prompt.

    They are negative, unlike real tokens, and depend on the digest, so that the common prefix
    of prompts with different images ends before the image.

    Args:
        digest: of the medium.
        sizes: tokens of each of its chunks.

    Returns:
        A list of placeholders for each chunk.
    """
    parts = list(sizes)
    stream = hashlib.shake_256(digest).digest(_TOKEN_BYTES * sum(parts))
    tokens = (np.frombuffer(stream, "<i4") | _NEGATIVE).tolist()
    ends = np.cumsum(parts).tolist()
    return [tokens[end - n : end] for n, end in zip(parts, ends, strict=True)]


def _name(media: Media) -> str:
    return f"attachment {json.dumps(media.id)}"


def _refuse_kind(media: Media, modalities: Modalities) -> None:
    if media.is_open:
        raise RefusedError(f"{_name(media)}: this model takes no open audio")
    if media.kind == "image" and not modalities.vision:
        raise RefusedError(f"{_name(media)}: this model takes no images")
    if media.kind == "audio" and not modalities.sample_rate:
        raise RefusedError(f"{_name(media)}: this model takes no audio")
    if media.kind == "audio" and media.sample_rate != modalities.sample_rate:
        raise RefusedError(
            f"{_name(media)}: a sample rate of {media.sample_rate} Hz, this model takes "
            f"{modalities.sample_rate} Hz"
        )


def _refuse_shape(media: Media) -> None:
    """Refuse an image that is too large or too narrow, or whose size is not as declared."""
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
    """Refuse audio that is too short or too long."""
    if media.n_bytes % SAMPLE_BYTES:
        raise RefusedError(
            f"{_name(media)}: {media.n_bytes} bytes are not a multiple of a sample's "
            f"{SAMPLE_BYTES} bytes"
        )
    seconds = media.n_bytes / SAMPLE_BYTES / media.sample_rate
    if not MEDIA_AUDIO_MIN_S <= seconds <= MEDIA_AUDIO_S:
        raise RefusedError(
            f"{_name(media)}: {seconds:g} s of audio, {MEDIA_AUDIO_MIN_S:g} to "
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
    """Refuse samples that are NaN, or so large that sums overflow."""
    is_valid = np.abs(samples) <= SAMPLE_MAX  # false for NaN
    if is_valid.all():
        return
    first = int(np.argmin(is_valid))
    fault = "too large" if np.isfinite(samples[first]) else "not finite"
    raise RefusedError(f"{_name(media)}: sample {first} is {fault}")
