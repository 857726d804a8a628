import errno
import io
import json
import logging
import sys
import threading
import unicodedata
import warnings

import pytest
from hypothesis import given, settings, strategies as st

from inferd import terminal
from inferd.terminal import (
    Parser,
    StdoutError,
    escape,
    escape_json,
    json_safe,
    overwrite_line,
    print_json,
    print_line,
    print_stderr,
    print_text,
    print_traceback,
    safe_tracebacks,
)
from tests.cases import each_case

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
TURNS = list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
HIDDEN = list("\u00ad\u180e\u200b\u2060\ufeff\U000e0041\u2028\u2029\ud800\udcff")
BLANK = list(
    "\u034f\u115f\u1160\u17b4\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100"
)
ANY = st.text(st.characters() | st.sampled_from([*CONTROLS, *TURNS, *HIDDEN, *BLANK]))
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Full(io.StringIO):
    """A file that nothing more fits into."""

    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


class Unread(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, _):
        raise BrokenPipeError


def printed(monkeypatch, name, print_, *, on=Terminal):
    with monkeypatch.context() as patch:
        patch.setattr(sys, name, stream := on())
        print_()
        return stream.getvalue()


def steering(text):
    return {char for char in text if unicodedata.category(char) in STEERING}


# --- what is written out ----------------------------------------------------------------


@each_case("char", [*CONTROLS, *TURNS, *HIDDEN])
def test_what_steers_is_written_out_as_python_has_it(char):
    assert escape(f"a{char}b") == f"a{ascii(char)[1:-1]}b"


@each_case("char", BLANK, ids=ascii)
def test_invisible_characters_are_escaped_in_lines_and_kept_in_prose(char):
    assert escape(f"a{char}b") == f"a{ascii(char)[1:-1]}b"
    assert escape(f"é{char}b") == f"é{ascii(char)[1:-1]}b"
    assert escape(f"a{char}b\x1b", is_prose=True) == f"a{char}b\\x1b"


@given(ANY)
def test_a_line_is_one_line_in_which_nothing_steers_or_hides(text):
    shown = escape(text)
    assert shown.isprintable()
    assert not set(BLANK) & set(shown)
    assert escape(shown) == shown


@given(ANY)
def test_prose_has_its_lines_and_tabs_and_joiners_and_nothing_more_that_steers(text):
    shown = escape(text, is_prose=True)
    assert steering(shown) <= set("\n\t\u200c\u200d")
    assert shown.count("\n") == text.count("\n")


@given(st.text(st.characters(exclude_characters="\\") | st.sampled_from(CONTROLS)))
def test_what_is_written_out_can_be_read_back(text):
    shown = escape(text)
    back = shown.encode("latin-1", "backslashreplace").decode("unicode_escape")
    assert back.encode(errors="surrogatepass") == text.encode(errors="surrogatepass")


@each_case(
    "text",
    [
        *("Grüße, 東京, שלום, 😀", "fa\u0327ade", "10\u00a0000\u202f€", "\u3000全角"),
        *("\ue0b0\U0001fae8", "two\nlines\tand a tab", "a\u200cb👨\u200d👩"),
    ],
    ids=[
        *("scripts", "combining", "narrow spaces", "wide spaces", "private, new"),
        *("lines", "joiners"),
    ],
)
def test_prose_that_steers_nothing_is_left_as_it_is(text):
    assert escape(text, is_prose=True) == text
    assert escape(text).isprintable()


@given(st.recursive(ANY.filter(str.isprintable) | st.none(), st.lists) | ANY)
def test_json_stays_the_same_json(value):
    value = value if not isinstance(value, str) else json_safe(value)
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(escape_json(text)) == value
    assert steering(escape_json(text)) == set()


def test_a_name_that_is_no_text_is_written_out_for_json():
    assert json_safe("a\udcffü") == "a\\udcffü"


# --- words for people -------------------------------------------------------------------


@each_case("on", [Terminal, io.StringIO])
@each_case(("print_", "name"), [(print_stderr, "stderr"), (print_line, "stdout")])
@settings(max_examples=50)
@given(text=ANY)
def test_messages_are_one_line_on_any_stream(print_, name, on, text):
    with pytest.MonkeyPatch.context() as patch:
        shown = printed(patch, name, lambda: print_(text), on=on)
    assert shown == f"{escape(text)}\n"


@pytest.mark.parametrize("stderr", [Full, lambda: None])
def test_messages_to_a_closed_stderr_are_dropped(monkeypatch, capsys, stderr):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr())
        print_stderr("loading")
        assert not terminal.stderr_is_terminal()
    assert capsys.readouterr() == ("", "")


def test_a_line_is_written_over(monkeypatch):
    shown = printed(monkeypatch, "stderr", lambda: overwrite_line("a\x1b[31m\nb"))
    assert shown == "\r\x1b[2Ka\\x1b[31m\\nb"


