r"""Print to the terminal, with control characters escaped.

A model's text, a daemon's message or a file name may contain characters that move the
cursor, start a line that imitates one of this program, or reverse the text direction.
``escape`` replaces every such character (``\x1b``). Messages for people are printed with
``print_stderr`` and ``print_line``, which always escape; results with ``print_text`` and
``print_json``, which escape only if stdout is a terminal, and are exact otherwise. Nothing
else in this package prints (``tests/architecture/test_terminal.py``).
"""

import argparse
import json
import logging
import os
import re
import sys
import threading
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, NoReturn

_CONTROL_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (among them the bidirectional controls), lone
surrogates (how bytes that are not UTF-8 are decoded), and line separators."""
_PROSE: Final = frozenset("\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}")
"""Characters of these categories that multi-line texts keep: writing systems and emoji need
the joiners, which do not affect the terminal."""
_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
).union(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Letters and marks without a visible glyph: a name with one of them would look like
another name, or like two."""
_CLEAR_LINE: Final = "\r\x1b[2K"
_ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Another buffer of the terminal, without a cursor, and without lines that are wrapped."""
_LEAVE_SCREEN: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_TO_END_OF_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_DRAWING: Final = re.compile(r"(\x1b\[(?:[0-9;]*m|[0-9]*A|J|\?2004h)|\r(?=\n|\x1b))")
"""The sequences that drawn lines may have."""
_INDENT: Final = "  "
"""Before every line of a traceback, so that the text of an exception cannot imitate a
message of this program."""


class StdoutError(Exception):
    """The result of a command cannot be printed; the message is one line."""


def escape(text: str, *, is_prose: bool = False) -> str:
    """Escape every character that could control a terminal, as in Python's ``repr``.

    Args:
        text: from anywhere.
        is_prose: whether to keep newlines, tabs and all spaces. Otherwise the result is one
            line, and invisible characters are escaped, too.
    """
    is_visible = is_prose or text.isascii() or _INVISIBLE.isdisjoint(text)
    if is_visible and text.isprintable():  # nearly always
        return text
    is_kept = _is_prose if is_prose else _is_visible
    return "".join(char if is_kept(char) else _escape_char(char) for char in text)


def escape_json(text: str) -> str:
    """Escape the same characters as JSON does, so that it decodes to the same value."""
    if text.isprintable():
        return text
    return "".join(
        json.dumps(char)[1:-1] if _is_control(char) and char not in "\n\t" else char
        for char in text
    )


def _is_visible(char: str) -> bool:
    return char.isprintable() and char not in _INVISIBLE


def _escape_char(char: str) -> str:
    return ascii(char)[1:-1]


def _is_prose(char: str) -> bool:
    return char in _PROSE or not _is_control(char)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in _CONTROL_CATEGORIES


# --- messages for people ----------------------------------------------------------------


def print_stderr(text: str) -> None:
    """Print a line on stderr; ignore a closed or broken stderr."""
    _print_to_stderr(f"{escape(text)}\n")


def print_line(text: str) -> None:
    """Print a line for people on stdout.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: the reader has closed the pipe.
    """
    _print_to_stdout(f"{escape(text)}\n")


def overwrite_line(text: str) -> None:
    """Replace the current line of the terminal, and leave the cursor in it."""
    _print_to_stderr(f"{_CLEAR_LINE}{escape(text)}")


def stderr_is_terminal() -> bool:
    """Tell whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


# --- the whole screen -------------------------------------------------------------------


class Style(Enum):
    """How a line of a screen looks."""

    PLAIN = ""
    TITLE = "7"
    HEAD = "1"
    FAINT = "2"
    BAD = "31;1"


class Line(NamedTuple):
    """A line of a screen."""

    text: str
    style: Style = Style.PLAIN


