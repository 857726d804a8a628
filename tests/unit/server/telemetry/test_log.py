import json
import logging
import os
import sys

import pytest
import structlog

from inferd.server.telemetry.log import is_journal, writing_log
from inferd.server.telemetry.log_file import LogFile
from tests.daemon.harness import eventually
from tests.fakes.log import fill, lines_of, logged, pipe


def file_in(directory) -> LogFile:
    return LogFile(directory / "logs" / "log", max_bytes=10**6, generations=0)


def test_away_from_a_terminal_a_line_is_json(monkeypatch):
    with logged(monkeypatch) as lines:
        structlog.get_logger("here").info("request_done", total_ms=1.5)
    [line] = map(json.loads, lines)
    assert list(line) == ["t", "level", "component", "msg", "total_ms"]
    assert line.pop("t").endswith("Z")
    assert line == {
        "level": "info",
        "component": "here",
        "msg": "request_done",
        "total_ms": 1.5,
    }


def test_a_line_break_in_a_value_makes_no_second_line(monkeypatch):
    with logged(monkeypatch) as lines:
        structlog.get_logger().info("request_refused", req_id='x\n{"msg": "forged"}')
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


def test_log_records_of_libraries_are_lines_like_any_other(monkeypatch):
    before = list(logging.getLogger().handlers)
    with logged(monkeypatch) as lines:
        logging.getLogger("trio.serve_listeners").error("accept returned %s", "EMFILE")
        logging.getLogger("trio").info("not worth a line")
    [line] = map(json.loads, lines)
    assert (line["component"], line["msg"]) == (
        "trio.serve_listeners",
        "library.message",
    )
    assert line["text"] == "accept returned EMFILE"
    assert line["level"] == "error"
    assert logging.getLogger().handlers == before


def test_on_a_terminal_a_line_is_for_people(monkeypatch):
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setenv("NO_COLOR", "1")
        with writing_log("info"):
            structlog.get_logger().info("daemon.ready", directory="/run")
        text = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "daemon.ready" in text
    assert "directory=/run" in text
    assert "\x1b" not in text
    assert "{" not in text


def test_a_journal_is_told_the_priority_of_each_line(monkeypatch):
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as file:
        info = os.fstat(writing)
        monkeypatch.setenv("JOURNAL_STREAM", f"{info.st_dev}:{info.st_ino}")
        monkeypatch.setattr("sys.stderr", file)
        with writing_log("info"):
            structlog.get_logger().info("one")
            structlog.get_logger().error("two")
        lines = lines_of(reading)
    assert [line[:4] for line in lines] == ["<6>{", "<3>{"]
    assert [json.loads(line[3:])["msg"] for line in lines] == ["one", "two"]


def test_a_stream_that_is_another_is_no_journal():
    with pipe() as (reading, _):
        assert not is_journal(reading, "")
        assert not is_journal(reading, "1:2")


def test_the_file_has_the_lines_that_stderr_has(monkeypatch, tmp_path):
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with writing_log("info", file_in(tmp_path)):
            for n in range(10):
                structlog.get_logger().info("event", n=n)
        assert (tmp_path / "logs" / "log").read_text().splitlines() == lines_of(reading)


def test_a_stalled_stderr_keeps_no_line_from_the_file(monkeypatch, tmp_path):
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as stderr:
        n_bytes = fill(writing)
        monkeypatch.setattr("sys.stderr", stderr)
        with writing_log("info", file_in(tmp_path)):
            structlog.get_logger().info("event")
            path = tmp_path / "logs" / "log"
            assert eventually(lambda: path.exists() and "event" in path.read_text())
            os.read(reading, n_bytes)
    [line] = (tmp_path / "logs" / "log").read_text().splitlines()
    assert json.loads(line)["msg"] == "event"


def test_a_file_that_fails_is_told_on_stderr_and_counted(monkeypatch, tmp_path):
    (tmp_path / "logs").symlink_to(tmp_path)
    lost: list[str] = []
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with writing_log("info", file_in(tmp_path), lost.append):
            structlog.get_logger().info("one")
            structlog.get_logger().info("two")
        lines = [json.loads(line) for line in lines_of(reading)]
    assert sorted(line["msg"] for line in lines) == ["log.failed", "one", "two"]
    [failed] = [line for line in lines if line["msg"] == "log.failed"]
    assert (failed["sink"], failed["level"]) == (f"{tmp_path}/logs/log", "warn")
    assert failed["reason"] == "Not a directory"
    assert lost == ["file", "file"]


def test_without_a_stderr_there_is_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", None)
    with writing_log("info", file_in(tmp_path)):
        structlog.get_logger().info("event")
    assert "event" in (tmp_path / "logs" / "log").read_text()


def failure(monkeypatch, path, *, is_journal: bool) -> tuple[bool, list[str], str]:
    """Fail with a password; give whether stderr has it, stderr's lines and the file's."""
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as stderr:
        info = os.fstat(writing)
        device = f"{info.st_dev}:{info.st_ino}" if is_journal else "1:2"
        monkeypatch.setenv("JOURNAL_STREAM", device)
        monkeypatch.setattr("sys.stderr", stderr)
        with writing_log("error", file_in(path)) as log:
            is_told = log.log_start_failure("no model: password=hunter22")
        return is_told, lines_of(reading), (path / "logs" / "log").read_text()


def test_a_failed_start_is_logged_to_the_file_and_not_to_a_terminal(
    monkeypatch, tmp_path
):
    is_told, stderr, file = failure(monkeypatch, tmp_path, is_journal=False)
    assert (is_told, stderr) == (False, [])
    line = json.loads(file)
    assert (line["level"], line["component"]) == ("error", "daemon")
    assert line["msg"] == "daemon.failed"
    assert line["reason"].startswith("no model: ")
    assert "hunter22" not in file


def test_a_failed_start_is_an_error_in_a_journal(monkeypatch, tmp_path):
    is_told, [line], file = failure(monkeypatch, tmp_path, is_journal=True)
    assert is_told
    assert line == f"<3>{file.rstrip()}"


def test_after_it_structlog_is_as_before(monkeypatch):
    with logged(monkeypatch):
        assert structlog.is_configured()
        structlog.get_logger().info("daemon.ready")
    assert not structlog.is_configured()