# --- what was asked for -----------------------------------------------------------------


@settings(max_examples=50)
@given(ANY)
def test_results_are_exact_unless_on_a_terminal(text):
    with pytest.MonkeyPatch.context() as patch:
        assert printed(patch, "stdout", lambda: print_text(text), on=io.StringIO) == (
            json_safe(text)
        )
        shown = printed(patch, "stdout", lambda: print_text(text))
        assert shown == escape(text, is_prose=True)


def test_json_is_exact_but_on_a_terminal(monkeypatch):
    frame = '{"a":"\x9b\u202e\x7fü"}'.encode()
    piped = printed(monkeypatch, "stdout", lambda: print_json(frame), on=io.StringIO)
    assert piped.encode() == frame + b"\n"
    shown = printed(monkeypatch, "stdout", lambda: print_json(frame + b"\n"))
    assert shown == '{"a":"\\u009b\\u202e\\u007fü"}\n'


def test_a_frame_that_is_no_text_is_printed_all_the_same(monkeypatch):
    shown = printed(monkeypatch, "stdout", lambda: print_json(b'{"a":"\xff"}'))
    assert shown == '{"a":"\N{REPLACEMENT CHARACTER}"}\n'


def test_what_an_encoding_has_not_is_written_out(monkeypatch):
    with monkeypatch.context() as patch:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
        patch.setattr(sys, "stdout", stream)
        print_text("ü €")
        print_line("東")
    assert stream.buffer.getvalue() == "ü \\u20ac\\u6771\n".encode("latin-1")


@pytest.mark.parametrize("print_", [print_text, print_line, print_json])
@pytest.mark.parametrize(
    ("stdout", "told"),
    [(Full, "stdout: No space left on device"), (lambda: None, "stdout: closed")],
)
def test_what_cannot_be_printed_is_an_error(monkeypatch, print_, stdout, told):
    with monkeypatch.context() as patch, pytest.raises(StdoutError) as caught:
        patch.setattr(sys, "stdout", stdout())
        print_("answer")
    assert str(caught.value) == told


def test_a_closed_pipe_is_distinguished_from_an_error(monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(BrokenPipeError):
        patch.setattr(sys, "stdout", Unread())
        print_text("answer")


# --- failures ---------------------------------------------------------------------------


def test_a_wrong_argument_is_quoted_in_one_line(capsys):
    with pytest.raises(SystemExit):
        Parser(prog="x").parse_args(["a\x1b[2J\nerror: b"])
    *_, last = capsys.readouterr().err.splitlines()
    assert last == "x: error: unrecognized arguments: a\\x1b[2J\\nerror: b"


def test_no_line_of_a_traceback_looks_like_one_of_ours(capsys):
    error = ValueError("no\nerror: the daemon is gone\x1b[2J")
    print_traceback(type(error), error, None)
    stderr = capsys.readouterr().err
    assert "  error: the daemon is gone\\x1b[2J" in stderr.splitlines()
    assert all(each.startswith("  ") for each in stderr.splitlines())


def test_the_output_of_python_itself_is_escaped(capsys):
    class Collected:
        def __del__(self):
            raise ValueError("\x1b[2J collected")

    def fail():
        raise ValueError("\x1b[2J in a thread")

    usual = sys.excepthook, threading.excepthook, warnings.showwarning
    try:
        with safe_tracebacks(), warnings.catch_warnings():
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
            Collected()
            warnings.simplefilter("always")
            warnings.showwarning("\x1b[2J\nwarned", UserWarning, "file", 1)
            record = logging.makeLogRecord({"msg": "\x1b[2J\n%s", "args": ("logged",)})
            assert logging.lastResort is not None
            logging.lastResort.handle(record)
            assert sys.excepthook is print_traceback
        assert (threading.excepthook, warnings.showwarning) == usual[1:]
    finally:
        sys.excepthook = usual[0]
    lines = capsys.readouterr().err.split("\n")
    for told in ("in a thread", "collected"):
        assert f"  ValueError: \\x1b[2J {told}" in lines
    assert lines[-3:] == [
        "UserWarning: \\x1b[2J\\nwarned",
        "\\x1b[2J\\nlogged",
        "",
    ]
    assert "\x1b" not in "".join(lines)


def test_a_screen_is_styled_escaped_and_left_as_it_was(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(ZeroDivisionError), terminal.whole_screen() as show:
        capsys.readouterr()
        show([terminal.Line("a\x1b[2J", terminal.Style.HEAD), terminal.Line("b")])
        assert capsys.readouterr().out == (
            "\x1b[H\x1b[K\x1b[1ma\\x1b[2J\x1b[0m\r\n\x1b[Jb"
        )
        raise ZeroDivisionError
    assert capsys.readouterr().out.endswith("\x1b[?1049l")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.has_colours()
