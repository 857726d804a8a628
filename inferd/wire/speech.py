"""What speech adds to v2: sound that is sent bit by bit, and what became of it."""

from msgspec import UNSET, Struct, UnsetType

from inferd.errors import InvalidFrameError
from inferd.wire.requests import U32


class AppendLine(Struct, frozen=True, kw_only=True, tag="append", tag_field="type"):
    """More of the sound of a request, while that is waiting or running."""

    id: str
    """The request's."""
    attachment_id: str
    """The attachment's, which was ``open``."""
    bytes: str | None = None
    """Base64 of little-endian 32-bit floats, one channel."""
    fd: U32 | None = None
    """In place of ``bytes``: as in an attachment."""
    end: bool = False
    """True: nothing more will come."""


def refuse_unclear(line: AppendLine) -> None:
    """Refuse a line that brings nothing and ends nothing, or brings two things.

    Raises:
        InvalidFrameError: it does.
    """
    match line:
        case AppendLine(bytes=None, fd=None, end=False):
            raise InvalidFrameError("Object missing required field `bytes`")
        case AppendLine(bytes=str(), fd=int()):
            raise InvalidFrameError("`bytes` and `fd` exclude each other")
        case _:
            pass


class TranscriptionFacts(Struct, frozen=True, kw_only=True):
    """What a transcription was made of, and how long it took."""

    language: str
    """Its code."""
    language_probability: float | UnsetType = UNSET
    """With ``auto``: 0 to 1."""
    audio_ms: int
    """Of sound that was heard."""
    real_time_factor: float
    """Time of computing over that of the sound."""
    latency_ms: float | UnsetType = UNSET
    """Of an open attachment: from its end, as it was read, to the end of the answer."""
