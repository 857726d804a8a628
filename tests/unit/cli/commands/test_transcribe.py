import argparse
import io
import json
import os
import sys
import threading

import pytest

from inferd.cli.commands.transcribe import add_arguments, make_request
from inferd.client.media.errors import MissingExtraError
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)
from tests.fakes.hearing import hear, heard, receive, segment
from tests.fakes.listener import failure, listening, says
from tests.fakes.recordings import tone, wav

SOUND = AudioAttachment(id="sound", sample_rate=16_000, fd=0)


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def hears(*answers):
    """Answer one request after another."""

    def follow(sock):
        for frames in answers:
            request, _ = receive(sock)
            if request["attachments"][0]["open"]:
                hear(sock)
            says(*frames)(sock)

    return follow


def said(text):
    return [segment(text, 0, 900, "cli"), heard("cli")]


@pytest.fixture
def files(short_dir):
    """A directory with two recordings."""
    for name in ("a.wav", "b.wav"):
        (short_dir / name).write_bytes(wav(tone(0, 16_000, 16_000)))
    return short_dir


@pytest.fixture
def transcribe(inferd, files):
    """Transcribe files where a daemon follows a dialogue."""

    def run(*arguments, dialogue):
        with listening(files / "infer.v2.sock", dialogue):
            return inferd("transcribe", "--directory", files, *arguments)

    return run


# --- the request ------------------------------------------------------------------------


def test_only_a_transcription_is_requested():
    assert make_request(parse("a.mp3"), SOUND) == BlocksRequest(
        id="cli",
        messages=[Message("user", [AudioBlock("sound")])],
        attachments=[SOUND],
        timestamps="segment",
    )


def test_every_option_reaches_the_request():
    options = [
        "--language",
        "de",
        "--translate",
        "--timestamps",
        "word",
        "--id",
        "mine",
        "--model",
        "whisper",
    ]
    request = make_request(parse("-", *options, "--prompt", "Kennedy"), SOUND)
    assert request == BlocksRequest(
        id="mine",
        model="whisper",
        messages=[Message("user", [TextBlock("Kennedy"), AudioBlock("sound")])],
        attachments=[SOUND],
        language="de",
        translate=True,
        timestamps="word",
    )


# --- files ------------------------------------------------------------------------------


def test_a_file_is_printed_line_by_line(transcribe, files):
    answer = [
        segment("Ask not", 0, 500, "cli"),
        segment(" what.", 500, 900, "cli"),
        heard("cli"),
    ]
    outcome = transcribe(files / "a.wav", dialogue=hears(answer))
    assert outcome == (0, "Ask not\nwhat.\n", "")


def test_files_are_written_in_every_format(transcribe, files):
    out = files / "out"
    options = ["--format", "srt,vtt,json", "--output", out]
    names = [files / "a.wav", files / "b.wav"]
    dialogue = hears(said("first"), said("second"))
    assert transcribe(*names, *options, dialogue=dialogue) == (0, "", "")
    assert len(list(out.iterdir())) == 6
    assert (out / "a.srt").read_text() == "1\n00:00:00,000 --> 00:00:00,900\nfirst\n\n"
    assert json.loads((out / "b.json").read_text())["language"] == "en"


def test_a_file_that_cannot_be_used_does_not_keep_the_others(transcribe, files):
    (files / "bad.mp3").write_bytes(b"nonsense" * 999)
    names = [files / "gone", files / "a.wav", files / "bad.mp3", files / "b.wav"]
    refused = [failure("invalid_request", "sample 7 is not finite", "cli")]
    code, stdout, stderr = transcribe(*names, dialogue=hears(refused, said("Hello.")))
    assert (code, stdout) == (2, "Hello.\n")
    assert [line.removeprefix(f"error: {files}/") for line in stderr.splitlines()] == [
        "gone: No such file or directory",
        "a.wav: invalid_request: sample 7 is not finite",
        "bad.mp3: no audio in it: Invalid data found when processing input",
    ]


