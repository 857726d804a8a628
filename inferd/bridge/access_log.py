"""The log of the bridge: JSON lines on stderr, without content.

Its fields are chosen here, and none has a client's text: a request's route is that of the
table, its principal the name that the operator gave a token.
"""

import json
from datetime import UTC, datetime

import trio

from inferd.limits.bridge import LOG_LINES
from inferd.terminal import print_stderr

Value = str | int | float | None


class BridgeLog:
    """Writes lines in a thread, so that a stderr that nobody reads stops nobody.

    Bounds:
        Memory: ``LOG_LINES`` lines; further ones are counted and dropped.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._n_dropped = 0
        self._has_lines = trio.Event()

    def write(self, level: str, msg: str, **fields: Value) -> None:
        """Queue a line; fields that are ``None`` are left out."""
        if len(self._lines) >= LOG_LINES:
            self._n_dropped += 1
            return
        self._lines.append(_line(level, msg, fields))
        self._has_lines.set()

    async def run(self) -> None:
        """Write lines until cancelled."""
        while True:
            await self._has_lines.wait()
            await trio.to_thread.run_sync(self.flush, abandon_on_cancel=True)

    def flush(self) -> None:
        """Write what is queued."""
        self._has_lines = trio.Event()
        lines, self._lines = self._lines, []
        if self._n_dropped:
            dropped: dict[str, Value] = {"lines": self._n_dropped}
            self._n_dropped = 0
            lines.append(_line("warn", "log.dropped", dropped))
        for line in lines:
            print_stderr(line)


def _line(level: str, msg: str, fields: dict[str, Value]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    given = {key: value for key, value in fields.items() if value is not None}
    record = {"t": now, "level": level, "component": "bridge", "msg": msg, **given}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


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
