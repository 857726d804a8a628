import json

import pytest

from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    content_of,
    generate,
    to_line,
)

TEXTS = ["Hel", "lo ", "wörld", "!"]
MIB = 1024 * 1024
UNCACHED = {"cached_tokens": 0}
TIMING = {
    "queued_ms",
    "prefill_ms",
    "first_token_ms",
    "decode_ms",
    "total_ms",
    "tokens_per_second",
    "arrived_ns",
    "started_ns",
    "finished_ns",
}


def token(request_id, text):
    return {"type": "token", "id": request_id, "content": text}


class BareConnection(Connection):
    """Leaves out of frames what differs from one answer to the next."""

    def line(self) -> bytes | None:
        line = super().line()
        return line and json.dumps(bare(json.loads(line))).encode()


def bare(frame):
    if frame["type"] == "done":
        assert 0 <= frame.pop("seed") < 2**32 - 1
        assert frame.pop("timing").keys() == TIMING
    return frame


def done(request_id, texts, stop_reason="end"):
    return {
        "type": "done",
        "id": request_id,
        "content": "".join(texts),
        "usage": {"prompt_tokens": 0, "completion_tokens": len(texts)} | UNCACHED,
        "stop_reason": stop_reason,
        "backend": "mock",
    }


def answer(request_id):
    return [*(token(request_id, text) for text in TEXTS), done(request_id, TEXTS)]


def still_answers(connection: Connection):
    return connection.ask(generate(id="next")) == answer("next")


@pytest.fixture
def connection(shared_daemon: DaemonProcess):
    with BareConnection(shared_daemon.infer_sock) as connection:
        yield connection


def test_tokens_come_before_one_done_that_joins_them(connection: Connection):
    frames = connection.ask(generate(id="a"))
    assert frames == answer("a")
    assert content_of(frames) == frames[-1]["content"]


def test_without_streaming_done_comes_alone(connection: Connection):
    assert connection.ask(generate(id="a", stream=False)) == [done("a", TEXTS)]


def test_max_tokens_cuts_the_answer_and_says_so(connection: Connection):
    frames = connection.ask(generate(id="a", max_tokens=2))
    assert frames == [*answer("a")[:2], done("a", TEXTS[:2], "length")]


def test_an_answer_of_no_tokens_is_an_answer(connection: Connection):
    assert connection.ask(generate(id="a", max_tokens=0)) == [done("a", [], "length")]


def test_a_request_without_an_id_is_answered_without_one(connection: Connection):
    assert connection.ask(generate()) == answer("")


@pytest.mark.parametrize("request_id", ['ü\n\0"\\', "x" * 10_000])
def test_any_id_is_echoed_as_it_is(connection: Connection, request_id):
    assert connection.ask(generate(id=request_id)) == answer(request_id)


def test_requests_sent_ahead_are_answered_in_order(connection: Connection):
    connection.send_raw(b"".join(to_line(generate(id=each)) for each in "abc"))
    assert [connection.frames() for _ in "abc"] == [answer(each) for each in "abc"]


def test_a_refused_request_does_not_stop_those_sent_after_it(connection: Connection):
    connection.send_raw(
        to_line({"id": "a", "messages": []}) + to_line(generate(id="b"))
    )
    assert connection.frames()[-1]["code"] == "invalid_request"
    assert connection.frames() == answer("b")


def test_a_request_that_comes_byte_by_byte_is_one_request(connection: Connection):
    line = json.dumps(generate("wörld", id="a"), ensure_ascii=False).encode() + b"\n"
    for index in range(len(line)):
        connection.send_raw(line[index : index + 1])
    assert connection.frames() == answer("a")


