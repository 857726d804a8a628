"""Log records as lines: JSON, JSON with a priority for journald, or console text."""

import json
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from inferd.errors import ErrorCode
from inferd.limits.log import LOG_LINE_BYTES, LOG_TRACEBACK_FRAMES
from inferd.paths import client_directories
from inferd.server.telemetry.redaction import Record, redact
from inferd.surfaces import SURFACES, Surface
from inferd.terminal import escape

HEAD_FIELDS: Final = ("t", "level", "component", "msg")
"""The fields that every line begins with; a line that is too long keeps only these."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

CONSOLE_FIELDS: Final = frozenset({"sockets"})
"""Fields that only a terminal shows."""

REPEATED_EVENT: Final = "connection_accepted"
"""End of the names of events that a terminal does not show: the lines of requests name the
peer, too."""

PEER_PARTS: Final = frozenset({"peer_uid", "peer_pid", "wire_version"})
"""Fields that repeat parts of ``peer`` and of the event's name."""

STOPPING: Final = (
    "daemon.draining: waits up to {drain_s:g} s for running and queued requests; "
    "press ^C again to stop at once"
)

REASONS: Final[Mapping[str, str]] = {
    ErrorCode.QUEUE_FULL: "too many requests or connections; retry later",
    ErrorCode.BACKEND_UNAVAILABLE: "no backend can serve it now, or its worker died",
    ErrorCode.INVALID_REQUEST: "not valid; the client got the details",
    ErrorCode.FRAME_TOO_LARGE: "the line or its attachments are too large",
    ErrorCode.INTERNAL: "a bug, or a misbehaving backend",
    ErrorCode.EMBED_UNSUPPORTED: "no backend makes embeddings",
    ErrorCode.RERANK_UNSUPPORTED: "no backend reranks documents",
    ErrorCode.ATTACHMENT_UNSUPPORTED: "no backend accepts such attachments",
    ErrorCode.DEADLINE_EXCEEDED: "the deadline of the request has passed",
    ErrorCode.CANCELLED: "cancelled on request",
    ErrorCode.PERMISSION_DENIED: "the user may not use this socket",
    ErrorCode.MODEL_NOT_FOUND: "no model of that name can do what is asked",
}
"""Error code to its meaning. The message of an error may quote the client's text, which no
log has."""

PRIORITIES: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}
"""syslog priorities, which journald reads between angle brackets."""


def record_of(
    component: str, level: str, msg: str, fields: Mapping[str, object]
) -> Record:
    """Make a redacted record with the present time.

    Args:
        component: the part of the daemon that logs the event.
        level: as structlog names it.
        msg: the event's name.
        fields: the event's other fields; an ``exc_info`` becomes ``exception``.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    head: Record = {
        "t": now.replace("+00:00", "Z"),
        "level": "warn" if level == "warning" else level,
        "component": component,
    }
    rest = {
        name: fields[name] for name in fields if name not in (*HEAD_FIELDS, "exc_info")
    }
    if exception := _exception_of(fields.get("exc_info")):
        rest["exception"] = exception
    return head | redact({"msg": msg, **rest})


def as_json(record: Record, max_bytes: int = LOG_LINE_BYTES) -> bytes:
    """Encode a record as one line of JSON of bounded length, with its newline."""
    record = {name: record[name] for name in record if name not in CONSOLE_FIELDS}
    line = _dump(record)
    if len(line) <= max_bytes:
        return line
    rest: Record = {name: record[name] for name in HEAD_FIELDS if name in record}
    return _dump({**rest, "line_bytes": len(line)})


def as_journal(record: Record) -> bytes:
    """Encode a record for journald: the priority, then JSON."""
    return b"<%d>" % PRIORITIES.get(str(record["level"]), 6) + as_json(record)


class ConsoleFormat:
    """Line format for a terminal: it has fewer lines than the format for programs.

    Args:
        colours: whether to use colours.
        program: how to call this program in the command to try.
        surfaces: have the commands to try.
    """

    def __init__(
        self,
        *,
        colours: bool,
        program: str = "inferd",
        surfaces: Sequence[Surface] = SURFACES,
    ) -> None:
        self._render = structlog.dev.ConsoleRenderer(colors=colours)
        self._program = program
        self._surfaces = surfaces

    def __call__(self, record: Record) -> bytes:
        """Format a record; no value can move the cursor or start a line.

        Returns:
            The line, or nothing for an event that another one repeats.
        """
        if str(record["msg"]).endswith(REPEATED_EVENT):
            return b""
        names = {"t": "timestamp", "component": "logger", "msg": "event"}
        event = {
            escape(names.get(name, name)): _shown(name, value)
            for name, value in self._for_people(record).items()
        }
        if event["level"] == "warn":
            event["level"] = "warning"
        return f"{self._render(None, '', event)}\n".encode("utf-8", "replace")

    def _for_people(self, record: Record) -> Record:
        """Leave out what other fields say, and explain what people may not know."""
        head: Record = {name: record[name] for name in HEAD_FIELDS if name in record}
        match record:
            case {"msg": "daemon.ready", "directory": str(at), "sockets": [*sockets]}:
                return head | {"msg": self._welcome(at, list(map(str, sockets)))}
            case {"msg": "daemon.draining", "drain_s": float() | int() as drain_s}:
                return head | {"msg": STOPPING.format(drain_s=drain_s)}
            case _:
                pass
        repeated = PEER_PARTS if "peer" in record else frozenset()
        fields = {name: record[name] for name in record if name not in repeated}
        if (reason := REASONS.get(str(record.get("code")))) is not None:
            fields.setdefault("reason", reason)
        return fields

    def _welcome(self, directory: str, sockets: Sequence[str]) -> str:
        words = [self._program, self._command_to_try(sockets)]
        if Path(directory) not in client_directories():
            words += ["--directory", shlex.quote(directory)]
        served = ", ".join(sockets) or "no inference socket"
        return f"daemon.ready: {served} in {directory}; try: {' '.join(words)}"

    def _command_to_try(self, sockets: Sequence[str]) -> str:
        """Choose a command for a served socket; first one that can be run as it is."""
        served = [each for each in self._surfaces if each.socket in sockets]
        examples = [each.example for each in served if each.example]
        examples.sort(key=lambda example: example != example.lower())
        return examples[0] if examples else "status"


def _dump(record: Record) -> bytes:
    """Encode JSON in which all unprintable characters are escaped, and add a newline."""
    text = _ENCODER.encode(record).encode("utf-8", "replace").decode()
    if not text.isprintable():  # rare: nearly all lines are printable
        text = "".join(each if each.isprintable() else _escape(each) for each in text)
    return text.encode() + b"\n"


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _shown(name: str, value: object) -> object:
    if name == "exception":  # indented, so that no line of it looks like an event
        lines = str(value).rstrip().split("\n")
        return "\n".join(f"  {escape(each)}" for each in lines)
    return escape(value) if isinstance(value, str) else value


def _exception_of(exc_info: object) -> str:
    """Format the innermost frames of a traceback, and the exception."""
    match exc_info:
        case BaseException():
            error: BaseException | None = exc_info
        case (_, BaseException() as error, _):
            pass
        case True:
            error = sys.exception()
        case _:
            return ""
    if error is None:
        return ""
    return "".join(traceback.format_exception(error, limit=-LOG_TRACEBACK_FRAMES))
