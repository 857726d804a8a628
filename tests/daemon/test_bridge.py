"""The bridge in front of a real daemon, and OpenAI's own client in front of the bridge."""

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import openai
import pytest
import trio

from tests.daemon.bridge import BRIDGE, BridgeProcess, bridge_to, command, no_requests
from tests.daemon.fixtures import daemons
from tests.daemon.harness import PATIENCE_S, DaemonProcess, MakeDaemon, eventually, mock
from tests.documents.pages import commands

pytestmark = pytest.mark.slow

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}},
}
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Köln"}}</tool_call>'
LEAVES_GENERATORS = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""OpenAI's client leaves its async generators to the garbage collector, which trio tells."""
SCRIPTS = {
    "hello": ["Hel", "lo ", "wörld"],
    "thinker": ["<think>", "hm", "</think>", "Yes"],
    "caller": ["Look: ", CALL, CALL],
    "endless": ["x"] * 100_000,
}


def scripts() -> list[dict[str, Any]]:
    tables = [mock(name=name, tokens=tokens) for name, tokens in SCRIPTS.items()]
    return [
        {**each, "token_delay_ms": 20} if each["name"] == "endless" else each
        for each in tables
    ]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """One daemon for all tests that leave it as it was."""
    with daemons() as make:
        access = {"gateways": {"uids": [os.getuid()]}}
        made = make({"backend": scripts(), "access": access})
        bridge = f'tokens = "{made.scratch}/tokens.json"\ngateway = true\n'
        with made.config_file.open("a") as file:
            file.write(f"\n[bridge]\n{bridge}")
        yield made.start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    """One bridge to it."""
    with bridge_to(daemon) as made:
        yield made


@pytest.fixture
def client(bridge: BridgeProcess) -> Iterator[openai.OpenAI]:
    """The client that most programs have."""
    with bridge.client() as made:
        yield made


# --- OpenAI's client, as it is -------------------------------------------------------


def test_a_chat_is_answered(client):
    found = client.chat.completions.create(model="hello", messages=HI)
    assert found.choices[0].message.content == "Hello wörld"
    assert (found.choices[0].finish_reason, found.model) == ("stop", "hello")
    assert found.usage is not None
    assert found.usage.completion_tokens == 3


def test_a_chat_is_streamed(client):
    stream = client.chat.completions.create(
        model="hello", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    texts = [each.choices[0].delta.content for each in chunks if each.choices]
    assert [text for text in texts if text] == SCRIPTS["hello"]
    assert last.usage is not None
    assert last.usage.completion_tokens == 3


def test_the_stream_helper_assembles_an_answer(client):
    with client.chat.completions.stream(
        model="caller", messages=HI, tools=[WEATHER]
    ) as stream:
        found = stream.get_final_completion().choices[0]
    assert found.finish_reason == "tool_calls"
    calls = found.message.tool_calls
    assert [call.function.name for call in calls] == ["weather"] * 2
    assert json.loads(calls[0].function.arguments) == {"city": "Köln"}
    assert calls[0].id != calls[1].id


def test_calls_and_their_results_go_round(client):
    first = client.chat.completions.create(model="caller", messages=HI, tools=[WEATHER])
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "12 °C"}
        for call in message.tool_calls
    ]
    again = client.chat.completions.create(
        model="hello", messages=[*HI, message, *results], tools=[WEATHER]
    )
    assert again.choices[0].message.content == "Hello wörld"


def test_parallel_calls_are_left_out_where_they_are_not_wanted(client):
    found = client.chat.completions.create(
        model="caller", messages=HI, tools=[WEATHER], parallel_tool_calls=False
    )
    assert len(found.choices[0].message.tool_calls) == 1
    assert found.choices[0].finish_reason == "tool_calls"


def test_reasoning_has_both_names(client):
    found = client.chat.completions.create(
        model="thinker", messages=HI, reasoning_effort="low"
    )
    message = found.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes", "hm")
    assert message.reasoning == "hm"


def test_vectors_and_older_completions_are_answered(client):
    found = client.embeddings.create(model="hello", input=["a", "b"])
    plain = client.embeddings.create(
        model="hello", input=["a", "b"], encoding_format="float"
    )
    for one, other in zip(found.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, rel=1e-6)
    text = client.completions.create(model="hello", prompt="hi").choices[0].text
    assert text == "Hello wörld"
    assert [model.id for model in client.models.list()] == [*SCRIPTS]


