import io
import os
import signal

import pytest

from inferd.cli.console import CommandError
from inferd.cli.recordings import (
    Recording,
    as_it_comes,
    live_recording,
    recording_of,
)
from inferd.client.sound import SoundError
from tests.fakes.recordings import tone, wav

SECOND = bytes(64_000)


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


def test_a_recording_tells_how_much_was_given():
    recording = Recording("a", [SECOND, SECOND])
    assert recording.decoded_ms == 0
    assert list(recording) == [SECOND, SECOND]
    assert recording.decoded_ms == 2000


def test_what_broke_a_recording_off_is_told_afterwards():
    recording = Recording("a", breaking(SECOND))
    assert list(recording) == [SECOND]
    assert str(recording.broken) == "breaks off"


def test_a_recording_without_any_sound_is_refused():
    with pytest.raises(SoundError):
        list(Recording("a", breaking()))


def test_samples_are_read_from_stdin(piped):
    piped(SECOND * 2 + b"\0" * 8)
    recording = recording_of("-", "f32le", 16_000)
    assert b"".join(recording) == SECOND * 2 + b"\0" * 8
    assert (recording.name, recording.broken) == ("-", None)


def test_a_file_is_read_by_its_name(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(tone(0, 16_000, 16_000)))
    recording = recording_of(str(path), "s16le", 8000)
    assert len(b"".join(recording)) == len(SECOND)
    assert (recording.name, recording.broken) == (str(path), None)


def test_samples_of_stdin_may_have_another_form(piped):
    piped(bytes(2 * 8000))
    assert len(b"".join(recording_of("-", "s16le", 8000))) == len(SECOND)


@pytest.mark.parametrize("data", [b"", b"\0\0"])
def test_nothing_on_stdin_is_no_sound(piped, data):
    piped(data)
    with pytest.raises(SoundError, match=r"no sound in it|ends within a sample"):
        list(recording_of("-", "f32le", 16_000))


@pytest.mark.parametrize("open_it", [recording_of, live_recording])
def test_a_closed_stdin_is_an_error(monkeypatch, open_it):
    monkeypatch.setattr("sys.stdin", None)
    arguments = ("-",) if open_it is recording_of else ()
    with pytest.raises(CommandError, match="stdin: closed"):
        open_it(*arguments, "f32le", 16_000)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nobody_types_samples(monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(CommandError, match="stdin is a terminal"):
        live_recording("f32le", 16_000)


# --- as it comes ------------------------------------------------------------------------


def test_what_comes_is_given_at_once_and_nothing_meanwhile(pipe):
    source, sink = pipe
    before = signal.getsignal(signal.SIGINT)
    blocks = as_it_comes(source)
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
    blocks = as_it_comes(source)
    sink.write(b"ab")
    assert next(blocks) == b"ab"
    signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert list(blocks) == []


def test_live_samples_are_those_of_stdin(pipe, monkeypatch):
    source, sink = pipe
    text = io.TextIOWrapper(source)
    monkeypatch.setattr("sys.stdin", text)
    sink.write(b"\0" * 8 + b"\1")
    sink.close()
    recording = live_recording("f32le", 16_000)
    assert b"".join(recording) == b"\0" * 8
    text.detach()
    assert "ends within a sample" in str(recording.broken)
