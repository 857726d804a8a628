import io
import os
import sys

import pytest

from inferd.cli.console import EXIT_ERROR, CommandError, ProgressLine, fail, stdin


def test_a_stdin_that_was_closed_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandError, match="stdin: closed"):
        stdin()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommandError("no daemon"), "error: no daemon\n"),
        (
            CommandError("no daemon", hint="inferd serve"),
            "error: no daemon\n\nhint: inferd serve\n",
        ),
        (CommandError("a\nhint: \x1b[2J"), "error: a\\nhint: \\x1b[2J\n"),
    ],
)
def test_an_error_is_one_line_and_perhaps_a_hint(capsys, error, words):
    assert fail(error) == EXIT_ERROR == 2
    assert capsys.readouterr() == ("", words)


# --- the progress line --------------------------------------------------------------

CLEAR = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """What is on a terminal of twenty columns after a ticker was used there."""

    def use(act, *, stderr=None, **how):
        terminal = stderr or Terminal()
        size = os.terminal_size((20, 5))
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            patch.setattr("shutil.get_terminal_size", lambda: size)
            act(ProgressLine(**how))
        return terminal.getvalue()

    return use


def tick(ticker):
    ticker.show("first")
    ticker.show("second")
    ticker.clear()
    ticker.clear()


def test_a_text_is_written_over_the_last_one_and_cleared_once(shown):
    assert shown(tick) == f"{CLEAR}first{CLEAR}second{CLEAR}"


def test_what_was_never_shown_is_not_cleared(shown):
    assert shown(ProgressLine.clear) == ""


def test_of_a_long_text_the_end_is_shown_on_one_line(shown):
    text = "a long text\nof which the end is news"
    assert shown(lambda ticker: ticker.show(text)) == f"{CLEAR}ich the end is news"


def test_a_terminal_is_not_steered(shown):
    steered = shown(lambda ticker: ticker.show("a\x1b[31mb"))
    assert steered == f"{CLEAR}a\\x1b[31mb"


def test_nothing_is_shown_without_a_terminal(shown):
    assert shown(tick, stderr=io.StringIO()) == ""
    assert shown(tick, is_wanted=False) == ""


def test_a_closed_stderr_shows_nothing(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", None)
        tick(ProgressLine())