def test_a_files_name_steers_no_terminal(transcribe, files):
    names = [files / "\x1b[2J", files / "a.wav"]
    code, _, stderr = transcribe(*names, dialogue=hears(said("Hello.")))
    assert code == 2
    assert stderr.endswith("/\\x1b[2J: No such file or directory\n")


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (
            failure("invalid_request", "decode: Expected `str`, got `null`", ""),
            "error: invalid_request: decode: Expected `str`",
        ),
        (
            failure("model_not_found", 'model "x" is not served here', "cli"),
            'error: model_not_found: model "x" is not served here',
        ),
    ],
    ids=["unreadable", "no such model"],
)
def test_a_refusal_that_concerns_all_files_is_reported_once(
    transcribe, files, refusal, text
):
    names = [files / "a.wav", files / "b.wav"]
    code, _, stderr = transcribe(*names, dialogue=hears([refusal]))
    assert code == 2
    assert stderr.startswith(text)
    assert stderr.count("error:") == 1


def test_an_impossible_directory_is_reported_before_any_transcription(inferd, files):
    outcome = inferd("transcribe", files / "a.wav", "--output", files / "b.wav")
    assert outcome == (2, "", f"error: {files}/b.wav: Not a directory\n")


def test_without_the_library_the_command_ends(inferd, files, monkeypatch):
    monkeypatch.delitem(sys.modules, "inferd.client.media.audio_decoder", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    outcome = inferd("transcribe", files / "a.wav", files / "b.wav")
    words = str(MissingExtraError("av"))
    assert outcome == (2, "", f"error: {words}\n")


def test_a_missing_daemon_is_reported_once(inferd, files):
    names = [files / "a.wav", files / "b.wav"]
    code, _, stderr = inferd("transcribe", "--directory", files, *names)
    assert code == 2
    assert stderr.count("no daemon answers") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no FILE given; - reads raw samples from stdin"),
        (["-", "-"], "stdin (-) can be given only once"),
        (["--live", "a.mp3"], "--live reads stdin, and no FILE"),
        (["a.mp3", "--format", "srt,txt"], "several formats need --output DIR"),
        (["a", "b", "--format", "vtt"], "vtt of several files needs --output DIR"),
    ],
)
def test_what_cannot_be_meant_is_refused(inferd, arguments, words):
    assert inferd("transcribe", *arguments) == (2, "", f"error: {words}\n")


@pytest.mark.parametrize(
    "option", ["--format=doc", "--rate=0", "--samples=u8", "--timestamps=never"]
)
def test_an_option_that_has_no_such_value_is_refused(inferd, option):
    with pytest.raises(SystemExit) as caught:
        inferd("transcribe", "a.mp3", option)
    assert caught.value.code == 2


# --- stdin ------------------------------------------------------------------------------


def test_samples_are_read_from_stdin(transcribe, monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO(bytes(2 * 8000)))
    monkeypatch.setattr("sys.stdin", piped)
    options = ["--samples", "s16le", "--rate", "8000", "--format", "json"]
    code, stdout, _ = transcribe("-", *options, dialogue=hears(said("Hello.")))
    assert (code, json.loads(stdout)["file"]) == (0, "-")


def test_segments_are_printed_as_they_come(transcribe, monkeypatch):
    reading, writing = os.pipe()
    is_told = threading.Event()

    def listen(sock):
        receive(sock)
        receive(sock)
        says(segment("Ask", 0, 900, "cli"))(sock)
        is_told.wait(90)
        hear(sock)
        says(segment(" not.", 900, 1900, "cli"), heard("cli"))(sock)

    def print_(text, *, end="\n", file=None, flush=False):
        printed.append(text + end)
        if not is_told.is_set():
            is_told.set()
            os.close(writing)

    printed: list[str] = []
    os.write(writing, bytes(6400))
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("builtins.print", print_)
        assert transcribe("--live", dialogue=listen).code == 0
    assert printed == ["Ask\n", "not.\n"]
