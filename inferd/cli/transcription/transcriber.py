"""Send recordings to the daemon, and its answers to their destination."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from inferd.cli.console import ProgressLine
from inferd.cli.transcription.output import Destination, SegmentPrinter
from inferd.cli.transcription.recording import Recording
from inferd.client.exchange import ClientError
from inferd.client.frames import BlocksAnswer, ClientBlocksDone
from inferd.client.media.sound import BYTES_PER_S, SAMPLE_RATE_HZ
from inferd.client.memfd import Memfd
from inferd.client.sync import FrameClient
from inferd.client.transcripts import (
    Transcript,
    TranscriptSegment,
    format_time,
    segment_of,
)
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.responses import ProgressFrame

MEMFD_MAX_S: Final = 600
"""Seconds of audio that are passed in one memfd, 38 MB. Longer recordings are appended
while they are decoded, a second at a time."""


MakeRequest = Callable[[AudioAttachment], BlocksRequest]
"""Makes the request for a recording."""


class IncompleteError(Exception):
    """An answer was cut short."""


class Transcriber:
    """Transcribes one recording after another.

    Args:
        client: connected to the daemon.
        make_request: builds the request for an audio attachment.
        destination: of the transcripts.
    """

    def __init__(
        self,
        client: FrameClient,
        make_request: MakeRequest,
        destination: Destination,
    ) -> None:
        self._client = client
        self._make_request = make_request
        self._destination = destination

    def transcribe(self, recording: Recording, *, is_live: bool) -> None:
        """Transcribe a recording, and print or write its segments.

        Raises:
            SoundError: the file cannot be decoded, or not to its end; in that case the
                transcript so far is written.
            ClientError: the daemon refused it, failed or disconnected; the transcript so
                far is written.
            IncompleteError: the answer was cut short; the transcript so far is written.
            CommandError: the transcript cannot be written.
            KeyboardInterrupt: the user ended it; the transcript so far is written.
        """
        printer = SegmentPrinter(recording.name, self._destination)
        progress = ProgressLine(is_wanted=printer.ends_lines)
        segments: list[TranscriptSegment] = []
        try:
            send = appended if is_live else frames_of
            for frame in send(self._client, self._make_request, recording):
                if (segment := segment_of(frame)) is not None:
                    progress.clear()
                    printer.print_segment(segment)
                    segments.append(segment)
                if isinstance(frame, ClientBlocksDone):
                    progress.clear()
                    self._finish(printer, recording, segments, frame)
                elif is_live:
                    progress.show(_partial(frame))
                else:
                    progress.show(_progress(recording, segments))
        except (ClientError, KeyboardInterrupt):
            progress.clear()
            if segments:
                self._write(printer, recording, Transcript(segments=segments))
            raise
        finally:
            progress.clear()

    def _finish(
        self,
        printer: SegmentPrinter,
        recording: Recording,
        segments: list[TranscriptSegment],
        done: ClientBlocksDone,
    ) -> None:
        facts = done.transcription or None
        self._write(printer, recording, Transcript(segments=segments, facts=facts))
        if done.stop_reason in ("cancelled", "error"):
            raise IncompleteError(f"the answer is not complete: {done.stop_reason}")
        if recording.error is not None:
            raise recording.error

    def _write(
        self, printer: SegmentPrinter, recording: Recording, transcript: Transcript
    ) -> None:
        printer.finish(transcript)
        self._destination.write_files(recording.name, transcript)


def frames_of(
    client: FrameClient, make_request: MakeRequest, recording: Iterable[bytes]
) -> Iterator[BlocksAnswer]:
    """Pass a recording in one memfd, or append it if it is long; yield the answer's frames.

    Raises:
        SoundError: it cannot be decoded.
        ClientError: the daemon refused it, failed or disconnected.
    """
    blocks = iter(recording)
    with Memfd() as memory:
        for block in blocks:
            memory.write(block)
            if memory.n_bytes > MEMFD_MAX_S * BYTES_PER_S:
                yield from appended(
                    client, make_request, chain(memory.blocks(), blocks)
                )
                return
        memory.seal()
        request = make_request(_attachment(fd=0))
        yield from client.converse(request, descriptors=[memory.fd])


def appended(
    client: FrameClient, make_request: MakeRequest, samples: Iterable[bytes]
) -> Iterator[BlocksAnswer]:
    """Append samples while they are decoded or recorded; yield the answer's frames."""
    return client.converse(make_request(_attachment(is_open=True)), sound=samples)


def _attachment(*, fd: int | None = None, is_open: bool = False) -> AudioAttachment:
    return AudioAttachment(id="sound", sample_rate=SAMPLE_RATE_HZ, fd=fd, open=is_open)


def _partial(frame: BlocksAnswer) -> str:
    match frame:
        case ProgressFrame(status="partial", text=str(text)):
            return text
        case _:
            return ""


def _progress(recording: Recording, segments: list[TranscriptSegment]) -> str:
    done_ms = segments[-1].end_ms if segments else 0
    done, decoded = (
        format_time(ms).partition(".")[0] for ms in (done_ms, recording.decoded_ms)
    )
    return f"{recording.name}: {done} transcribed, {decoded} decoded"
