import json
import re

import pytest
from hypothesis import given, strategies as st

from inferd.errors import ErrorCode
from inferd.limits.log import LOG_LINE_BYTES, LOG_TRACEBACK_FRAMES
from inferd.server.telemetry.log_format import (
    HEAD_FIELDS,
    REASONS,
    ConsoleFormat,
    as_journal,
    as_json,
    record_of,
)
from tests.cases import each_case

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

TEXT = st.text(max_size=20)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary()
VALUES = (
    LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(TEXT, LEAVES, max_size=3)
)
FIELDS = st.dictionaries(TEXT, VALUES, max_size=4)


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.slow
@given(st.text(), FIELDS)
def test_any_event_is_one_line_of_json_that_begins_with_its_head(msg, fields):
    line = as_json(record_of("here", "info", msg, fields))
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    assert line.decode().removesuffix("\n").isprintable()
    record = json.loads(line, parse_constant=refuse_constant)
    assert tuple(record)[:4] == HEAD_FIELDS
    assert (record["level"], record["component"]) == ("info", "here")


@pytest.mark.slow
@given(FIELDS)
def test_a_line_for_people_can_move_no_cursor(fields):
    line = ConsoleFormat(colours=False)(record_of("here", "warning", "event", fields))
    text = line.decode().removesuffix("\n")
    if "exception" not in fields:
        assert text.isprintable()


