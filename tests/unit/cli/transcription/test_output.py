import argparse
import errno
import os

import pytest

from inferd.cli.console import CommandError
from inferd.cli.transcription.output import Destination, SegmentPrinter, parse_formats
from inferd.client.transcripts import Transcript, TranscriptSegment
from tests.cases import each_case

TWO = [
    TranscriptSegment(start_ms=0, end_ms=500, text="Ask"),
    TranscriptSegment(start_ms=500, end_ms=900, text=" not."),
]


def to_stdout(*kinds, has_words=False):
    return Destination(list(kinds), None, has_words=has_words)


def printed(capsys, destination):
    printer = SegmentPrinter("a.mp3", destination)
    for segment in TWO:
        printer.print_segment(segment)
    printer.finish(Transcript(segments=TWO))
    return capsys.readouterr().out


# --- what is asked for ------------------------------------------------------------------


def test_formats_are_read_in_order_each_once():
    assert parse_formats("vtt,srt,vtt") == ["vtt", "srt"]


@each_case("text", ["", "doc", "srt,", "srt vtt"])
def test_an_unknown_format_is_refused(text):
    with pytest.raises(
        argparse.ArgumentTypeError, match="not one of txt, srt, vtt, json"
    ):
        parse_formats(text)


def test_stdout_takes_one_format_and_of_many_files_what_can_be_joined():
    to_stdout("txt").check(["a.mp3", "b.mp3"])
    to_stdout("json").check(["a.mp3", "b.mp3"])
    to_stdout("vtt").check(["a.mp3"])
    with pytest.raises(CommandError, match="several formats need --output DIR"):
        to_stdout("txt", "srt").check(["a.mp3"])
    with pytest.raises(CommandError, match="vtt of several files needs --output DIR"):
        to_stdout("vtt").check(["a.mp3", "b.mp3"])


def test_two_files_are_not_written_over_one_another(tmp_path):
    destination = Destination(["srt"], tmp_path, has_words=False)
    destination.check(["x/a.mp3", "b.mp3", "-"])
    with pytest.raises(
        CommandError, match=r"two transcripts would be written to a\.\*"
    ):
        destination.check(["x/a.mp3", "y/a.wav"])


def test_a_recording_is_not_written_over(tmp_path):
    talk, link = tmp_path / "talk.txt", tmp_path / "talk.json"
    link.symlink_to(talk)
    for kinds in (["txt"], ["srt", "json"]):
        destination = Destination(kinds, tmp_path, has_words=False)
        with pytest.raises(
            CommandError, match=f"{kinds[-1]} is an input, and would be overwritten"
        ):
            destination.check([str(talk)])
    Destination(["srt"], tmp_path, has_words=False).check([str(talk)])


# --- stdout -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("txt", "Ask\nnot.\n"),
        (
            "srt",
            (
                "1\n00:00:00,000 --> 00:00:00,500\nAsk\n\n"
                "2\n00:00:00,500 --> 00:00:00,900\nnot.\n\n"
            ),
        ),
        (
            "vtt",
            (
                "WEBVTT\n\n00:00:00.000 --> 00:00:00.500\nAsk\n\n"
                "00:00:00.500 --> 00:00:00.900\nnot.\n\n"
            ),
        ),
    ],
)
def test_segments_are_printed_as_a_file_has_them(capsys, kind, text):
    destination = to_stdout(kind)
    assert printed(capsys, destination) == text
    transcript = Transcript(segments=TWO)
    assert destination.format_of(kind).whole("a.mp3", transcript) == text


def test_word_segments_are_printed_in_one_line(capsys):
    assert printed(capsys, to_stdout("txt", has_words=True)) == "Ask not.\n"


def test_a_transcript_of_nothing_has_its_head_all_the_same(capsys):
    printer = SegmentPrinter("a", to_stdout("vtt"))
    printer.finish(Transcript(segments=[]))
    assert capsys.readouterr().out == "WEBVTT\n\n"


def test_nothing_is_printed_that_was_never_begun(capsys):
    SegmentPrinter("a", to_stdout("vtt"))
    assert capsys.readouterr().out == ""


# --- files ------------------------------------------------------------------------------


def test_files_are_named_after_the_recording(tmp_path, capsys):
    directory = tmp_path / "new" / "deep"
    destination = Destination(["txt", "json"], directory, has_words=False)
    assert printed(capsys, destination) == ""
    destination.make_directory()
    for name in ("x/a.b.mp3", "-"):
        destination.write_files(name, Transcript(segments=TWO))
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["a.b.json", "a.b.txt", "stdin.json", "stdin.txt"]
    assert (directory / "a.b.txt").read_text() == "Ask\nnot.\n"


def test_what_goes_to_stdout_goes_into_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_stdout("txt").write_files("a.mp3", Transcript(segments=TWO))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "a.txt").mkdir()
    destination = Destination(["txt"], tmp_path, has_words=False)
    with pytest.raises(CommandError, match=r"a\.txt: Is a directory"):
        destination.write_files("a.mp3", Transcript(segments=TWO))


def test_a_file_stays_unchanged_if_the_disk_is_full(tmp_path, monkeypatch):
    def write(path, text, **how):
        with path.open("w", **how) as file:
            file.write(text[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a.txt").write_text("before")
    monkeypatch.setattr("pathlib.Path.write_text", write)
    destination = Destination(["txt"], tmp_path, has_words=False)
    with pytest.raises(CommandError, match=r"a\.txt: No space left on device"):
        destination.write_files("a.mp3", Transcript(segments=TWO))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "before"


@pytest.mark.parametrize(
    ("below", "words"), [("file", "Not a directory"), ("file/out", "Not a directory")]
)
def test_a_directory_that_cannot_be_made_is_an_error(tmp_path, below, words):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=rf"{below}: {words}"):
        Destination(["txt"], tmp_path / below, has_words=False).make_directory()


def test_a_directory_in_which_nothing_may_be_written_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(CommandError, match="Permission denied"):
        Destination(["txt"], tmp_path, has_words=False).make_directory()


def test_stdout_needs_no_directory():
    to_stdout("txt").make_directory()
