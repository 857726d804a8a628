import json
import re

import pytest
from hypothesis import given, strategies as st

from inferd.limits import LOG_LINE_BYTES, LOG_TRACEBACK_FRAMES
from inferd.server.lines import HEAD, ForPeople, as_json, for_journal, record_of

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
def test_whatever_is_said_is_one_line_of_json_that_begins_with_its_head(msg, fields):
    line = as_json(record_of("here", "info", msg, fields))
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    assert line.decode().removesuffix("\n").isprintable()
    record = json.loads(line, parse_constant=refuse_constant)
    assert tuple(record)[:4] == HEAD
    assert (record["level"], record["component"]) == ("info", "here")


@pytest.mark.slow
@given(FIELDS)
def test_a_line_for_people_can_move_no_cursor(fields):
    line = ForPeople(colours=False)(record_of("here", "warning", "event", fields))
    text = line.decode().removesuffix("\n")
    if "exception" not in fields:
        assert text.isprintable()


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("wörld \U0001f600", "wörld \U0001f600"),
        ("\u2028\x85\x0c", r"\u2028\u0085\f"),
        ("\x9b2J\u202e", r"\u009b2J\u202e"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\ud800", "?"),
    ],
)
def test_what_some_readers_take_for_the_end_of_a_line_is_escaped(said, written):
    line = as_json(record_of("here", "info", "event", {"id": said}))
    assert f'"id":"{written}"}}' in line.decode()
    assert json.loads(line)["id"] == said.replace("\ud800", "?")


def test_the_time_is_utc_as_rfc_3339_has_it():
    assert STAMP.fullmatch(str(record_of("here", "info", "event", {})["t"]))


@pytest.mark.parametrize(
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
    assert for_journal(record) == priority.encode() + as_json(record)


def test_a_field_cannot_pass_for_the_head():
    record = record_of("here", "info", "event", {"t": 0, "level": "x", "n": 1})
    assert (record["level"], record["n"]) == ("info", 1)
    assert record["t"] != 0


def test_a_line_that_is_too_long_keeps_its_head_and_tells_its_length():
    fields = {f"field{n}": "word " * 1000 for n in range(20)}
    line = as_json(record_of("here", "info", "event", fields))
    record = json.loads(line)
    assert len(line) < LOG_LINE_BYTES
    assert tuple(record) == (*HEAD, "line_bytes")
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


@pytest.mark.parametrize("exc_info", [None, False, (None, None, None), True])
def test_no_exception_is_no_field(exc_info):
    assert "exception" not in record_of("here", "info", "event", {"exc_info": exc_info})


def test_people_see_the_words_of_a_traceback_in_lines():
    fields = {"exc_info": ZeroDivisionError("no"), "req_id": "\x1b[2Jx"}
    text = ForPeople(colours=False)(record_of("here", "warning", "event", fields))
    assert b"ZeroDivisionError: no" in text
    assert b"\x1b" not in text
    assert b"warning" in text
