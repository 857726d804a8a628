"""The newest lines of the log, for operators who look at them from elsewhere."""

from collections import deque

from inferd.limits.log import LOG_TAIL_LINE_BYTES, LOG_TAIL_LINES
from inferd.server.telemetry.log_format import as_json
from inferd.server.telemetry.redaction import Record


class LogTail:
    """Keeps the newest records; they become lines when somebody asks.

    Bounds:
        Memory: ``LOG_TAIL_LINES`` records, each bounded as a line of the log is.
    """

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=LOG_TAIL_LINES)

    def write(self, record: Record) -> None:
        """Keep a record."""
        self._records.append(record)

    def lines(self) -> list[str]:
        """Return the lines as the log's file has them, the oldest first.

        Bounds:
            A line of over ``LOG_TAIL_LINE_BYTES`` has its first fields alone.
        """
        lines = (as_json(each, LOG_TAIL_LINE_BYTES) for each in [*self._records])
        return [line.decode().rstrip("\n") for line in lines]
