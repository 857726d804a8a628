import io
import os
import signal
from dataclasses import dataclass
from typing import BinaryIO

import pytest

from inferd.cli.console import CommandError
from inferd.cli.transcription.recording import (
    Recording,
    is_media_file,
    open_live,
    open_recording,
    read_available,
)
from inferd.client.media.sound import SoundError
from tests.cases import each_case
from tests.fakes.recordings import tone, wav, write_sound

SECOND = bytes(64_000)


@dataclass
class Stdin:
    """A pipe as stdin, which is not closed with it."""

    buffer: BinaryIO

    def isatty(self) -> bool:
        return False


def breaking(*blocks):
    yield from blocks
    raise SoundError("breaks off")


@pytest.fixture
def piped(monkeypatch):
    """Put bytes on stdin."""

    def put(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


@pytest.fixture
def pipe():
    """Two ends of a pipe, as files."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", 0) as sink:
        yield source, sink


# --- recordings -------------------------------------------------------------------------


def test_a_recording_counts_the_yielded_milliseconds():
    recording = Recording("a", [SECOND, SECOND])
    assert recording.decoded_ms == 0
    assert list(recording) == [SECOND, SECOND]
    assert recording.decoded_ms == 2000


def test_the_error_of_a_truncated_recording_is_raised_at_the_end():
    recording = Recording("a", breaking(SECOND))
    assert list(recording) == [SECOND]
    assert str(recording.error) == "breaks off"


def test_a_recording_without_audio_is_refused():
    with pytest.raises(SoundError):
        list(Recording("a", breaking()))


def test_samples_are_read_from_stdin(piped):
    piped(SECOND * 2 + b"\0" * 8)
    recording = open_recording("-", "f32le", 16_000)
    assert b"".join(recording) == SECOND * 2 + b"\0" * 8
    assert (recording.name, recording.error) == ("-", None)


def test_a_file_is_read_by_its_name(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(tone(0, 16_000, 16_000)))
    recording = open_recording(str(path), "s16le", 8000)
    assert len(b"".join(recording)) == len(SECOND)
    assert (recording.name, recording.error) == (str(path), None)


def test_samples_of_stdin_may_have_another_form(piped):
    piped(bytes(2 * 8000))
    assert len(b"".join(open_recording("-", "s16le", 8000))) == len(SECOND)


@pytest.mark.parametrize("data", [b"", b"\0\0"])
def test_empty_stdin_is_refused(piped, data):
    piped(data)
    with pytest.raises(SoundError, match=r"no audio in it|ends within a sample"):
        list(open_recording("-", "f32le", 16_000))


@pytest.mark.parametrize("open_it", [open_recording, open_live])
def test_a_closed_stdin_is_an_error(monkeypatch, open_it):
    monkeypatch.setattr("sys.stdin", None)
    arguments = ("-",) if open_it is open_recording else ()
    with pytest.raises(CommandError, match="stdin: closed"):
        open_it(*arguments, "f32le", 16_000)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_samples_are_not_read_from_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(CommandError, match="stdin is a terminal"):
        open_live("f32le", 16_000)


# --- as it comes ------------------------------------------------------------------------


def test_available_samples_are_yielded_at_once_and_empty_blocks_between(pipe):
    source, sink = pipe
    before = signal.getsignal(signal.SIGINT)
    blocks = read_available(source)
    assert next(blocks) == b""
    assert signal.getsignal(signal.SIGINT) is not before
    sink.write(b"ab")
    assert next(blocks) == b"ab"
    assert next(blocks) == b""
    sink.write(b"c")
    sink.close()
    assert list(blocks) == [b"c"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_the_end_and_a_second_one_is_an_interrupt(pipe):
    source, sink = pipe
    before = signal.getsignal(signal.SIGINT)
    blocks = read_available(source)
    sink.write(b"ab")
    assert next(blocks) == b"ab"
    signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert list(blocks) == []


def test_an_interrupt_that_was_ignored_before_stays_ignored(pipe):
    source, sink = pipe
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        blocks = read_available(source)
        sink.write(b"ab")
        assert next(blocks) == b"ab"
        signal.raise_signal(signal.SIGINT)
        sink.write(b"c")
        sink.close()
        assert b"".join(blocks) == b"c"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_live_samples_are_those_of_stdin(pipe, monkeypatch):
    source, sink = pipe
    text = io.TextIOWrapper(source)
    monkeypatch.setattr("sys.stdin", text)
    sink.write(b"\0" * 8 + b"\1")
    sink.close()
    recording = open_live("f32le", 16_000)
    assert b"".join(recording) == b"\0" * 8
    text.detach()
    assert "ends within a sample" in str(recording.error)


# --- files in a pipe --------------------------------------------------------------------


def test_a_file_of_a_known_format_is_decoded_from_a_pipe(pipe, monkeypatch, tmp_path):
    source, sink = pipe
    data = write_sound(tmp_path / "a.wav", 0.2).read_bytes()
    monkeypatch.setattr("sys.stdin", Stdin(source))
    sink.write(data)
    sink.close()
    recording = open_recording("-", None, 16_000)
    assert sum(map(len, recording)) == pytest.approx(0.2 * 64_000, abs=400)
    assert recording.error is None


def test_anything_else_is_raw_and_so_is_what_is_said_to_be(pipe, monkeypatch):
    source, sink = pipe
    monkeypatch.setattr("sys.stdin", Stdin(source))
    sink.write(b"RIFF" * 16)
    sink.close()
    assert b"".join(open_recording("-", "f32le", 16_000)) == b"RIFF" * 16


@each_case(
    ("beginning", "is_file"),
    [
        (b"RIFF\x24\x08\x00\x00WAVE", True),
        (b"\x00\x00\x00\x20ftypM4A ", True),
        (b"OggS", True),
        (SECOND[:16], False),
        (b"", False),
    ],
)
def test_a_format_is_known_by_its_beginning(beginning, is_file):
    assert is_media_file(beginning) is is_file
