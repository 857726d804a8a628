"""A record of the log as a line: JSON for programs, with its priority for a journal."""

import json
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from inferd.limits import LOG_LINE_BYTES, LOG_TRACEBACK_FRAMES
from inferd.server.redaction import Record, redact
from inferd.terminal import visible

HEAD: Final = ("t", "level", "component", "msg")
"""What every line begins with, and all that is left of one that is too long."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

PRIORITIES: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}
"""syslog's numbers, as journald reads them between angle brackets."""


def record_of(
    component: str, level: str, msg: str, fields: Mapping[str, object]
) -> Record:
    """Put a record together, as of now.

    Args:
        component: the part of the daemon that says it.
        level: as structlog calls it.
        msg: the event's name.
        fields: what more there is to say; an ``exc_info`` becomes ``exception``.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    head: Record = {
        "t": now.replace("+00:00", "Z"),
        "level": "warn" if level == "warning" else level,
        "component": component,
    }
    rest = {name: fields[name] for name in fields if name not in (*HEAD, "exc_info")}
    if exception := _exception_of(fields.get("exc_info")):
        rest["exception"] = exception
    return head | redact({"msg": msg, **rest})


def as_json(record: Record) -> bytes:
    """Write a record as one line of JSON of bounded length, with its newline."""
    line = _dump(record)
    if len(line) <= LOG_LINE_BYTES:
        return line
    rest: Record = {name: record[name] for name in HEAD if name in record}
    return _dump({**rest, "line_bytes": len(line)})


def for_journal(record: Record) -> bytes:
    """Write a record as journald reads it: the priority, then JSON."""
    return b"<%d>" % PRIORITIES.get(str(record["level"]), 6) + as_json(record)


class ForPeople:
    """Writes records as lines for people on a terminal."""

    def __init__(self, *, colours: bool) -> None:
        self._render = structlog.dev.ConsoleRenderer(colors=colours)

    def __call__(self, record: Record) -> bytes:
        """Write one; no value can move the cursor or begin a line."""
        names = {"t": "timestamp", "component": "logger", "msg": "event"}
        event = {
            visible(names.get(name, name)): _shown(name, value)
            for name, value in record.items()
        }
        if event["level"] == "warn":
            event["level"] = "warning"
        return f"{self._render(None, '', event)}\n".encode("utf-8", "replace")


def _dump(record: Record) -> bytes:
    """Write JSON in which nothing ends a line, or moves a cursor, for any reader."""
    text = _ENCODER.encode(record).encode("utf-8", "replace").decode()
    if not text.isprintable():  # else the whole of it is plain, as nearly always
        text = "".join(each if each.isprintable() else _escape(each) for each in text)
    return text.encode() + b"\n"


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _shown(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    if name == "exception":  # indented, so that none of its lines looks like an event
        return "\n".join(f"  {visible(each)}" for each in value.rstrip().split("\n"))
    return visible(value)


def _exception_of(exc_info: object) -> str:
    """Write the innermost frames of a traceback, and what was raised."""
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
