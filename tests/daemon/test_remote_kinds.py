"""A real daemon in front of other APIs: of real bridges, and of an engine that lies.

A bridge answers as Ollama and as Anthropic's API do, in front of another daemon. The Gemini API
has no server here: its answers are those of the golden exchanges, whose test says where their
form is from.
"""

import base64
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table
from tests.daemon.connection import blocks
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock
from tests.fakes.remote_engine import (
    Connection,
    RemoteEngine,
    sends,
    serving,
    status,
)

pytestmark = pytest.mark.slow

KEY: Final = "sk-test-0123456789"
EXCHANGES: Final = Path(__file__).parents[1] / "unit" / "worker" / "remote"
TOOL: Final = {
    "name": "add",
    "description": "",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
CALL: Final = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


class Spoken(NamedTuple):
    """How a kind speaks, for tests of its errors."""

    key_header: bytes
    part: bytes
    """Of an answer, with the text ``one``."""
    error: bytes
    """In the middle of an answer."""
    limited: tuple[int, object, str]
    """The status, the body and a header of a rate limit of 7 s."""


def _event(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


RETRY: Final = {
    "@type": "type.googleapis.com/google.rpc.RetryInfo",
    "retryDelay": "7s",
}
KINDS: Final = {
    "ollama": Spoken(
        b"authorization: bearer ",
        b'{"message": {"role": "assistant", "content": "one"}, "done": false}\n',
        b'{"error": "broken"}\n',
        (429, {"error": "slow down"}, "Retry-After: 7"),
    ),
    "anthropic": Spoken(
        b"x-api-key: ",
        _event(
            {
                "type": "content_block_delta",
                "delta": {"type": "text_delta", "text": "one"},
            }
        ),
        _event({"type": "error", "error": {"type": "api_error", "message": "broken"}}),
        (429, {"error": {"type": "rate_limit_error"}}, "Retry-After: 7"),
    ),
    "gemini": Spoken(
        b"x-goog-api-key: ",
        _event({"candidates": [{"content": {"parts": [{"text": "one"}]}}]}),
        _event({"error": {"code": 500, "message": "broken"}}),
        (429, {"error": {"code": 429, "details": [RETRY]}}, "X: y"),
    ),
}


def far(kind: str, base_url: str, **settings: Any) -> Table:
    return {
        "name": kind,
        "kind": kind,
        "base_url": base_url,
        "model": "mock",
        **settings,
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    with serving() as engine:
        yield engine


@pytest.fixture(scope="module")
def daemon(engine: RemoteEngine) -> Iterator[DaemonProcess]:
    """A daemon with a backend of each kind, all of which ask the engine."""
    able = {"tools": True, "thinking": True, "vision": True, "api_key_env": "FAR_KEY"}
    with daemons() as make:
        config = {"backend": [far(kind, engine.url, **able) for kind in KINDS]}
        yield make(config, environ={"FAR_KEY": KEY}).start()


def recorded(kind: str, name: str) -> bytes:
    """Read a golden exchange's answer, as HTTP."""
    path = EXCHANGES / kind / "exchanges" / f"{name}.answer"
    head, _, body = path.read_bytes().partition(b"\n\n")
    code, media_type = head.split()
    return b"HTTP/1.1 %b x\r\nContent-Type: %b\r\nConnection: close\r\n\r\n%b" % (
        *(code, media_type),
        body,
    )


def head_of(kind: str) -> bytes:
    return recorded(kind, "text").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def test_the_answers_of_a_bridge_are_those_of_the_daemon_behind_it(
    make_daemon: MakeDaemon, short_dir: Path
):
    behind = make_daemon({"backend": [mock(tokens=["Let ", "me see.", CALL])]}).start()
    path = short_dir / "b.sock"
    able = {"tools": True, "n_ctx": 4096}
    kinds = {"ollama": able, "anthropic": {**able, "count_tokens": True}}
    backends = [far(kind, f"unix:{path}", **kinds[kind]) for kind in kinds]
    with bridge_to(behind, "--listen", str(path)):
        front = make_daemon({"backend": backends}).start()
        for kind in kinds:
            with front.connect("infer.v2.sock") as connection:
                frames = connection.ask(
                    blocks(id="v2", model=kind, tools=[TOOL], max_tokens=50)
                )
                [counted] = connection.ask(blocks(id="count", model=kind, max_tokens=0))
                [refusal] = connection.ask(
                    blocks(id="no", model=kind, logit_bias={"5": 1.0})
                )
            found = [each["block"] for each in frames if each["type"] == "frame"]
            [call] = [block for block in found if "input" in block]
            text = "".join(block.get("delta", "") for block in found)
            assert text.strip() == "Let me see."
            assert (call["name"], call["input"]) == ("add", {"a": 1})
            assert frames[-1]["stop_reason"] == "tool_use"
            assert frames[-1]["usage"]["output_tokens"] == 3
            is_estimate = counted["usage"].get("is_estimate", False)
            assert is_estimate is (kind == "ollama")
            assert refusal["code"] == "invalid_request"
            assert f'logit_bias: backend "{kind}" cannot do' in refusal["message"]


def test_each_kind_has_its_key_in_its_own_header_and_its_answers_are_alike(
    daemon, engine
):
    for kind, spoken in KINDS.items():
        engine.script = sends(recorded(kind, "text"))
        *tokens, done = daemon.ask(model=kind, max_tokens=20)
        assert [each["content"] for each in tokens] == ["Hello", " there."]
        assert done["usage"]["prompt_tokens"] == 12
        assert spoken.key_header + KEY.encode() in engine.requests[-1][0].lower()
        engine.script = sends(recorded(kind, "thinking"))
        with daemon.connect("infer.v2.sock") as connection:
            frames = connection.ask(blocks(id=kind, model=kind, thinking=True))
        deltas = {each["block"]["type"] for each in frames if each["type"] == "frame"}
        assert deltas == {"thinking", "text"}


def reset(connection: Connection) -> None:
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_a_false_answer_is_one_error_with_what_came_before_it(daemon, engine):
    for kind, spoken in KINDS.items():
        begun = head_of(kind) + spoken.part
        code, body, header = spoken.limited
        faults: dict[str, tuple[list[bytes], int]] = {
            "broken": ([begun, spoken.error], 1),
            "in its middle": ([begun], 1),
            "not part of an answer": ([head_of(kind), b'data: {]\n\n{"}\n'], 0),
            "goes on after max_tokens": ([head_of(kind), spoken.part * 200], 0),
            "rate limit": ([status(code, body, header)], 0),
            "refuses the key": ([status(401, {"error": KEY})], 0),
            "5000": ([recorded(kind, "overflow")], 0),
        }
        for reason, (parts, n_tokens) in faults.items():
            engine.script = sends(*parts)
            *tokens, error = daemon.ask(model=kind, max_tokens=20)
            assert (error["type"], reason in error["message"]) == ("error", True)
            assert len(tokens) >= n_tokens
            assert KEY not in error["message"]
            if reason == "rate limit":
                assert error["retry_after_ms"] == 7000
            if reason == "5000":
                assert (error["code"], error["tokens_over"]) == ("invalid_request", 905)
            # one in order forgets the failures before it
            engine.script = sends(recorded(kind, "text"))
            assert daemon.ask(model=kind, max_tokens=20)[-1]["type"] == "done"
        broken: list[bytes] = [begun]

        def script(connection: Connection, parts: list[bytes] = broken) -> None:
            connection.sendall(b"".join(parts))
            reset(connection)

        engine.script = script
        *_, error = daemon.ask(model=kind, max_tokens=20)
        assert "broke off" in error["message"] or "middle" in error["message"]
    assert KEY not in daemon.stderr()
    assert not [each for each in daemon.log_lines() if each["msg"] == "worker.exited"]


def test_a_stop_string_ends_the_remotes_work(daemon, engine):
    for kind, spoken in KINDS.items():
        engine.script = engine.until_hang_up(head_of(kind), spoken.part)
        with daemon.connect("infer.v2.sock") as connection:
            frames = connection.ask(blocks(id=kind, model=kind, stop=["ne"]))
        assert frames[-1]["stop_reason"] == "stop_sequence"
        assert engine.closed.acquire(timeout=30)


def test_a_v1_request_needs_nothing_that_a_kind_does_not_have(daemon, engine):
    engine.script = sends(recorded("anthropic", "text"))
    with daemon.connect() as connection:
        connection.send(generate(model="anthropic", max_tokens=20))
        connection.half_close()
        assert connection.read_to_eof()[-1]["type"] == "done"
    sent = json.loads(engine.requests[-1][1])
    assert not {"temperature", "top_p", "top_k"} & sent.keys()
    [refusal] = daemon.ask(model="anthropic", max_tokens=20, seed=7)
    assert refusal["message"].endswith('seed: backend "anthropic" cannot do this')


PICTURE: Final = {
    "kind": "image",
    "id": "i",
    "width": 1,
    "height": 1,
    "bytes": base64.b64encode(b"\xff\x00\x80").decode(),
}


def test_a_picture_is_sent_as_a_file_where_it_stands(daemon, engine):
    parts = [
        {"type": "image", "attachment_id": "i"},
        {"type": "text", "text": "What is this?"},
    ]
    message = {"role": "user", "content": parts}
    pictures = {
        "ollama": lambda body: body["messages"][0]["images"][0],
        "anthropic": lambda body: body["messages"][0]["content"][0]["source"]["data"],
        "gemini": lambda body: body["contents"][0]["parts"][0]["inlineData"]["data"],
    }
    for kind, picture in pictures.items():
        engine.script = sends(recorded(kind, "text"))
        asked = blocks(id=kind, model=kind, messages=[message], attachments=[PICTURE])
        with daemon.connect("infer.v2.sock") as connection:
            assert connection.ask(asked)[-1]["type"] == "done"
        sent = base64.b64decode(picture(json.loads(engine.requests[-1][1])))
        assert sent.startswith(b"\x89PNG\r\n")
