"""Files on the command line, through real daemons and models."""

import io
import json
import os
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from inferd.cli.transcription import transcriber
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, llamacpp, mock
from tests.fakes.command import Command
from tests.fakes.recordings import transcode
from tests.model.changes import HEARS_LITTLE
from tests.model.sound import RATE, read_wav
from tests.model.test_transcribe import CLIP_MS, WORDS, whispercpp
from tests.model.tiny_projector import write_tiny_projector
from tests.model.tiny_whisper import SEGMENTS, write_tiny_whisper
from tools.spoken_clip import clip_path, compressed_clip_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

CLIP: Final = clip_path()
COMPRESSED: Final = compressed_clip_path()
SAID: Final = WORDS.format("")
RECITED: Final = "".join(text for *_, text in SEGMENTS).strip()
PADDING_MS: Final = 100
"""By how much a codec may lengthen a file."""
LONG_S: Final = 40
"""Seconds of a file that is too long here to be held whole."""
COLOURS: Final = {"red": (220, 30, 20), "blue": (20, 30, 220)}
ANSWERED: Final = ("--temperature", "0", "--seed", "0", "--max-tokens", "24")


@pytest.fixture(scope="module")
def hearing() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [whispercpp()]}, environ=HEARS_LITTLE).start()


@pytest.fixture(scope="module")
def reciting(tmp_path_factory) -> Iterator[DaemonProcess]:
    """What hears nothing, says the same of each half minute, and takes no time to."""
    model = tmp_path_factory.mktemp("whisper") / "m.bin"
    write_tiny_whisper(model, end_ms=30_000)
    with daemons() as make:
        yield make({"backend": [whispercpp(model=str(model))]}).start()


@pytest.fixture(scope="module")
def vision_daemon(tiny_f32, tmp_path_factory) -> Iterator[DaemonProcess]:
    mmproj = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    write_tiny_projector(mmproj, sees=True, hears=True)
    with daemons() as make:
        yield make({"backend": [llamacpp(tiny_f32, mmproj=str(mmproj))]}).start()


@pytest.fixture
def inferd(monkeypatch, capfd, short_dir) -> Command:
    """Run a command in this process."""
    return Command(monkeypatch, capfd, short_dir)


@pytest.fixture
def transcribe(inferd, hearing):
    def run(*arguments):
        return inferd("transcribe", "--directory", hearing.directory, *arguments)

    return run


@pytest.fixture
def recite(inferd, reciting):
    def run(*arguments, daemon=reciting):
        return inferd("transcribe", "--directory", daemon.directory, *arguments)

    return run


# --- inferd transcribe ------------------------------------------------------------------


@pytest.mark.parametrize("clip", [CLIP, COMPRESSED], ids=["wav", "mp3"])
def test_the_clip_is_written_down_exactly(transcribe, clip):
    code, stdout, stderr = transcribe(clip)
    assert (code, one_line(stdout), stderr) == (0, SAID, "")


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["a.flac", "a.m4a", "a.ogg", "a.opus", "a.webm"])
def test_what_the_clip_is_written_in_makes_no_difference(recite, tmp_path, name):
    file = transcode(CLIP, tmp_path / name)
    code, stdout, stderr = recite(file, "--format", "json")
    told = json.loads(stdout)
    assert (code, one_line(told["text"]), stderr) == (0, RECITED, "")
    assert CLIP_MS <= told["audio_ms"] <= CLIP_MS + PADDING_MS


def test_each_format_is_well_formed_and_has_the_same_text(recite, tmp_path):
    formats = ("--format", "txt,srt,vtt,json", "--output", tmp_path / "out")
    assert recite(CLIP, *formats) == (0, "", "")
    txt, srt, vtt, whole = (
        (tmp_path / "out" / f"jfk.{kind}").read_text()
        for kind in ("txt", "srt", "vtt", "json")
    )
    told = json.loads(whole)
    assert told["text"] == one_line(txt) == RECITED
    assert (told["language"], told["audio_ms"]) == ("en", 11_000)
    head, *cues = vtt.removesuffix("\n\n").split("\n\n")
    assert head == "WEBVTT"
    assert [cue.partition("\n")[2] for cue in cues] == txt.splitlines()
    times = [cue.partition("\n")[0].replace(".", ",") for cue in cues]
    numbered = [
        f"{number}\n{time}\n{line}\n\n"
        for number, (time, line) in enumerate(
            zip(times, txt.splitlines(), strict=True), 1
        )
    ]
    assert srt == "".join(numbered)


def test_each_word_is_a_cue_where_words_have_times(transcribe):
    code, stdout, _ = transcribe(CLIP, "--timestamps", "word", "--format", "srt")
    cues = stdout.removesuffix("\n\n").split("\n\n")
    assert (code, [cue.splitlines()[2] for cue in cues]) == (0, SAID.split())
    starts = [cue.splitlines()[1].partition(" --> ")[0] for cue in cues]
    assert starts == sorted(starts)


