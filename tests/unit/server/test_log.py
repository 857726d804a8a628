import json
import logging
import os
import threading

import pytest
import structlog

from inferd.server.log import LineSink, logging_to_stderr
from tests.fakes.log import lines_of, logged, pipe


def fill(writing: int) -> int:
    """Fill a pipe; give how many bytes it took."""
    os.set_blocking(writing, False)
    n_bytes = 0
    try:
        while True:
            n_bytes += os.write(writing, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return n_bytes


# --- the sink ---------------------------------------------------------------------------


def test_lines_are_written_in_order_before_the_sink_is_closed():
    with pipe() as (reading, writing):
        sink = LineSink(writing)
        for n in range(100):
            sink.write(f"line {n}")
        sink.close()
        assert lines_of(reading) == [f"line {n}" for n in range(100)]


def test_what_is_no_unicode_is_written_somehow():
    with pipe() as (reading, writing):
        sink = LineSink(writing)
        sink.write("half a pair: \ud800")
        sink.close()
        assert lines_of(reading) == ["half a pair: ?"]


def test_a_stalled_sink_stalls_nobody_and_counts_what_it_drops(monkeypatch):
    monkeypatch.setattr("inferd.server.log.LOG_QUEUE_LINES", 8)
    with pipe() as (reading, writing):
        n_bytes = fill(writing)
        sink = LineSink(writing)
        for n in range(30):  # at most one is with the writer and 8 are in the queue
            sink.write(f"line {n}")
        os.read(reading, n_bytes)
        sink.close()
        lines = lines_of(reading)
    [report] = [json.loads(line) for line in lines if line.startswith("{")]
    assert report["event"] == "log.dropped"
    assert report["lines"] == 30 - (len(lines) - 1) >= 21


def test_a_sink_that_stays_stalled_can_be_closed(monkeypatch):
    monkeypatch.setattr("inferd.server.log.FLUSH_S", 0.01)
    monkeypatch.setattr("inferd.server.log.LOG_QUEUE_LINES", 2)
    with pipe() as (reading, writing):
        n_bytes = fill(writing)
        sink = LineSink(writing)
        for _ in range(10):
            sink.write("line")
        sink.close()
        monkeypatch.undo()
        os.read(reading, n_bytes)
        sink.close()  # the thread ends before the pipe does


def test_a_closed_pipe_ends_nobody():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        sink = LineSink(writing)
        sink.write("nobody reads this")
        sink.close()
    finally:
        os.close(writing)
    assert "log" not in [thread.name for thread in threading.enumerate()]


# --- structlog --------------------------------------------------------------------------


def test_away_from_a_terminal_a_line_is_json(monkeypatch):
    with logged(monkeypatch) as lines:
        structlog.get_logger("here").info("request.finished", total_ms=1.5)
    [line] = map(json.loads, lines)
    assert line.pop("t").endswith("Z")
    assert line == {"event": "request.finished", "total_ms": 1.5, "level": "info"}


def test_a_line_break_in_a_value_makes_no_second_line(monkeypatch):
    with logged(monkeypatch) as lines:
        structlog.get_logger().info("client.refused", req_id='x\n{"event": "forged"}')
    assert len(lines) == 1


def test_an_exception_is_a_field_of_its_line(monkeypatch):
    with logged(monkeypatch) as lines:
        try:
            raise ZeroDivisionError  # noqa: TRY301
        except ZeroDivisionError:
            structlog.get_logger().exception("request.crashed")
    [line] = map(json.loads, lines)
    assert "ZeroDivisionError" in line["exception"]
    assert line["level"] == "error"


@pytest.mark.parametrize(
    ("level", "n_lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_a_level_leaves_out_what_is_below_it(monkeypatch, level, n_lines):
    with logged(monkeypatch, level) as lines:
        log = structlog.get_logger()
        for each in (log.debug, log.info, log.warning, log.error):
            each("event")
    assert len(lines) == n_lines


def test_what_a_library_says_is_a_line_like_any_other(monkeypatch):
    before = list(logging.getLogger().handlers)
    with logged(monkeypatch) as lines:
        logging.getLogger("trio.serve_listeners").error("accept returned %s", "EMFILE")
        logging.getLogger("trio").info("not worth a line")
    [line] = map(json.loads, lines)
    assert line["event"] == "library.message"
    assert line["text"] == "accept returned EMFILE"
    assert line["level"] == "error"
    assert logging.getLogger().handlers == before


def test_on_a_terminal_a_line_is_for_people(monkeypatch):
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setenv("NO_COLOR", "1")
        with logging_to_stderr("info"):
            structlog.get_logger().info("daemon.ready", directory="/run")
        text = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "daemon.ready" in text
    assert "directory=/run" in text
    assert "\x1b" not in text
    assert "{" not in text


def test_after_it_structlog_is_as_before(monkeypatch):
    with logged(monkeypatch):
        assert structlog.is_configured()
        structlog.get_logger().info("daemon.ready")
    assert not structlog.is_configured()
