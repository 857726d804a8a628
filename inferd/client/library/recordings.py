"""Recordings for ``transcribe``: files, their bytes, and live samples."""

from collections.abc import AsyncIterable, Callable, Iterable
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Final, TypedDict

from anyio import to_thread

from inferd.client.core.bridge_calls import wav_of
from inferd.client.core.failures import ClientError
from inferd.client.media.sound import SAMPLE_RATE_HZ, decode, decode_stream
from inferd.client.transcripts import Transcript, TranscriptSegment, segment_of
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)
from inferd.wire.responses import ProgressFrame, Response

Recording = str | PathLike[str] | bytes | Iterable[bytes]
"""The path of a file, the bytes of one, or samples while they are recorded: blocks of whole
samples, mono, little-endian 32-bit floats, 16,000 a second."""
LiveRecording = Recording | AsyncIterable[bytes]
"""As ``Recording``; samples may come asynchronously, too."""

_SOUND_ID: Final = "sound"
RECORDING_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of a recording that is sent to a bridge, which is held in memory: more than an
operator may allow with ``bridge.max_audio_bytes``, whose default is 64 MiB."""


class TranscribeOptions(TypedDict, total=False):
    """The options of ``transcribe``; all may be left out."""

    model: str
    """The name or an alias of the backend that must answer."""
    language: str
    """A code such as ``de``. Default: detected."""
    translate: bool
    """True: into English, whatever the language."""
    timestamps: str
    """Whether a segment of the transcript is a ``segment`` or a ``word``."""
    prompt: str
    """Names and words that may occur."""
    temperature: float
    """0 to 2."""
    deadline_ms: int
    """Milliseconds, at least 1, for waiting and running together."""
    priority: int
    """-10 to 10: orders this caller's own waiting requests, higher first."""
    principal: str
    """Who is asking, where this user is a gateway of the daemon."""


def ignore(_: object) -> None:
    """Take what nobody wants to know."""


def transcribe_request(request_id: str, options: TranscribeOptions) -> BlocksRequest:
    """Make the request of ``transcribe``, whose audio is appended."""
    prompt = options.get("prompt")
    texts = [TextBlock(prompt)] if prompt else []
    return BlocksRequest(
        id=request_id,
        messages=[Message("user", [*texts, AudioBlock(_SOUND_ID)])],
        attachments=[
            AudioAttachment(id=_SOUND_ID, sample_rate=SAMPLE_RATE_HZ, open=True)
        ],
        model=options.get("model"),
        language=options.get("language"),
        translate=options.get("translate"),
        timestamps=options.get("timestamps", "segment"),  # makes it a transcription
        temperature=options.get("temperature"),
        deadline_ms=options.get("deadline_ms"),
        priority=options.get("priority"),
        principal=options.get("principal"),
    )


def is_file(recording: LiveRecording) -> bool:
    """Tell whether a recording is a file or its bytes, which can be read again."""
    return isinstance(recording, str | bytes | bytearray | memoryview | PathLike)


def samples_of(recording: Recording) -> Iterable[bytes]:
    """Return the samples of a recording, in blocks.

    Raises:
        ClientError: it is no recording.
        SoundError: while they are read: a file cannot be decoded, or not to its end.
        MissingExtraError: PyAV is not installed, and it is a file.
    """
    match recording:
        case bytes() | bytearray() | memoryview():
            return decode_stream(BytesIO(bytes(recording)))
        case str() | PathLike():
            return decode(Path(recording))
        case Iterable():
            return recording
        case _:
            raise ClientError("a recording is a path, bytes, or blocks of samples")


def file_of(recording: Recording) -> bytes:
    """Return a recording as a file, for those who decode it themselves.

    Raises:
        ClientError: it is no recording, or a longer one than a bridge may take.
    """
    match recording:
        case bytes() | bytearray() | memoryview():
            content = bytes(recording)
        case str() | PathLike():
            with Path(recording).open("rb") as file:
                content = file.read(RECORDING_MAX_BYTES + 1)
        case Iterable():
            content = wav_of(_joined(recording))
        case _:
            raise ClientError("a recording is a path, bytes, or blocks of samples")
    if len(content) > RECORDING_MAX_BYTES:
        raise ClientError(f"a recording has at most {RECORDING_MAX_BYTES} bytes")
    return content


def _joined(blocks: Iterable[bytes]) -> bytes:
    """Return all samples of a recording, which is bounded as files are."""
    samples = bytearray()
    for block in blocks:
        samples += block
        if len(samples) > RECORDING_MAX_BYTES:
            break
    return bytes(samples)


async def file_of_live(recording: LiveRecording) -> bytes:
    """Return a recording as a file, as ``file_of`` does, once all of it is there."""
    if not isinstance(recording, AsyncIterable):
        return await to_thread.run_sync(file_of, recording, abandon_on_cancel=True)
    samples = bytearray()
    async for block in recording:
        samples += block
        if len(samples) > RECORDING_MAX_BYTES:
            break
    return file_of([bytes(samples)])


class TranscriptCollector:
    """Collects the segments of a transcription.

    Args:
        on_segment: called with each segment.
        on_partial: called with text that may still change.
    """

    def __init__(
        self,
        on_segment: Callable[[TranscriptSegment], None],
        on_partial: Callable[[str], None],
    ) -> None:
        self._on_segment = on_segment
        self._on_partial = on_partial
        self._segments: list[TranscriptSegment] = []
        self.last: Response | None = None
        """The last frame so far."""

    def read(self, frame: Response) -> None:
        """Add a frame."""
        self.last = frame
        if (segment := segment_of(frame)) is not None:
            self._segments.append(segment)
            self._on_segment(segment)
            return
        match frame:
            case ProgressFrame(status="partial", text=str(text)):
                self._on_partial(text)
            case _:
                pass

    def transcript(self) -> Transcript:
        """Return the whole transcript, when the terminal frame was read."""
        facts = getattr(self.last, "transcription", None) or None
        return Transcript(segments=tuple(self._segments), facts=facts)