def has_colours() -> bool:
    """Tell whether lines may be styled: not where ``NO_COLOR`` is set, or dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def whole_screen() -> Iterator[Callable[[Sequence[Line]], None]]:
    """Take the whole screen of the terminal while inside; what was there comes back.

    Yields a function that shows lines, each of which has to fit the terminal's width.

    Raises:
        StdoutError: it cannot be printed.
    """
    is_styled = has_colours()

    def show(lines: Sequence[Line]) -> None:
        texts = [_styled(line) if is_styled else escape(line.text) for line in lines]
        *others, last = texts or [""]
        others = [f"{_CLEAR_TO_END_OF_LINE}{text}\r\n" for text in others]
        # cleared before it is written: after its last cell, that cell would be cleared
        _print_to_stdout("".join([_HOME, *others, _CLEAR_BELOW, last]))

    _print_to_stdout(_ENTER_SCREEN)
    try:
        yield show
    finally:
        _print_to_stdout(_LEAVE_SCREEN)


def _styled(line: Line) -> str:
    text = escape(line.text)
    codes = line.style.value
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


# --- results ----------------------------------------------------------------------------


def print_text(text: str) -> None:
    """Print a part of a text on stdout and flush it; exactly, if that is not a terminal.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: the reader has closed the pipe.
    """
    _print_to_stdout(escape(text, is_prose=True) if _stdout_is_terminal() else text)


def print_styled(text: str) -> None:
    r"""Print lines that a program has drawn on the terminal, and flush them.

    Of the terminal's own sequences those pass that set colours and the like, move the cursor
    up, return it, clear what is below it, or have pastes marked. All other control characters
    are escaped.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: the reader has closed the pipe.
    """
    parts = _DRAWING.split(text)
    parts[::2] = [escape(part, is_prose=True) for part in parts[::2]]
    _print_to_stdout("".join(parts))


def print_json(text: str | bytes) -> None:
    """Print a line of JSON on stdout and flush it; exactly, if that is not a terminal.

    Args:
        text: with or without its newline. Bytes that are not UTF-8 are replaced.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: the reader has closed the pipe.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    text = text.removesuffix("\n")
    shown = escape_json(text) if _stdout_is_terminal() else text
    _print_to_stdout(f"{shown}\n")


def json_safe(text: str) -> str:
    """Make a text that JSON can hold: escape bytes that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


# --- failures ---------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Argument parser that escapes its error messages."""

    def error(self, message: str) -> NoReturn:
        """Print an error message, which may quote arguments, and end the process."""
        super().error(escape(message))


def print_traceback(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Print a traceback; for ``sys.excepthook``."""
    for line in "".join(traceback.format_exception(kind, error, trace)).split("\n"):
        if line:
            print_stderr(_INDENT + line)


class StderrHandler(logging.Handler):
    """Prints records of libraries on stderr if no logging is configured."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record in one line."""
        print_stderr(record.getMessage())


@contextmanager
def safe_tracebacks() -> Iterator[None]:
    """Print with ``print_stderr`` what Python itself would print on stderr.

    Inside the ``with`` block: tracebacks of threads and of finalizers, warnings, and log
    records of libraries. For good: the traceback of an exception that ends the process.
    """
    sys.excepthook = print_traceback
    before = (threading.excepthook, sys.unraisablehook, warnings.showwarning)
    last_resort, logging.lastResort = logging.lastResort, StderrHandler(logging.WARNING)
    threading.excepthook = _print_hook_args
    sys.unraisablehook = _print_hook_args
    warnings.showwarning = _print_warning
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook, warnings.showwarning = before
        logging.lastResort = last_resort


def _print_hook_args(args: "threading.ExceptHookArgs | sys.UnraisableHookArgs") -> None:
    print_traceback(args.exc_type, args.exc_value, args.exc_traceback)


def _print_warning(
    message: Warning | str, category: type[Warning], *_args: object, **_kwargs: object
) -> None:
    print_stderr(f"{category.__name__}: {message}")


def close_stderr() -> None:
    """Close stderr, so that nothing more is printed."""
    if sys.stderr is not None:
        sys.stderr.close()


# --- the streams ------------------------------------------------------------------------


def _stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _print_to_stderr(text: str) -> None:
    if sys.stderr is not None:  # print(file=None) would print to stdout
        with suppress(OSError):
            print(text, end="", file=sys.stderr, flush=True)  # noqa: T201  # only here


def _print_to_stdout(text: str) -> None:
    if sys.stdout is None:
        raise StdoutError("stdout: closed")
    try:
        text = _encodable(text, sys.stdout.encoding)
        print(text, end="", flush=True)  # noqa: T201  # only here
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_stdout()
        raise StdoutError(f"stdout: {error.strerror}") from error


def _encodable(text: str, encoding: str | None) -> str:
    """Escape the characters that the stream's encoding lacks."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _discard_stdout() -> None:
    """Redirect stdout to the null device, or Python would retry the write at exit."""
    with suppress(OSError):  # stdout may lack a descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