def test_base64_is_what_the_client_asks_for_by_itself(client):
    raw = client.embeddings.with_raw_response.create(model="hello", input="a")
    [entry] = json.loads(raw.text)["data"]
    assert len(base64.b64decode(entry["embedding"])) % struct.calcsize("f") == 0
    assert raw.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "big"}, openai.NotFoundError, "model_not_found"),
        ({"n": 2}, openai.BadRequestError, "unsupported_parameter"),
        ({"temperature": 3}, openai.BadRequestError, "invalid_request"),
        ({"extra_body": {"mood": 1}}, openai.BadRequestError, "unknown_parameter"),
        ({"reasoning_effort": "huge"}, openai.BadRequestError, "invalid_request"),
    ],
)
def test_a_refusal_is_the_clients_own_error(client, fields, kind, code):
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": "hello", "messages": HI, **fields})
    assert caught.value.code == code


def test_leaving_a_stream_ends_the_request_in_the_daemon(daemon, client):
    with client.chat.completions.create(
        model="endless", messages=HI, stream=True, max_tokens=90_000
    ) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    assert no_requests(daemon)


@LEAVES_GENERATORS
async def test_the_async_client_runs_on_trio(bridge):
    async with bridge.async_client() as client:
        ask = partial(client.chat.completions.create, messages=HI, tools=[WEATHER])
        message = (await ask(model="caller")).choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "12 °C"}
            for call in message.tool_calls
        ]
        found = await ask(model="hello", messages=[*HI, message, *results])
        assert found.choices[0].message.content == "Hello wörld"
        vectors = await client.embeddings.create(model="hello", input=["a", "b"])
        assert len(vectors.data) == 2
        stream = await client.chat.completions.create(
            model="hello", messages=HI, stream=True
        )
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(texts) == "Hello wörld"


@LEAVES_GENERATORS
@pytest.mark.parametrize("streams", [False, True])
async def test_leaving_ends_the_request_in_the_daemon(daemon, bridge, streams):
    async with bridge.async_client() as client:
        with trio.move_on_after(PATIENCE_S) as scope:
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    found = await client.chat.completions.create(
                        model="endless", messages=HI, stream=streams, max_tokens=90_000
                    )
                    async for _ in found:
                        pass

                async def leave() -> None:
                    with daemon.admin() as admin:
                        while not admin.order("requests")["requests"]:
                            await trio.lowlevel.checkpoint()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(ask)
                nursery.start_soon(leave)
    assert not scope.cancelled_caught
    assert await trio.to_thread.run_sync(no_requests, daemon)


# --- who asks ------------------------------------------------------------------------


def test_a_token_is_made_listed_used_and_removed(daemon, bridge):
    made = command(daemon, "token", "add", "ada", "--scope", "models")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert key not in bridge.tokens.read_text()
    listed = command(daemon, "token", "list").stdout
    assert listed.split()[0] == "ada"
    assert listed.split()[2] == "models"
    with (
        bridge.client(api_key=key) as client,
        pytest.raises(openai.APIStatusError) as no,
    ):
        client.chat.completions.create(model="hello", messages=HI)
    assert no.value.status_code == 403
    assert command(daemon, "token", "remove", "ada").returncode == 0
    with (
        bridge.client(api_key=key) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    assert command(daemon, "token", "remove", "ada").returncode == 2
    assert command(daemon, "token", "add", "a b").returncode == 2


def test_the_log_of_the_daemon_names_the_tokens_of_its_gateway(daemon, bridge):
    key = command(daemon, "token", "add", "bob").stdout.strip()
    with bridge.client(api_key=key) as client:
        answer = client.chat.completions.create(model="hello", messages=HI)
    assert command(daemon, "token", "remove", "bob").returncode == 0
    request_id = answer.id.replace("chatcmpl-", "req_")
    assert daemon.logged(msg="v2_request_done", req_id=request_id, principal="bob")


def test_a_unix_socket_is_served_as_well(daemon, bridge):
    path = daemon.scratch / "http.sock"
    with bridge_to(daemon, "--listen", str(path)):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(path))
            sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: any\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
    assert not path.exists()


def test_the_commands_of_its_page_work(daemon, bridge):
    lines = commands("docs/bridge.md")
    serve, ask, _, add, *_ = lines
    assert serve == "inferd bridge"
    ask = ask.replace("http://127.0.0.1:8313", bridge.address).replace(
        '"chat"', '"hello"'
    )
    answered = subprocess.run(ask, shell=True, capture_output=True, check=True)  # noqa: S602
    assert json.loads(answered.stdout)["choices"][0]["message"]["content"]
    words = add.removeprefix(f"{serve} ").split()
    assert command(daemon, *words).stdout.startswith("inferd-")
    assert command(daemon, "token", "remove", "ada").returncode == 0


