"""Kind ``whisper-server``: what whisper.cpp's server (of pywhispercpp 1.5.1) was asked and said."""

from email import message_from_bytes
from pathlib import Path

import pytest

from inferd.backend.job import Media, TranscribeJob
from inferd.config.kinds.whisper_server import WhisperServerSettings
from inferd.ipc.worker import Transcribed
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.whisper_server.api import (
    error_of_status,
    read_transcribe,
    write_transcribe,
)

EXCHANGES = Path(__file__).parent / "exchanges"
SETTINGS = WhisperServerSettings(name="w", base_url="http://127.0.0.1:8080")
SOUND = Media(kind="audio", id="1", n_bytes=11 * 16_000 * 4, sample_rate=16_000)


def recorded(name: str) -> tuple[int, bytes]:
    head, _, body = (EXCHANGES / f"{name}.answer").read_bytes().partition(b"\n\n")
    return int(head.split()[0]), body


def fields_of(job: TranscribeJob) -> dict[str, object]:
    request = write_transcribe(SETTINGS, job, b"RIFF")
    assert request.path == "/inference"
    head = f"Content-Type: {request.content_type}\r\n\r\n".encode()
    _, *parts = message_from_bytes(head + request.body).walk()
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(
            decode=True
        )
        for part in parts
    }


def test_the_language_is_detected_unless_it_is_given():
    plain = TranscribeJob(audio=SOUND)
    assert fields_of(plain) == {
        "response_format": b"verbose_json",
        "language": b"auto",  # the server's default is English
        "translate": b"false",
        "file": b"RIFF",
    }
    asked = TranscribeJob(
        audio=SOUND, language="de", translates=True, prompt="Ada", temperature=0.0
    )
    found = fields_of(asked)
    assert (found["language"], found["translate"]) == (b"de", b"true")
    assert (found["prompt"], found["temperature"]) == (b"Ada", b"0")


def test_what_it_said_is_a_transcript_or_an_error():
    job = TranscribeJob(audio=SOUND)
    _, heard = recorded("transcription")
    first, *_ = read_transcribe(SETTINGS, 7, job, heard)
    assert isinstance(first, Transcribed)
    assert len(first.segments) == 3
    status, refused = recorded("nothing")
    error = error_of_status(status, {}, refused, 0.0)
    assert "Invalid request" in str(error)
    with pytest.raises(RemoteError, match="failed to read audio data"):
        read_transcribe(SETTINGS, 7, job, b'{"error":"failed to read audio data"}')
