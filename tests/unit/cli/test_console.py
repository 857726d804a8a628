import errno
import io
import sys

import pytest
from hypothesis import given, settings, strategies as st

from inferd.cli.console import (
    EXIT_ERROR,
    CommandError,
    data,
    fail,
    printable,
    say,
    stdin,
)

MARK = "\N{REPLACEMENT CHARACTER}"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_by(monkeypatch, text):
    """Make a text printable while stdout is a terminal."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Terminal())
        return printable(text)


class Full(io.StringIO):
    """A file that nothing more fits into."""

    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


class Unread(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, _):
        raise BrokenPipeError


def test_data_that_cannot_be_printed_is_an_error(monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(CommandError) as caught:
        patch.setattr(sys, "stdout", Full())
        data("answer")
    assert caught.value.text == "stdout: No space left on device"


def test_data_for_a_stdout_that_was_closed_is_an_error(monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(CommandError) as caught:
        patch.setattr(sys, "stdout", None)
        data(printable("answer"))
    assert caught.value.text == "stdout: closed"


def test_a_reader_that_has_had_enough_is_told_from_an_error(monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(BrokenPipeError):
        patch.setattr(sys, "stdout", Unread())
        data("answer")


@pytest.mark.parametrize("stderr", [Full(), None])
def test_words_that_nobody_can_read_are_dropped(monkeypatch, capsys, stderr):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        say("loading")
        assert fail(CommandError("no daemon")) == EXIT_ERROR
    assert capsys.readouterr() == ("", "")


def test_a_stdin_that_was_closed_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandError, match="stdin: closed"):
        stdin()


def test_data_goes_to_stdout_and_words_to_stderr(capsys):
    data("answer", end="")
    say("loading", end="...\n")
    assert capsys.readouterr() == ("answer", "loading...\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommandError("no daemon"), "error: no daemon\n"),
        (
            CommandError("no daemon", hint="inferd serve"),
            "error: no daemon\n\nhint: inferd serve\n",
        ),
    ],
)
def test_an_error_is_one_line_and_perhaps_a_hint(capsys, error, words):
    assert fail(error) == EXIT_ERROR == 2
    assert capsys.readouterr() == ("", words)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", f"{MARK}[31mred{MARK}[0m"),
        ("\x9b2J", f"{MARK}2J"),
        ("a\rb\x08c\x07\x00\x7f", f"a{MARK}b{MARK}c{MARK}{MARK}{MARK}"),
        ("\u202eevil\u2066", f"{MARK}evil{MARK}"),
    ],
)
def test_a_model_cannot_steer_a_terminal(monkeypatch, text, shown):
    assert shown_by(monkeypatch, text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("two\nlines\tand a tab", "Grüße, 東京, שלום, 😀", "fa\u0327ade"),
        *("10\u00a0000\u202f€", "\u3000全角"),
    ],
    ids=["lines", "scripts", "combining", "narrow spaces", "wide spaces"],
)
def test_text_reaches_a_terminal_as_it_is(monkeypatch, text):
    assert shown_by(monkeypatch, text) == text


@settings(max_examples=50)
@given(st.text())
def test_what_is_piped_on_is_left_as_it_is(text):
    assert printable(text) == text
