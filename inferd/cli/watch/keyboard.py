"""Keys as they are pressed, and the signals of a terminal, for one who waits for both."""

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_MAX_KEYS: Final = 64
"""Bytes that are read of the keys at once; a paste is no command."""


class Keyboard(NamedTuple):
    """Descriptors to wait for: of keys, and of signals, which only have to wake."""

    keys: int
    signals: int

    def read(self) -> str:
        """Read the keys that were pressed; empty if there will be none.

        Keys that send several bytes, such as arrows, are left out.
        """
        data = os.read(self.keys, _MAX_KEYS)
        if data.startswith(b"\x1b"):
            return "\x1b"
        return data.decode("ascii", "ignore") or ("" if not data else "\x1b")

    def clear_signals(self) -> None:
        """Take what the signals have written."""
        os.read(self.signals, _MAX_KEYS)


@contextmanager
def raw_keys() -> Iterator[Keyboard]:
    """Read keys without a line's end while inside, and notice changes of the size.

    SIGTERM and SIGHUP end the block as an interrupt does, so that the terminal is left as
    it was.
    """
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handlers = {
        number: signal.signal(number, _interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
    wakes = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        tty.setcbreak(fd)
        yield Keyboard(fd, reading)
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        os.close(reading)
        os.close(writing)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
