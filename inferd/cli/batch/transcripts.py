"""The transcript of the recording that a JSON line names."""

from pathlib import Path
from typing import Final

import msgspec

from inferd.cli.batch.clients import JobClients
from inferd.cli.batch.lines import LineResult
from inferd.cli.console import CommandError
from inferd.cli.json_lines import JsonLine
from inferd.cli.transcription.recording import Recording
from inferd.cli.transcription.transcriber import MakeRequest, frames_of
from inferd.client.frames import BlocksAnswer, ClientBlocksDone
from inferd.client.media.errors import MissingExtraError
from inferd.client.media.sound import SoundError, decode
from inferd.client.sync import FrameClient
from inferd.client.transcripts import (
    Transcript,
    TranscriptSegment,
    segment_of,
    transcript_fields,
)

SOUND_ERROR: Final = "sound_error"
"""Code of a recording that cannot be decoded, or not to its end."""
_TEXT: Final = msgspec.json.Decoder(str)


def transcribe_line(
    make_request: MakeRequest, clients: JobClients, line: JsonLine
) -> LineResult:
    """Transcribe the recording of a line; one that is cut short has its ``error``, too.

    Raises:
        CommandError: the line names none, or PyAV is not installed.
        ClientError: the daemon refused it, or its answer failed.
    """
    path = _path_of(line)

    def ask(client: FrameClient) -> LineResult:
        recording = Recording(path, decode(Path(path)))
        return _result(recording, [*frames_of(client, make_request, recording)])

    try:
        return clients.ask(ask)
    except SoundError as error:
        return _failed(error)
    except MissingExtraError as error:
        raise CommandError(str(error)) from error


def _result(recording: Recording, frames: list[BlocksAnswer]) -> LineResult:
    found = map(segment_of, frames)
    segments: list[TranscriptSegment] = [each for each in found if each is not None]
    done = frames[-1]
    assert isinstance(done, ClientBlocksDone)  # noqa: S101  # answers end with it
    transcript = Transcript(segments=segments, facts=done.transcription or None)
    failed = _failed(recording.error) if recording.error else LineResult({})
    is_cut = done.stop_reason in ("cancelled", "error")
    fields = {**transcript_fields(transcript), "stop_reason": done.stop_reason}
    return LineResult({**fields, **failed.fields}, failed.is_failure or is_cut)


def _failed(error: SoundError) -> LineResult:
    fault = {"code": SOUND_ERROR, "message": str(error)}
    return LineResult({"error": fault}, is_failure=True)


def _path_of(line: JsonLine) -> str:
    fields = line.fields
    try:
        return _TEXT.decode(fields["file"] if "file" in fields else fields["text"])
    except (KeyError, msgspec.DecodeError) as error:
        raise CommandError(
            f'{line.origin}: neither a path nor an object with "file"'
        ) from error
