import io
import os

import pytest

from inferd.cli.ticker import Ticker

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
            act(Ticker(**how))
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
    assert shown(Ticker.clear) == ""


def test_of_a_long_text_the_end_is_shown_on_one_line(shown):
    text = "a long text\nof which the end is news"
    assert shown(lambda ticker: ticker.show(text)) == f"{CLEAR}ich the end is news"


def test_a_terminal_is_not_steered(shown):
    steered = shown(lambda ticker: ticker.show("a\x1b[31mb"))
    assert steered == f"{CLEAR}a\\x1b[31mb"


def test_nothing_is_shown_where_nobody_looks(shown):
    assert shown(tick, stderr=io.StringIO()) == ""
    assert shown(tick, is_wanted=False) == ""


def test_a_closed_stderr_shows_nothing(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", None)
        tick(Ticker())
