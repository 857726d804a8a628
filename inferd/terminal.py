r"""The one way to the terminal: what came from elsewhere is shown there, and steers nothing.

A model's text, a daemon's message, a file's name may hold what moves a cursor, begins a
line that looks like ours, or turns the direction of what follows. Each such character is
written out (``\x1b``), by ``visible`` alone. What a command says goes through ``say`` and
``line``, always so; what it was asked for, through ``prose`` and ``json_line``, which leave
it byte for byte as it is where stdout is no terminal. Nothing else in this package prints
(``tests/architecture/test_terminal.py``).
"""

import argparse
import json
import logging
import os
import sys
import threading
import traceback
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, NoReturn

_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories: control, format (with all that turn directions), lone surrogates (bytes that
are no UTF-8 are read as such), and what some programs take for the end of a line."""
_PROSE: Final = frozenset("\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}")
"""What texts of several lines may have of these: writing systems and emoji need the last
two, which move nothing."""
_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
).union(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Letters and marks that Unicode has no space for and nothing shows: a name with one of
them would read as another name, or as two."""
_CLEAR_LINE: Final = "\r\x1b[2K"
_INDENT: Final = "  "
"""Before each line of a traceback, so that no exception's text begins a line of ours."""


class StdoutError(Exception):
    """What a command was asked for cannot be printed; one line."""


def visible(text: str, *, is_prose: bool = False) -> str:
    """Write out each character that could steer a terminal, as Python would.

    Args:
        text: from anywhere.
        is_prose: whether it may have several lines, tabs and any space. Else it becomes one
            line, in which all that is not seen is written out, too.
    """
    is_seen = is_prose or text.isascii() or _UNSEEN.isdisjoint(text)
    if is_seen and text.isprintable():  # as nearly always
        return text
    is_kept = _is_prose if is_prose else _is_seen
    return "".join(each if is_kept(each) else _written(each) for each in text)


def visible_json(text: str) -> str:
    """Write out the same characters as JSON has them; JSON stays the same JSON."""
    if text.isprintable():
        return text
    return "".join(
        json.dumps(each)[1:-1] if _steers(each) and each not in "\n\t" else each
        for each in text
    )


def _is_seen(char: str) -> bool:
    return char.isprintable() and char not in _UNSEEN


def _written(char: str) -> str:
    return ascii(char)[1:-1]


def _is_prose(char: str) -> bool:
    return char in _PROSE or not _steers(char)


def _steers(char: str) -> bool:
    return unicodedata.category(char) in _STEERING


# --- words for people -------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line on stderr, if anybody can read it."""
    _print_to_stderr(f"{visible(text)}\n")


def line(text: str) -> None:
    """Print a line on stdout that is for people.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: whoever read it has had enough.
    """
    _print_to_stdout(f"{visible(text)}\n")


def overwrite(text: str) -> None:
    """Write over the last line of the terminal, leaving the cursor in it."""
    _print_to_stderr(f"{_CLEAR_LINE}{visible(text)}")


def is_watched() -> bool:
    """Tell whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


# --- what a command was asked for -------------------------------------------------------


def prose(text: str) -> None:
    """Print a part of a text on stdout, at once; exactly, if that is no terminal.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: whoever read it has had enough.
    """
    _print_to_stdout(visible(text, is_prose=True) if _stdout_is_terminal() else text)


def json_line(text: str | bytes) -> None:
    """Print a line of JSON on stdout, at once; exactly, if that is no terminal.

    Args:
        text: with or without its newline. Bytes that are no UTF-8 are replaced.

    Raises:
        StdoutError: it cannot be printed.
        BrokenPipeError: whoever read it has had enough.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    text = text.removesuffix("\n")
    shown = visible_json(text) if _stdout_is_terminal() else text
    _print_to_stdout(f"{shown}\n")


def text_of_json(text: str) -> str:
    """Make a text that JSON can hold: bytes that are no UTF-8 are written out."""
    return text.encode(errors="backslashreplace").decode()


# --- failures ---------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Reads a command line; what is wrong with it is told in one line."""

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong, which quotes arguments, and end the process."""
        super().error(visible(message))


def tell_bug(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Print a traceback; an argument of ``sys.excepthook``."""
    for each in "".join(traceback.format_exception(kind, error, trace)).split("\n"):
        if each:
            say(_INDENT + each)


class SayingHandler(logging.Handler):
    """Says what libraries log where nobody has configured a log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line."""
        say(record.getMessage())


@contextmanager
def telling_bugs() -> Iterator[None]:
    """Have what Python itself would print on stderr printed by ``say``.

    Tracebacks of threads and of what is collected, warnings, and what libraries log: while
    inside. The traceback of what ends the process, which comes out of here first: for good.
    """
    sys.excepthook = tell_bug
    usual = (threading.excepthook, sys.unraisablehook, warnings.showwarning)
    last_resort, logging.lastResort = logging.lastResort, SayingHandler(logging.WARNING)
    threading.excepthook = _tell_args
    sys.unraisablehook = _tell_args
    warnings.showwarning = _tell_warning
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook, warnings.showwarning = usual
        logging.lastResort = last_resort


def _tell_args(args: "threading.ExceptHookArgs | sys.UnraisableHookArgs") -> None:
    tell_bug(args.exc_type, args.exc_value, args.exc_traceback)


def _tell_warning(
    message: Warning | str, category: type[Warning], *_place: object, **_more: object
) -> None:
    say(f"{category.__name__}: {message}")


def leave_stderr() -> None:
    """Print nothing more."""
    if sys.stderr is not None:
        sys.stderr.close()


# --- the streams ------------------------------------------------------------------------


def _stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _print_to_stderr(text: str) -> None:
    if sys.stderr is not None:  # with which they would be printed to stdout
        with suppress(OSError):
            print(text, end="", file=sys.stderr, flush=True)  # noqa: T201  # the place


def _print_to_stdout(text: str) -> None:
    if sys.stdout is None:
        raise StdoutError("stdout: closed")
    try:
        text = _encodable(text, sys.stdout.encoding)
        print(text, end="", flush=True)  # noqa: T201  # the place
    except BrokenPipeError:
        raise
    except OSError as error:
        _give_up_stdout()
        raise StdoutError(f"stdout: {error.strerror}") from error


def _encodable(text: str, encoding: str | None) -> str:
    """Write out what the stream's encoding has not."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _give_up_stdout() -> None:
    """Have what could not be written go nowhere, or Python tries again at its end."""
    with suppress(OSError):  # no file of the system's
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
