"""Have recordings written down: sent to the daemon, and its answers to where they go."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from inferd.cli.outlets import Destination, Printer
from inferd.cli.recordings import Recording
from inferd.cli.ticker import Ticker
from inferd.client.exchange import ClientError
from inferd.client.frames import BlocksAnswer, DoneBlocks
from inferd.client.memory import Memory
from inferd.client.sound import BYTES_PER_S, SAMPLE_RATE_HZ
from inferd.client.sync import Client
from inferd.client.transcripts import Segment, Transcript, clock, segment_of
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.responses import ProgressFrame

HELD_S: Final = 600
"""Seconds of sound that are handed over in one piece of memory, 38 MB. Longer recordings
are sent while they are decoded, a second at a time."""


class IncompleteError(Exception):
    """An answer was cut short."""


class Scribe:
    """Writes down one recording after another.

    Args:
        client: of the daemon that listens.
        make_request: from the attachment that the sound is.
        destination: where transcripts go.
    """

    def __init__(
        self,
        client: Client,
        make_request: Callable[[AudioAttachment], BlocksRequest],
        destination: Destination,
    ) -> None:
        self._client = client
        self._make_request = make_request
        self._destination = destination

    def write_down(self, recording: Recording, *, is_live: bool) -> None:
        """Write down a recording, segment by segment.

        Raises:
            SoundError: it cannot be used, or breaks off; it is written as far as it goes.
            ClientError: the daemon refused it, failed or went away, perhaps in the midst of
                the answer; it is written as far as it goes.
            IncompleteError: the answer was cut short; so is it then.
            CommandError: it cannot be written.
        """
        printer = Printer(recording.name, self._destination)
        ticker = Ticker(is_wanted=printer.ends_lines)
        segments: list[Segment] = []
        try:
            for frame in self._sent(recording) if is_live else self._held(recording):
                if (segment := segment_of(frame)) is not None:
                    ticker.clear()
                    printer.take(segment)
                    segments.append(segment)
                if isinstance(frame, DoneBlocks):
                    ticker.clear()
                    self._finish(printer, recording, segments, frame)
                elif is_live:
                    ticker.show(_partial(frame))
                else:
                    ticker.show(_progress(recording, segments))
        except ClientError:
            ticker.clear()
            if segments:
                self._keep(printer, recording, Transcript(segments=segments))
            raise
        finally:
            ticker.clear()

    def _finish(
        self,
        printer: Printer,
        recording: Recording,
        segments: list[Segment],
        done: DoneBlocks,
    ) -> None:
        facts = done.transcription or None
        self._keep(printer, recording, Transcript(segments=segments, facts=facts))
        if done.stop_reason in ("cancelled", "error"):
            raise IncompleteError(f"the answer is not complete: {done.stop_reason}")
        if recording.broken is not None:
            raise recording.broken

    def _keep(
        self, printer: Printer, recording: Recording, transcript: Transcript
    ) -> None:
        printer.finish(transcript)
        self._destination.keep(recording.name, transcript)

    def _held(self, recording: Recording) -> Iterator[BlocksAnswer]:
        """Hand over a recording in one piece of memory, unless it is long."""
        blocks = iter(recording)
        with Memory() as memory:
            for block in blocks:
                memory.write(block)
                if memory.n_bytes > HELD_S * BYTES_PER_S:
                    yield from self._sent(chain(memory.blocks(), blocks))
                    return
            memory.seal()
            request = self._make_request(_attachment(fd=0))
            yield from self._client.converse(request, descriptors=[memory.fd])

    def _sent(self, sound: Iterable[bytes]) -> Iterator[BlocksAnswer]:
        """Send sound as it comes."""
        request = self._make_request(_attachment(is_open=True))
        return self._client.converse(request, sound=sound)


def _attachment(*, fd: int | None = None, is_open: bool = False) -> AudioAttachment:
    return AudioAttachment(id="sound", sample_rate=SAMPLE_RATE_HZ, fd=fd, open=is_open)


def _partial(frame: BlocksAnswer) -> str:
    match frame:
        case ProgressFrame(status="partial", text=str(text)):
            return text
        case _:
            return ""


def _progress(recording: Recording, segments: list[Segment]) -> str:
    heard_ms = segments[-1].end_ms if segments else 0
    heard, decoded = (
        clock(ms).partition(".")[0] for ms in (heard_ms, recording.decoded_ms)
    )
    return f"{recording.name}: {heard} written down, {decoded} decoded"
