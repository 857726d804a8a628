"""Messages of v2 for speech: appended audio, and facts about a transcription."""

from msgspec import UNSET, Struct, UnsetType

from inferd.errors import InvalidFrameError
from inferd.wire.requests import U32


class AppendLine(Struct, frozen=True, kw_only=True, tag="append", tag_field="type"):
    """More audio for a request that waits or runs."""

    id: str
    """The request's id."""
    principal: str | UnsetType | None = UNSET
    """The request's, if it has one."""
    attachment_id: str
    """Id of an attachment that is ``open``."""
    bytes: str | None = None
    """Base64 of little-endian 32-bit floats, one channel."""
    fd: U32 | None = None
    """Instead of ``bytes``: as in an attachment."""
    end: bool = False
    """True: no more audio follows."""


def refuse_ambiguous(line: AppendLine) -> None:
    """Reject a line with both ``bytes`` and ``fd``, or with neither of them nor ``end``.

    Raises:
        InvalidFrameError: it is such a line.
    """
    match line:
        case AppendLine(bytes=None, fd=None, end=False):
            raise InvalidFrameError("Object missing required field `bytes`")
        case AppendLine(bytes=str(), fd=int()):
            raise InvalidFrameError("`bytes` and `fd` exclude each other")
        case _:
            pass


class TranscriptionFacts(Struct, frozen=True, kw_only=True):
    """Facts about a transcription: its language, length and speed."""

    language: str
    """Code of the language."""
    language_probability: float | UnsetType = UNSET
    """With ``auto``: probability of the detected language, 0 to 1."""
    audio_ms: int
    """Milliseconds of audio transcribed."""
    real_time_factor: float
    """Computing time divided by the length of the audio."""
    latency_ms: float | UnsetType = UNSET
    """With an open attachment: milliseconds from receiving its end to the end of the
    answer."""