def test_a_request_in_a_body_of_ambiguous_length_is_not_answered(bridge):
    inner = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    body = b"0\r\n\r\n" + inner
    lengths = b"Content-Length: %d\r\nTransfer-Encoding: chunked" % len(body)
    head = b"POST /health HTTP/1.1\r\nHost: localhost\r\n" + lengths + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", bridge.port), PATIENCE_S) as sock:
        sock.sendall(head + body)
        answer = b""
        with suppress(ConnectionResetError):
            while part := sock.recv(4096):
                answer += part
    assert answer.count(b"HTTP/1.1") <= 1  # none where the end comes first
    assert b"HTTP/1.1 200" not in answer


# --- the daemon and the bridge end ----------------------------------------------------


def test_a_bridge_without_a_daemon_says_so_and_recovers(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": scripts()})
    with bridge_to(daemon) as bridge, bridge.client() as client:
        with pytest.raises(openai.APIStatusError) as down:
            client.chat.completions.create(model="hello", messages=HI)
        assert (down.value.status_code, down.value.code) == (503, "backend_unavailable")
        assert str(daemon.scratch) not in down.value.message
        daemon.start()
        client.chat.completions.create(model="hello", messages=HI)


def test_a_worker_that_dies_ends_a_stream_with_an_error(make_daemon: MakeDaemon):
    dying = mock(tokens=["a", "b", "c"], die_after_tokens=2, token_delay_ms=20)
    daemon = make_daemon({"backend": [dying]}).start()
    with bridge_to(daemon) as bridge, bridge.client() as client:
        stream = client.chat.completions.create(model="mock", messages=HI, stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert caught.value.code == "backend_unavailable"


def test_a_bridge_that_is_stopped_finishes_its_streams(daemon):
    with bridge_to(daemon) as bridge, bridge.client() as client:
        stream = client.chat.completions.create(
            model="endless", messages=HI, stream=True, max_tokens=50
        )
        assert next(stream).choices
        bridge.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: bool(bridge.logged("bridge.draining")))
        assert [*stream][-1].choices[0].finish_reason == "length"
        assert bridge.process.wait(PATIENCE_S) == 0


def test_answers_that_take_too_long_for_a_bridge_that_is_stopped_fail(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": scripts(), "bridge": {"drain_s": 0.01}}).start()
    with bridge_to(daemon) as bridge, bridge.client() as client:
        asked = {"model": "endless", "messages": HI}
        stream = client.chat.completions.create(stream=True, **asked)
        assert next(stream).choices
        bridge.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="going down") as caught:
            list(stream)
        assert caught.value.code == "backend_unavailable"
        assert bridge.process.wait(PATIENCE_S) == 0
    assert no_requests(daemon)


def test_a_bridge_whose_log_nobody_reads_serves_and_ends(daemon):
    path = daemon.scratch / "unread.sock"
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    os.set_blocking(write_end, True)
    words = ("--config", str(daemon.config_file), "--listen", str(path))
    with subprocess.Popen([*BRIDGE, *words], stderr=write_end) as process:
        os.close(write_end)
        try:
            assert eventually(path.exists)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(str(path))
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: any\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            os.close(read_end)


def test_another_address_than_loopback_is_refused_without_tls(daemon):
    refused = command(daemon, "--listen", "0.0.0.0:0")
    assert refused.returncode == 2
    assert "bridge.certificate" in refused.stderr


def test_tls_is_spoken_where_there_is_a_certificate(daemon, bridge):
    folder = daemon.scratch
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", *subject),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    config = folder / "tls.toml"
    config.write_text(
        daemon.config_file.read_text()
        + f'certificate = "{folder}/cert.pem"\nkey = "{folder}/key.pem"\n'
    )
    with bridge_to(daemon, "--config", str(config)) as made:
        assert made.address.startswith("https://")
        environ = {**os.environ, "SSL_CERT_FILE": str(folder / "cert.pem")}
        found = subprocess.run(
            [
                "curl",
                "--silent",
                "--cacert",
                str(folder / "cert.pem"),
                f"{made.address}/health",
            ],
            capture_output=True,
            text=True,
            env=environ,
            check=False,
        )
        assert found.stdout == '{"status":"ok"}'


def test_a_missing_extra_is_one_line_with_what_to_type(daemon, tmp_path):
    (tmp_path / "hypercorn.py").write_text(
        "raise ModuleNotFoundError(name='hypercorn')"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = ["-m", "inferd", "bridge", "--config", str(daemon.config_file)]
    failed = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert failed.returncode == 2
    assert "hint: make setup" in failed.stderr
    assert "Traceback" not in failed.stderr
