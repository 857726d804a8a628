"""Recordings as WAV files in forms, and what servers answer to them."""

import io
import math
import wave
from array import array
from email import message_from_bytes
from pathlib import Path

import msgspec
import pytest

from inferd.backend.job import Media, TranscribeJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.ipc.worker import Transcribed, TranscriptEnded
from inferd.worker.backend import RefusedError
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.speech.form import refuse_speech_options, write_form
from inferd.worker.remote.speech.transcript import read_transcript
from inferd.worker.remote.speech.wav import write_wav

EXCHANGES = Path(__file__).parents[1] / "whisper_server" / "exchanges"
SOUND = Media(kind="audio", id="1", n_bytes=11 * 16_000 * 4, sample_rate=16_000)
JOB = TranscribeJob(audio=SOUND)
SETTINGS = OpenAiSettings(name="far", base_url="http://[::1]:1/v1", model="whisper")


def recorded(name: str) -> bytes:
    head, _, body = (EXCHANGES / name).read_bytes().partition(b"\n\n")
    assert head
    return body


def read(**fields: object) -> list[Transcribed | TranscriptEnded]:
    return [*read_transcript(7, JOB, msgspec.json.encode(fields))]


def test_what_whisper_s_server_answered_is_its_segments_with_their_times():
    heard, ended = read_transcript(7, JOB, recorded("transcription.answer"))
    assert isinstance(heard, Transcribed)
    assert isinstance(ended, TranscriptEnded)
    assert [(each.start_ms, each.end_ms) for each in heard.segments] == [
        (0, 6880),
        (6880, 8000),
        (8000, 11_000),
    ]
    assert heard.segments[1].text == b" for you"
    assert (ended.language, ended.audio_ms, heard.n_tokens) == ("en", 11_000, 23)


def test_a_text_without_segments_is_one_of_the_whole_recording():
    heard, ended = read(text="hi", language="klingon")
    assert isinstance(heard, Transcribed)
    [only] = heard.segments
    assert (only.text, only.start_ms, only.end_ms) == (b"hi", 0, 11_000)
    assert isinstance(ended, TranscriptEnded)
    assert not ended.language


def test_times_that_cannot_be_are_brought_into_the_recording():
    odd = [{"start": -1e300, "end": 1e300}, {"start": 5, "end": 2}, {"start": 99}]
    heard, _ = read(text="", segments=odd)
    assert isinstance(heard, Transcribed)
    times = [(each.start_ms, each.end_ms) for each in heard.segments]
    assert times == [(0, 11_000), (5000, 5000), (11_000, 11_000)]


def test_what_is_no_transcript_is_an_error():
    for body in (b"", b"[]", b'{"text":1}', b'{"segments":[]}', b"\xff", b"[" * 10_000):
        with pytest.raises(RemoteError, match="no transcript"):
            read_transcript(7, JOB, body)


def test_a_form_is_read_by_another_reader_whatever_its_texts_hold():
    fields = {"prompt": 'a "b"\r\n--x\r\n', "language": "de", "odd": "\ud800"}
    form = write_form(fields, b"RIFF\r\n--")
    head = f"Content-Type: {form.content_type}\r\n\r\n".encode()
    message = message_from_bytes(head + form.body)
    read_back = [part.get_payload(decode=True) for part in message.walk()][1:]
    assert read_back == [b'a "b"\r\n--x\r\n', b"de", b"?", b"RIFF\r\n--"]


def test_samples_are_a_wav_file_whatever_they_are():
    samples = array("f", [0.0, 1.0, -1.0, 7.0, -math.inf, math.nan])
    with wave.open(io.BytesIO(write_wav(samples.tobytes(), 16_000))) as file:
        assert file.getparams()[:4] == (1, 2, 16_000, len(samples))
        read_back = array("h", file.readframes(len(samples)))
    loud = 2**15 - 1
    assert [*read_back] == [0, loud, -loud, loud, -loud, loud]


def test_what_no_remote_has_is_refused_by_name():
    for fields, named in (
        ({"max_tokens": 5}, "max_tokens"),
        ({"timestamps": "word"}, "timestamps word"),
        ({"wants_logprobs": True}, "speech_logprobs"),
    ):
        with pytest.raises(RefusedError, match=named):
            refuse_speech_options(SETTINGS, msgspec.structs.replace(JOB, **fields))
    refuse_speech_options(SETTINGS, JOB)