def test_samples_are_read_from_stdin(recite, monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO(read_wav(CLIP)))
    monkeypatch.setattr("sys.stdin", piped)
    code, stdout, stderr = recite("-", "--format", "json")
    told = json.loads(stdout)
    assert (code, told["audio_ms"], stderr) == (0, CLIP_MS, "")
    assert told["text"] == RECITED


def test_sound_is_written_down_from_a_pipe_while_it_comes(recite, monkeypatch):
    reading, writing = os.pipe()

    def speak() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(read_wav(CLIP))

    speaker = threading.Thread(target=speak)
    speaker.start()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, stdout, stderr = recite("--live", "--format", "json")
    speaker.join()
    told = json.loads(stdout)
    assert (code, stderr, told["audio_ms"]) == (0, "", CLIP_MS)
    assert told["latency_ms"] > 0
    assert told["text"].startswith(SEGMENTS[0][2].strip())


def test_a_long_file_is_appended_and_ends(recite, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(transcriber, "MEMFD_MAX_S", LONG_S - 1)
    with wave.open(str(tmp_path / "long.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(bytes(2 * RATE * LONG_S))
    code, stdout, stderr = recite(tmp_path / "long.wav", "--format", "json")
    told = json.loads(stdout)
    assert (code, stderr, told["audio_ms"]) == (0, "", LONG_S * 1000)
    assert "latency_ms" in told  # which only sound that was appended has


def test_a_broken_file_does_not_keep_a_good_one(recite, tmp_path):
    broken = tmp_path / "broken.mp3"
    broken.write_bytes(bytes(range(256)) * 40)
    code, stdout, stderr = recite(broken, CLIP)
    assert (code, one_line(stdout)) == (2, RECITED)
    [line] = stderr.splitlines()
    assert line.startswith(f"error: {broken}: no audio in it")


def test_a_language_that_the_model_does_not_know_is_told(recite):
    code, stdout, stderr = recite(CLIP, "--language", "de")
    assert (code, stdout) == (2, "")
    [line] = stderr.splitlines()
    assert line.startswith(f"error: {CLIP}: invalid request: ")
    assert "language 'de': the model knows en" in line


def test_a_daemon_that_writes_nothing_down_says_so(recite, make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    code, stdout, stderr = recite(CLIP, daemon=daemon)
    assert (code, stdout) == (2, "")
    [line] = stderr.splitlines()
    assert line.startswith(f"error: {CLIP}: attachment_unsupported: ")


# --- inferd generate --------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.png" for name in COLOURS}
    for name, path in paths.items():
        Image.new("RGB", (40, 30), COLOURS[name]).save(path)
    return paths


@pytest.fixture
def ask(inferd, vision_daemon):
    def run(*arguments, daemon=vision_daemon):
        options = ("--directory", daemon.directory, *ANSWERED)
        return inferd("generate", "What is this?", *arguments, *options)

    return run


def test_another_picture_has_another_answer(ask, pictures):
    plain = ask()
    red, blue = (ask("--image", path) for path in pictures.values())
    assert [each.code for each in (plain, red, blue)] == [0, 0, 0]
    assert len({plain.stdout, red.stdout, blue.stdout}) == 3
    assert ask("--image", pictures["red"]) == red


def test_pictures_stand_in_the_order_of_their_options(ask, pictures):
    one_way, other_way = (
        ask(*(word for path in order for word in ("--image", path)))
        for order in (pictures.values(), reversed(pictures.values()))
    )
    assert (one_way.code, other_way.code) == (0, 0)
    assert one_way.stdout != other_way.stdout


def test_pictures_and_sound_are_counted(ask, pictures):
    counts = [
        int(ask("--count", *media).stdout)
        for media in (
            (),
            ("--image", pictures["red"]),
            ("--audio", CLIP),
            ("--image", pictures["red"], "--audio", CLIP),
        )
    ]
    plain, picture, sound, both = counts
    assert plain < picture < sound < both


def test_a_model_that_reads_text_alone_says_so(ask, tiny_daemon, pictures):
    code, stdout, stderr = ask("--image", pictures["red"], daemon=tiny_daemon)
    assert (code, stdout) == (2, "")
    [line] = stderr.splitlines()
    assert line.startswith("error: attachment_unsupported: ")


def test_a_file_that_is_no_picture_is_told_by_its_name(ask, tmp_path):
    file = tmp_path / "notes.png"
    file.write_text("red")
    code, stdout, stderr = ask("--image", file)
    assert (code, stdout) == (2, "")
    [line] = stderr.splitlines()
    assert line.startswith(f"error: {file}: ")
