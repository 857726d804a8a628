"""The log of the bridge: JSON lines on stderr, without content.

Its fields are chosen here, and none has a client's text: a request's route is that of the
table, its principal the name that the operator gave a token.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Final

from inferd.service.log_writer import STDERR, BackgroundWriter, FdWriter

Value = str | int | float | None
COMPONENT: Final = "bridge"


class BridgeLog:
    """Makes the lines.

    Args:
        write: takes a line with its newline, and does not block.
        component: whose log it is.
    """

    def __init__(
        self, write: Callable[[bytes], None], component: str = COMPONENT
    ) -> None:
        self._write = write
        self._component = component

    def write(self, level: str, msg: str, **fields: Value) -> None:
        """Write a line; fields that are ``None`` are left out."""
        self._write(_line(level, msg, fields, self._component))


@contextmanager
def stderr_log(component: str = COMPONENT) -> Iterator[BridgeLog]:
    """Give a log on stderr, which is written in a thread: if nobody reads it, nobody waits.

    Args:
        component: whose log it is.

    Leaving the block writes what is queued, for as long as ``BackgroundWriter.close`` takes at
    most.
    """
    writer = BackgroundWriter(FdWriter(STDERR), report=_dropped)
    with closing(writer):
        yield BridgeLog(writer.write, component)


def _dropped(n_lines: int) -> bytes:
    return _line("warn", "log.dropped", {"lines": n_lines})


def _line(
    level: str, msg: str, fields: dict[str, Value], component: str = COMPONENT
) -> bytes:
    """Write a line in ASCII: nothing in it can control a terminal."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    given = {key: value for key, value in fields.items() if value is not None}
    record = {"t": now, "level": level, "component": component, "msg": msg, **given}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def kind_of(error: BaseException) -> str:
    """Name an exception and where it was raised, without its text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    )
    return f"{type(error).__name__}{where}"
