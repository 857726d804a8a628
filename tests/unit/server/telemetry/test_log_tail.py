import json

import structlog

from inferd.limits.log import LOG_TAIL_LINE_BYTES, LOG_TAIL_LINES
from inferd.server.telemetry.log import writing_log
from inferd.server.telemetry.log_tail import LogTail
from tests.fakes.log import lines_of, pipe


def test_the_tail_has_the_newest_lines_as_the_log_has_them(monkeypatch):
    tail = LogTail()
    with pipe() as (reading, writing), open(writing, "w", closefd=False) as file:
        monkeypatch.setattr("sys.stderr", file)
        with writing_log("info", tail=tail):
            for number in range(LOG_TAIL_LINES + 5):
                structlog.get_logger("here").info("event", number=number)
            structlog.get_logger().debug("not logged")
        written = [line.rstrip("\n") for line in lines_of(reading)]
    assert tail.lines() == written[5:]


def test_a_long_line_keeps_its_head():
    tail = LogTail()
    tail.write({"t": "now", "level": "info", "msg": "long", "text": "x" * 4096})
    [line] = tail.lines()
    assert len(line) < LOG_TAIL_LINE_BYTES
    assert json.loads(line)["msg"] == "long"
