"""One answer: a thread reads it, and the main thread draws it and hears Ctrl-C."""

import queue
import signal
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn, Self

from inferd.client.core.answer import Event, FinalAnswer
from inferd.client.library.streams import ChatStream

DRAW_S: Final = 0.05
"""Seconds between two looks at what has come: more would be seen as jerks, less as nothing."""
_ENDED_BY: Final = 128
"""Added to the number of a signal, it is the exit code of a command that it has ended."""
_INPUT_FLAGS: Final = 0
_LOCAL_FLAGS: Final = 3
"""Places of the flags in what ``tcgetattr`` gives."""


@dataclass(frozen=True)
class AnswerEnd:
    """How an answer ended."""

    answer: FinalAnswer | None = None
    error: Exception | None = None
    """Why there is no whole answer."""


def end_by_signals() -> None:
    """Have the end of the terminal, and SIGTERM, end the command as an exception does.

    So the terminal is left as it was, and a daemon that was started for a chat is stopped.
    """
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_ENDED_BY + number)


class Interrupts:
    """Counts Ctrl-C inside the ``with`` block, where it ends nothing by itself."""

    def __init__(self) -> None:
        self.n_pressed = 0
        self._before = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGINT, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.n_pressed += 1


def follow(
    stream: ChatStream,
    show: Callable[[Sequence[Event]], None],
    stop: Callable[[int], None],
    interrupts: Interrupts,
) -> AnswerEnd:
    """Read an answer to its end.

    Args:
        stream: of the answer.
        show: takes the parts that have come since the last call, perhaps none.
        stop: called at each look after Ctrl-C, with how often that was pressed.
        interrupts: counts that.
    """
    parts: queue.SimpleQueue[Event | AnswerEnd] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(stream, parts.put), daemon=True)
    reader.start()
    while True:
        events, end = _taken(parts)
        show(events)
        if end is not None:
            reader.join()
            return end
        if interrupts.n_pressed:
            stop(interrupts.n_pressed)


def _read(stream: ChatStream, put: Callable[[Event | AnswerEnd], None]) -> None:
    try:
        with stream:
            for event in stream.events():
                put(event)
            end = AnswerEnd(stream.final())
    except Exception as error:  # noqa: BLE001  # told in the main thread
        end = AnswerEnd(error=error)
    put(end)


def _taken(
    parts: "queue.SimpleQueue[Event | AnswerEnd]",
) -> tuple[list[Event], AnswerEnd | None]:
    """Wait for something, but not for long; return all that has come."""
    events: list[Event] = []
    with suppress(queue.Empty):
        part = parts.get(timeout=DRAW_S)
        while not isinstance(part, AnswerEnd):
            events.append(part)
            part = parts.get_nowait()
        return events, part
    return events, None


@contextmanager
def silent_keys(fd: int) -> Iterator[None]:
    """Keep keys from being shown inside the ``with`` block; the next prompt reads them.

    It reads them as they are: Enter is no new line then, and Ctrl-D does not vanish.

    Args:
        fd: of the terminal.
    """
    before = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    changed[_INPUT_FLAGS] &= ~termios.ICRNL
    changed[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