@each_case(
    ("said", "written"),
    [
        ("wörld \U0001f600", "wörld \U0001f600"),
        ("\u2028\x85\x0c", r"\u2028\u0085\f"),
        ("\x9b2J\u202e", r"\u009b2J\u202e"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\ud800", "?"),
    ],
)
def test_unicode_line_separators_are_escaped(said, written):
    line = as_json(record_of("here", "info", "event", {"id": said}))
    assert f'"id":"{written}"}}' in line.decode()
    assert json.loads(line)["id"] == said.replace("\ud800", "?")


def test_the_time_is_utc_as_rfc_3339_has_it():
    assert STAMP.fullmatch(str(record_of("here", "info", "event", {})["t"]))


@each_case(
    ("level", "name", "priority"),
    [
        ("debug", "debug", "<7>"),
        ("info", "info", "<6>"),
        ("warning", "warn", "<4>"),
        ("error", "error", "<3>"),
        ("critical", "critical", "<2>"),
    ],
)
def test_a_level_has_the_wires_name_and_a_journals_priority(level, name, priority):
    record = record_of("here", level, "event", {})
    assert record["level"] == name
    assert as_journal(record) == priority.encode() + as_json(record)


def test_a_field_cannot_pass_for_the_head():
    record = record_of("here", "info", "event", {"t": 0, "level": "x", "n": 1})
    assert (record["level"], record["n"]) == ("info", 1)
    assert record["t"] != 0


def test_a_line_that_is_too_long_keeps_its_head_and_tells_its_length():
    fields = {f"field{n}": "word " * 1000 for n in range(20)}
    line = as_json(record_of("here", "info", "event", fields))
    record = json.loads(line)
    assert len(line) < LOG_LINE_BYTES
    assert tuple(record) == (*HEAD_FIELDS, "line_bytes")
    assert record["line_bytes"] > LOG_LINE_BYTES


def deep(n: int) -> None:
    if not n:
        raise ZeroDivisionError("at the bottom")
    deeper(n - 1)


def deeper(n: int) -> None:  # by turns: Python writes a frame that repeats itself once
    deep(n - 1)


def how_said(error: BaseException, how: str) -> object:
    triple = (type(error), error, error.__traceback__)
    return {"flag": True, "error": error, "triple": triple}[how]


@pytest.mark.parametrize("how", ["flag", "error", "triple"])
def test_a_traceback_has_its_innermost_frames_and_what_was_raised(how):
    record = {}
    try:
        deep(100)
    except ZeroDivisionError as error:
        fields = {"exc_info": how_said(error, how)}
        record = record_of("here", "error", "event", fields)
    text = str(record["exception"])
    assert text.endswith("ZeroDivisionError: at the bottom\n")
    assert "exc_info" not in record
    assert text.count("File ") == LOG_TRACEBACK_FRAMES


@each_case("exc_info", [None, False, (None, None, None), True])
def test_no_exception_is_no_field(exc_info):
    assert "exception" not in record_of("here", "info", "event", {"exc_info": exc_info})


def test_a_traceback_on_a_terminal_keeps_its_lines():
    fields = {"exc_info": ZeroDivisionError("no"), "req_id": "\x1b[2Jx"}
    text = ConsoleFormat(colours=False)(record_of("here", "warning", "event", fields))
    assert b"ZeroDivisionError: no" in text
    assert b"\x1b" not in text
    assert b"warning" in text


# --- on a terminal ----------------------------------------------------------------------

PEER = {"peer": "unix:1000:42", "peer_uid": 1000, "peer_pid": 42}


def on_terminal(event: str, **fields: object) -> str:
    console = ConsoleFormat(colours=False, program="bin/inferd")
    return console(record_of("here", "info", event, fields)).decode()


def ready(directory: str, *sockets: str) -> str:
    return on_terminal(
        "daemon.ready", directory=directory, inherited=[], sockets=[*sockets]
    )


def test_a_ready_daemon_names_its_sockets_and_a_command_to_try(monkeypatch):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/own")
    assert (
        "ready: infer.sock, infer.v2.sock in /run/own; try: bin/inferd generate hi"
    ) in ready("/run/own", "infer.sock", "infer.v2.sock")
    assert "inherited" not in ready("/run/own")


@pytest.mark.parametrize(
    ("sockets", "command"),
    [
        (["infer.v2.sock", "infer.embed.sock"], "embed hello"),
        (["infer.rerank.sock"], "rerank hello world"),
        (["infer.v2.sock"], "transcribe FILE"),
        ([], "status"),
    ],
)
def test_the_command_to_try_is_one_that_the_daemon_serves(
    monkeypatch, sockets, command
):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/own")
    assert f"try: bin/inferd {command} " in ready("/run/own", *sockets)


def test_the_command_to_try_finds_sockets_at_an_unusual_place(monkeypatch):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/own")
    line = ready("/tmp/a b", "infer.embed.sock")  # noqa: S108
    assert "bin/inferd embed hello --directory '/tmp/a b'" in line


def test_a_draining_daemon_says_how_long_and_what_another_interrupt_does():
    line = on_terminal("daemon.draining", drain_s=15.0)
    assert "waits up to 15 s" in line
    assert "^C again to stop at once" in line


def test_a_connection_is_no_line_of_its_own_on_a_terminal():
    assert on_terminal("v2_connection_accepted", **PEER, transport="unix") == ""


def test_a_request_names_its_peer_once():
    line = on_terminal("request_done", **PEER, req_id="a")
    assert "peer=unix:1000:42" in line
    assert "peer_uid" not in line
    assert "peer_pid" not in line
    assert "peer_uid=1000" in on_terminal("client.refused", peer_uid=1000)


@each_case("code", ErrorCode)
def test_a_refusal_says_what_its_code_means(code):
    line = on_terminal("request_refused", code=code.value)
    assert f"code={code.value}" in line
    assert f"reason='{REASONS[code]}'" in line


def test_a_reason_that_is_logged_is_kept():
    line = on_terminal("client.refused", code="internal", reason="other")
    assert "reason=other" in line


def test_programs_get_every_field_and_line_but_those_for_people():
    fields = {**PEER, "sockets": ["infer.sock"], "inherited": []}
    line = json.loads(as_json(record_of("here", "info", "connection_accepted", fields)))
    assert set(line) == {*HEAD_FIELDS, *PEER, "inherited"}
