import os
import threading
from pathlib import Path

import av
import pytest
from hypothesis import given, settings, strategies as st

from inferd.client.media.audio_decoder import TruncationCheck, convert_raw, decode_file
from inferd.client.media.sound import SoundError
from tests.cases import each_case
from tests.fakes.recordings import (
    CODERS,
    LOUDNESS,
    samples_in,
    tone,
    wav,
    write_sound,
)

SECOND = 16_000
"""Samples."""


def decoded(path):
    """What a file gives, and how it ends."""
    pieces: list[bytes] = []
    try:
        pieces.extend(decode_file(path))
    except SoundError as error:
        return samples_in(pieces), str(error)
    return samples_in(pieces), ""


def given_before(raw, form, rate_hz):
    pieces: list[bytes] = []
    with pytest.raises(SoundError) as caught:
        pieces.extend(convert_raw(raw, form, rate_hz))
    return b"".join(pieces), str(caught.value)


LOSSLESS = ["a.wav", "a.flac", "a.mka", "a.aiff"]

# --- files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CODERS)
def test_a_file_is_decoded_to_its_end_as_loud_as_it_is(tmp_path, name):
    samples, fault = decoded(write_sound(tmp_path / name, 0.7))
    assert fault == ""
    padding = 0 if name in LOSSLESS else SECOND // 20
    assert 0.7 * SECOND <= len(samples) <= 0.7 * SECOND + padding
    loudest = max(samples[1000 : SECOND // 2])
    assert loudest == pytest.approx(LOUDNESS, rel=0.1)


def test_samples_are_those_of_the_file(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(tone(0, SECOND, SECOND)))
    samples, _ = decoded(path)
    assert samples == pytest.approx(tone(0, SECOND, SECOND), abs=1e-4)


def test_many_channels_are_averaged(tmp_path):
    path = write_sound(tmp_path / "a.flac", 0.5, "5.1")
    samples, fault = decoded(path)
    assert fault == ""
    assert max(samples[1000:7000]) == pytest.approx(LOUDNESS, rel=0.2)


TELLING = ["a.wav", "a.flac", "a.mp3", "a.aiff", "a.mka"]


@pytest.mark.parametrize("name", TELLING)
def test_a_truncated_file_yields_its_samples_and_an_error(tmp_path, name):
    path = write_sound(tmp_path / name, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    samples, fault = decoded(path)
    assert SECOND < len(samples) < 2.2 * SECOND
    assert fault.startswith("breaks off after ")


def test_a_file_whose_contents_are_listed_at_its_end_has_no_sound_without_it(tmp_path):
    path = write_sound(tmp_path / "a.m4a", 1)
    path.write_bytes(path.read_bytes()[:9000])
    samples, fault = decoded(path)
    assert samples == []
    assert fault.startswith("no audio in it: ")


@pytest.mark.parametrize("n_bytes", [0, 2**32 - 1, 0x7FFF_F000])
def test_a_wav_file_that_does_not_know_its_length_does_not_break_off(tmp_path, n_bytes):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(tone(0, 12_345, SECOND), n_bytes=n_bytes))
    samples, fault = decoded(path)
    assert (len(samples), fault) == (12_345, "")


def test_a_title_that_is_not_unicode_does_not_prevent_decoding(tmp_path):
    path = write_sound(tmp_path / "a.mp3", 0.5)
    coder = path.read_bytes()[10:20]
    assert coder.startswith(b"TSSE")
    path.write_bytes(path.read_bytes().replace(b"TSSE", b"T\x80SE", 1))
    samples, fault = decoded(path)
    assert fault == ""
    assert len(samples) >= SECOND // 2


def test_a_file_may_come_by_a_pipe(tmp_path):
    whole = write_sound(tmp_path / "a.mp3", 0.5).read_bytes()
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as file:
            file.write(whole)

    thread = threading.Thread(target=write)
    thread.start()
    samples, fault = decoded(Path(f"/dev/fd/{reading}"))
    thread.join()
    os.close(reading)
    assert fault == ""
    assert len(samples) >= SECOND // 2


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, world\n" * 999, bytes(9999), b"\xff\xfb\x90\0" * 99, wav([])],
    ids=["empty", "text", "zeros", "headers", "no samples"],
)
def test_a_file_without_audio_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "a.mp3"
    path.write_bytes(content)
    samples, fault = decoded(path)
    assert samples == []
    assert fault.startswith("no audio in it")
    assert "\n" not in fault


def test_a_video_without_audio_is_refused(tmp_path):
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 16
        container.mux(stream.encode(av.VideoFrame(16, 16, "yuv420p")))
        container.mux(stream.encode(None))
    assert decoded(path) == ([], "no audio in it")


def test_the_audio_of_a_video_may_be_shorter_than_the_video(tmp_path):
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        picture = container.add_stream("mpeg4", rate=1)
        picture.width = picture.height = 16
        sound = container.add_stream("pcm_s16le", rate=SECOND, layout="mono")
        frame = av.AudioFrame("s16", "mono", SECOND)
        frame.sample_rate = SECOND
        container.mux(sound.encode(frame))
        for _ in range(5):
            container.mux(picture.encode(av.VideoFrame(16, 16, "yuv420p")))
        container.mux(picture.encode(None))
    samples, fault = decoded(path)
    assert (len(samples), fault) == (SECOND, "")


def test_a_playlist_has_no_other_file_read(tmp_path):
    write_sound(tmp_path / "a.wav", 0.5)
    path = tmp_path / "list.txt"
    path.write_text("ffconcat version 1.0\nfile a.wav\n")
    samples, fault = decoded(path)
    assert samples == []
    assert fault.startswith("no audio in it")


@pytest.mark.parametrize(
    ("name", "words"), [("gone", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_opened_has_the_system_s_message(tmp_path, name, words):
    assert decoded(tmp_path / name) == ([], words)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(TELLING), st.data())
def test_a_file_with_a_hole_gives_sound_or_one_line(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("holes") / name
    broken = bytearray(write_sound(path, 0.3).read_bytes())
    at = data.draw(st.integers(0, len(broken) - 1))
    hole = data.draw(st.binary(min_size=1, max_size=64))
    broken[at : at + len(hole)] = hole
    path.write_bytes(broken)
    samples, fault = decoded(path)
    assert samples or fault
    assert "\n" not in fault


# --- what came to its end ---------------------------------------------------------------


def ending(said_s, *seen):
    judge = TruncationCheck(said_s)
    for seconds, fault in seen:
        judge.note_fault(fault)
        judge.add_decoded(seconds)
    return judge


@each_case(
    ("said_s", "heard_s"), [(None, 1), (10, 10), (10, 9.6), (1000, 981), (10, 12)]
)
def test_audio_is_complete_within_the_padding_of_encoders(said_s, heard_s):
    ending(said_s, (heard_s, "")).check()


@pytest.mark.parametrize(("said_s", "heard_s"), [(10, 9.4), (1000, 979)])
def test_audio_that_is_too_short_is_truncated(said_s, heard_s):
    words = f"breaks off after {heard_s:.1f} s of {said_s:.1f} s$"
    with pytest.raises(SoundError, match=words):
        ending(said_s, (heard_s, "")).check()


def test_a_broken_piece_is_passed_over_unless_it_is_the_last():
    ending(2, (0, "broken"), (1, ""), (0, "broken"), (1, "")).check()
    with pytest.raises(SoundError, match="breaks off after 1.0 s: broken"):
        ending(None, (1, ""), (0, "broken")).check()


# --- raw samples ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "sample"), [("s16le", b"\0\x20"), ("f32le", b"\0\0\x80\x3e")]
)
def test_samples_of_another_form_and_rate_are_converted_block_for_block(form, sample):
    raw = [sample * 4800, b"", sample * 4800]
    blocks = list(convert_raw(raw, form, 48_000))
    assert blocks[1] == b""
    samples = samples_in(blocks)
    assert len(samples) == 3200
    assert samples[100:3100] == pytest.approx([0.25] * 3000, abs=1e-3)


def test_samples_that_break_off_give_what_came_before():
    def breaking():
        yield b"\0\0" * 480
        raise SoundError("ends")

    data, words = given_before(breaking(), "s16le", 48_000)
    assert (len(data), words) == (160 * 4, "ends")
