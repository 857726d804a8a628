"""A real daemon whose backends ask engines on loopback: true ones, and some that lie."""

import gzip
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferd.config.kinds.remote_limits import OPEN_S
from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table
from tests.daemon.connection import Frame, blocks
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock
from tests.fakes.remote_engine import (
    ANSWER,
    DONE,
    HEAD,
    USAGE,
    Connection,
    RemoteEngine,
    Script,
    chunk,
    endless,
    event,
    read_request,
    sends,
    serving,
    status,
)

pytestmark = pytest.mark.slow

KEY = "sk-test-0123456789"


def remote(engine: RemoteEngine, **settings) -> Table:
    return {
        "name": "far",
        "kind": "openai",
        "base_url": engine.url,
        "model": "m",
        **settings,
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    with serving() as engine:
        yield engine


@pytest.fixture(scope="module")
def daemon(engine: RemoteEngine) -> Iterator[DaemonProcess]:
    far = remote(
        engine,
        expect_model="m",
        api_key_env="FAR_KEY",
        tools=True,
        thinking=True,
        structure=True,
        max_answer_bytes=2**21,
    )
    slow = remote(engine, name="slow", stall_timeout_s=0.1)
    with daemons() as make:
        config = {"backend": [far, slow, mock(tokens=["near"])]}
        yield make(config, environ={"FAR_KEY": KEY}).start()


def ask_far(daemon: DaemonProcess, engine: RemoteEngine, script: Script) -> list[Frame]:
    """Ask once; give the frames. The remote is in order again after it."""
    engine.script = script
    with daemon.connect() as connection:
        connection.send(generate(model="far", max_tokens=20))
        connection.half_close()
        frames = connection.read_to_eof()
    engine.script = sends(ANSWER)
    return frames


# --- an engine that is in order ---------------------------------------------------------


def test_an_answer_comes_token_by_token_with_the_remotes_counts(daemon, engine):
    *tokens, done = ask_far(daemon, engine, sends(ANSWER))
    assert [each["content"] for each in tokens] == ["Hello", " there"]
    assert (done["stop_reason"], done["backend"]) == ("end", "far")
    assert (done["usage"]["prompt_tokens"], done["usage"]["completion_tokens"]) == (
        7,
        2,
    )
    head, body = engine.requests[-1]
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in head
    assert b"\r\nAccept-Encoding: identity\r\n" in head
    assert json.loads(body)["messages"] == [{"role": "user", "content": "hello"}]


def test_a_connection_serves_one_answer_after_another(daemon, engine):
    body = b"".join((chunk("a"), chunk(reason="stop"), DONE))
    chunked = b"Transfer-Encoding: chunked"
    answer = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    last = HEAD.replace(b"\r\n\r\n", b"\r\n%s\r\n\r\n" % chunked) + answer
    first = last.replace(b"Connection: close\r\n", b"")

    def script(connection: Connection) -> None:
        for each in (first, first):
            connection.sendall(each)
            read_request(connection)
        connection.sendall(last)

    n_before = len(engine.requests)
    engine.script = script
    for _ in range(3):
        assert daemon.ask(model="far", max_tokens=20)[-1]["type"] == "done"
    engine.script = sends(ANSWER)
    assert len(engine.requests) == n_before + 1


def test_reasoning_and_calls_are_blocks_as_those_of_a_local_model(daemon, engine):
    function = {"name": "add", "arguments": '{"a": 1}'}
    engine.script = sends(
        HEAD,
        chunk(reasoning_content="hm"),
        chunk("Well."),
        chunk(tool_calls=[{"index": 0, "id": "x", "function": function}]),
        chunk(reason="tool_calls"),
        USAGE,
        DONE,
    )
    tool = {"name": "add", "description": "", "input_schema": {"type": "object"}}
    with daemon.connect("infer.v2.sock") as connection:
        frames = connection.ask(
            blocks(id="v2", model="far", thinking=True, tools=[tool], max_tokens=50)
        )
    engine.script = sends(ANSWER)
    found = [each["block"] for each in frames if each["type"] == "frame"]
    thought, text, call = [
        each for each in found if each.get("delta") or "input" in each
    ]
    assert (thought["type"], thought["delta"]) == ("thinking", "hm")
    assert (text["type"], text["delta"]) == ("text", "Well.")
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", {"a": 1})
    assert (frames[-1]["type"], frames[-1]["stop_reason"]) == ("done", "tool_use")


ADD = {"name": "add", "description": "", "input_schema": {"type": "object"}}
NUMBER = {"type": "json_schema", "schema": {"type": "number"}}
LEAKED = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


def test_an_answer_without_the_call_that_was_demanded_is_an_error_after_its_text(
    daemon, engine
):
    """As llama-server's where the template of its model has no tools."""
    leaked = sends(HEAD, chunk(LEAKED), chunk(reason="stop"), USAGE, DONE)
    forced = {"tools": [ADD], "tool_choice": "required"}
    outcomes = []
    with daemon.connect("infer.v2.sock") as connection:
        for script, fields in (
            (sends(ANSWER), forced),
            (sends(ANSWER), {"response_format": NUMBER}),
            (leaked, forced),
        ):
            engine.script = script
            asked: Table = {"model": "far", "max_tokens": 50, **fields}
            *frames, last = connection.ask(blocks(**asked))
            outcomes.append(([each["block"]["type"] for each in frames], last))
    engine.script = sends(ANSWER)
    (text, no_call), (_, no_number), (call, done) = outcomes
    assert (text, call) == (["text", "text"], ["tool_use"])
    assert (no_call["code"], no_number["code"]) == ("invalid_request",) * 2
    assert "tool_choice: the answer ended without" in no_call["message"]
    assert "response_format.schema: the answer" in no_number["message"]
    assert (done["stop_reason"], done["structure_complete"]) == ("tool_use", True)


def test_a_stop_string_ends_the_remotes_work(daemon, engine):
    engine.script = engine.until_hang_up(HEAD, chunk("one two"), chunk(" three"))
    with daemon.connect("infer.v2.sock") as connection:
        frames = connection.ask(blocks(id="s", model="far", stop=[" two"]))
    engine.script = sends(ANSWER)
    assert frames[-1]["stop_reason"] == "stop_sequence"
    assert engine.closed.acquire(timeout=30)


def test_a_client_that_leaves_ends_the_remotes_work(daemon, engine):
    engine.script = engine.until_hang_up(HEAD, chunk("one"))
    connection = daemon.connect()
    connection.send(generate(model="far"))
    assert connection.frame()["content"] == "one"
    connection.close()
    assert engine.closed.acquire(timeout=30)
    engine.script = sends(ANSWER)


def test_the_answer_of_a_bridge_over_a_unix_socket_is_the_daemons_behind_it(
    make_daemon: MakeDaemon, short_dir: Path
):
    behind = make_daemon({"backend": [mock(tokens=["from ", "behind"])]}).start()
    path = short_dir / "b.sock"
    far = {"name": "far", "kind": "openai", "base_url": f"unix:{path}", "model": "mock"}
    with bridge_to(behind, "--listen", str(path)):
        daemon = make_daemon({"backend": [{**far, "route_unnamed": True}]}).start()
        assert daemon.ask()[-1]["content"] == "from behind"
        [refusal] = daemon.ask(max_tokens=20, grammar='root ::= "a"')
        assert refusal["code"] == "invalid_request"


# --- who is asked ------------------------------------------------------------------------


def test_prompts_go_to_a_remote_for_those_that_name_it_alone(
    daemon, engine, make_daemon
):
    n_requests = len(engine.requests)
    assert daemon.ask()[-1]["backend"] == "mock"
    assert len(engine.requests) == n_requests
    [frame] = [
        each for each in daemon.admin().until("ready") if each.get("backend") == "far"
    ]
    assert (frame["remote"], frame["by_name_only"]) == (True, True)
    alone = make_daemon({"backend": [remote(engine)]}).start()
    [refusal] = alone.ask()
    assert refusal["code"] == "backend_unavailable"
    assert '"model" may be one of far' in refusal["message"]
    assert len(engine.requests) == n_requests


def test_a_remote_that_cannot_be_reached_stops_no_start_and_opens_the_breaker(
    make_daemon: MakeDaemon,
):
    with serving() as gone:
        far = remote(gone)
    daemon = make_daemon({"backend": [far, mock()]}).start()
    for _ in range(3):
        [error] = daemon.ask(model="far")
        assert error["code"] == "backend_unavailable"
        assert "cannot be reached" in error["message"]
    [event] = daemon.logged(msg="remote.suspended", backend="far")
    assert "cannot be reached" in event["reason"]
    [error] = daemon.ask(model="far")
    assert error["message"].startswith(
        "backend not ready: the remote failed, and is not asked for a while: "
        "the remote cannot be reached"
    )
    assert 0 < error["retry_after_ms"] <= OPEN_S * 1000
    states = {
        each["backend"]: each["state"] for each in daemon.admin().until("ready")[:-1]
    }
    assert states == {"far": "failed", "mock": "ready"}
    text = daemon.admin().order("metrics")["text"]
    assert 'inferd_remote_available{backend="far"} 0' in text
    assert daemon.ask()[-1]["backend"] == "mock"


# --- engines that lie --------------------------------------------------------------------


def reset(connection: Connection) -> None:
    connection.sendall(HEAD + chunk("one"))
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


REDIRECT = status(307, {}, "Location: http://127.0.0.1:1/v1/chat/completions")
COMPRESSED = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
LIES = {
    "wrong JSON": (sends(HEAD, b"data: {]\n\n"), "not part of an answer"),
    "half an event": (sends(HEAD, chunk("one"), b'data: {"cho'), "in its middle"),
    "no end": (sends(HEAD, chunk("one")), "ended in its middle"),
    "endless tokens": (endless(chunk("one")), "goes on after max_tokens"),
    "an endless line": (endless(b"x" * 65536), "an event of over 1048576 bytes"),
    "endless comments": (endless(b":\n" * 32768), "over 2097152 bytes"),
    "another model": (
        sends(HEAD, event({"model": "n", "choices": []})),
        "another model, 'n'",
    ),
    "an error that is 200": (
        sends(status(200, {"error": {"message": f"no {KEY}"}})),
        r"failed: no \(key\)",
    ),
    "an error in its middle": (
        sends(HEAD, chunk("one"), event({"error": {"message": "out of memory"}})),
        "out of memory",
    ),
    "JSON at once": (sends(status(200, {"choices": []})), "does not stream"),
    "a redirect": (sends(REDIRECT), "redirects, which is not followed"),
    "a compressed bomb": (
        sends(COMPRESSED, gzip.compress(bytes(10**6))),
        "compresses its answer",
    ),
    "a reset": (reset, "broke off"),
    "no HTTP": (sends(b"SSH-2.0-x\r\n\r\n"), "broke off before it began"),
    "nothing": (sends(), "broke off before it began"),
    "an endless head": (lambda connection: _pour(connection, b"X: y\r\n"), "broke off"),
    "a refused key": (
        sends(status(401, {"error": {"message": f"wrong key {KEY}"}})),
        r"refuses the key \(HTTP 401\)$",
    ),
}


def _pour(connection: Connection, line: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(line * 1000)


@pytest.mark.parametrize("lie", LIES)
def test_a_false_answer_is_one_error_and_the_next_request_is_served(
    daemon, engine, lie
):
    script, reason = LIES[lie]
    *tokens, error = ask_far(daemon, engine, script)
    assert {each["type"] for each in tokens} <= {"token"}
    assert (error["type"], error["code"]) == ("error", "backend_unavailable")
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(error["message"])
    assert KEY not in error["message"]
    assert ask_far(daemon, engine, sends(ANSWER))[-1]["type"] == "done"


def test_a_rate_limit_is_told_with_the_remotes_own_hint(daemon, engine):
    script = sends(status(429, {"error": {"message": "slow down"}}, "Retry-After: 7"))
    [error] = ask_far(daemon, engine, script)
    assert (error["code"], error["retry_after_ms"]) == ("backend_unavailable", 7000)


def test_an_overflow_is_told_with_the_tokens_that_are_too_many(daemon, engine):
    text = "request (60 tokens) exceeds the available context size (40 tokens), try"
    [error] = ask_far(daemon, engine, sends(status(400, {"error": {"message": text}})))
    assert error["code"] == "invalid_request"
    assert (error["prompt_tokens"], error["n_ctx"], error["tokens_over"]) == (
        60,
        40,
        21,
    )


def test_a_trickle_without_tokens_is_ended_with_what_came_kept(daemon, engine):
    engine.script = endless_after(chunk("one"), b":\n\n")
    with daemon.connect() as connection:
        token, error = connection.ask(generate(model="slow"))
    engine.script = sends(ANSWER)
    assert token["content"] == "one"
    assert error["message"].endswith("too slow: nothing came for 0.1 s")


def endless_after(first: bytes, rest: bytes) -> Script:
    def script(connection: Connection) -> None:
        connection.sendall(HEAD + first)
        connection.settimeout(0.01)
        while True:
            connection.sendall(rest)
            try:
                connection.recv(1)
            except TimeoutError:
                continue

    return script


def test_no_worker_died_of_all_this_and_the_key_is_in_no_log(daemon):
    assert not [each for each in daemon.log_lines() if each["msg"] == "worker.exited"]
    assert KEY not in daemon.stderr()
    assert KEY not in daemon.log_file.read_text() if daemon.log_file.exists() else True


def test_a_missing_key_is_told_at_the_start(make_daemon: MakeDaemon, engine):
    refusal = make_daemon({"backend": [remote(engine, api_key_env="NONE")]}).refusal()
    assert refusal == "error: backend far: api_key_env = NONE: no such variable"


def test_an_extra_that_is_missing_is_told_at_the_start(
    make_daemon: MakeDaemon, engine, short_dir: Path
):
    text = "raise ModuleNotFoundError(name='httpcore2')\n"
    (short_dir / "httpcore2.py").write_text(text)
    daemon = make_daemon(
        {"backend": [remote(engine)]}, environ={"PYTHONPATH": str(short_dir)}
    )
    assert daemon.refusal() == (
        "error: backend far: kind openai needs the package httpcore2: make setup"
    )