def test_two_requests_cut_anywhere_are_two_requests(
    connection: Connection, shared_daemon: DaemonProcess
):
    lines = to_line(generate(id="a")) + to_line(generate(id="b"))
    end_of_first = len(to_line(generate(id="a")))
    for cut in (1, 20, end_of_first - 1, end_of_first, end_of_first + 1):
        connection.send_raw(lines[:cut])
        shared_daemon.catch_up()
        connection.send_raw(lines[cut:])
        assert connection.frames() == answer("a")
        assert connection.frames() == answer("b")


def test_a_carriage_return_before_the_newline_is_white_space(connection: Connection):
    connection.send_raw(to_line(generate(id="a")).replace(b"\n", b"\r\n"))
    assert connection.frames() == answer("a")


def test_a_last_line_without_a_newline_is_served(connection: Connection):
    connection.send_raw(to_line(generate(id="a")).rstrip(b"\n"))
    connection.half_close()
    assert connection.read_to_eof() == answer("a")


def test_a_client_that_sends_no_more_but_reads_is_served_to_the_end(
    connection: Connection,
):
    connection.send_raw(to_line(generate(id="a")) + to_line(generate(id="b")))
    connection.half_close()
    assert connection.read_to_eof() == [*answer("a"), *answer("b")]


def test_a_client_that_says_nothing_and_leaves_gets_nothing(connection: Connection):
    connection.half_close()
    connection.read_eof()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "messages must not be empty"),
        (
            {"image_token_budget": 999},
            "image_token_budget 999 not in [70, 140, 280, 560, 1120]",
        ),
        ({"temperature": 2.5}, "temperature 2.5 not in [0, 2]"),
        ({"top_p": 0}, "top_p 0 not in (0, 1]"),
    ],
)
def test_a_request_without_meaning_is_refused_and_the_connection_kept(
    connection: Connection, fields, message
):
    [refusal] = connection.ask(generate(id="a") | fields)
    assert refusal == {
        "type": "error",
        "id": "a",
        "code": "invalid_request",
        "message": f"invalid request: {message}",
    }
    assert still_answers(connection)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"id":"a"}',
        b'{"id":"a","messages":"hello"}',
        b'{"id":"a","messages":[{"role":"tool","content":"x"}]}',
        b'{"id":"a\xff","messages":[{"role":"user","content":"x"}]}',
        b'{"id":"a","id":"b","messages":[{"role":"user","content":"x"}]}',
        b'{"messages":' + b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_request_ends_the_connection(connection: Connection, line):
    connection.send_raw(line + b"\n" + to_line(generate(id="b")))
    refusal = connection.frame()
    assert refusal.pop("message").startswith("decode: ")
    assert refusal == {"type": "error", "id": "", "code": "invalid_request"}
    connection.read_eof()


def test_a_line_over_the_cap_is_refused_before_it_ends(connection: Connection):
    connection.send_raw(b'{"id":"a","messages":[{"role":"user","content":"')
    connection.pour(b"x" * MIB for _ in range(65))
    assert connection.frame() == {
        "type": "error",
        "id": "",
        "code": "frame_too_large",
        "message": "frame exceeds 67108864 byte cap",
    }
    connection.read_eof()


def test_clients_of_one_daemon_do_not_hear_one_another(shared_daemon: DaemonProcess):
    path = shared_daemon.infer_sock
    with BareConnection(path) as one, BareConnection(path) as other:
        one.send(generate(id="one"))
        other.send(generate(id="other"))
        assert other.frames() == answer("other")
        assert one.frames() == answer("one")


def test_what_is_said_to_and_by_a_model_is_nowhere_in_the_log(
    shared_daemon: DaemonProcess,
):
    with shared_daemon.connect() as connection:
        connection.send_raw(b'{"messages":"a-secret-prompt"}\n')
        connection.read_to_eof()
    shared_daemon.ask("a-secret-prompt", id="logged")
    assert shared_daemon.logged(req_id="logged")
    log = str(shared_daemon.log_lines()) + shared_daemon.stderr()
    assert "a-secret-prompt" not in log
    assert "wörld" not in log
