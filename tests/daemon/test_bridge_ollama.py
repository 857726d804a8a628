"""Ollama's own client in front of a real bridge and daemon."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest
import trio

from tests.daemon.bridge import BridgeProcess, bridge_to, no_requests
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock

pytestmark = pytest.mark.slow

HI: Any = [{"role": "user", "content": "hi"}]
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Köln"}}</tool_call>'
SCRIPTS = {
    "hello": ["Hel", "lo ", "wörld"],
    "caller": ["<think>", "hm", "</think>", "Look: ", CALL, CALL],
    "endless": ["x"] * 100_000,
    "tagged:latest": ["T"],
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """One daemon for all tests."""
    with daemons() as make:
        tables = [
            mock(name=name, tokens=tokens, token_delay_ms=20 * (name == "endless"))
            for name, tokens in SCRIPTS.items()
        ]
        tables[0]["aliases"] = ["hi"]
        yield make({"backend": tables}).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    """One bridge to it."""
    with bridge_to(daemon) as made:
        yield made


@pytest.fixture
def client(bridge: BridgeProcess) -> Iterator[ollama.Client]:
    """Ollama's client."""
    with ollama.Client(bridge.address) as made:
        yield made


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: where.
    """
    return f"{city}: 12 °C"


def test_a_chat_is_answered_and_streamed_alike(client):
    found = client.chat("hello", HI)
    assert (found.message.role, found.message.content) == ("assistant", "Hello wörld")
    assert (found.model, found.done, found.done_reason) == ("hello", True, "stop")
    assert found.eval_count == 3
    times = (found.load_duration, found.prompt_eval_duration, found.eval_duration)
    assert 0 <= max(times) <= found.total_duration
    *parts, last = client.chat("hello", HI, stream=True)
    assert [part.message.content for part in parts] == SCRIPTS["hello"]
    assert not any(part.done for part in parts)
    assert (last.done, last.message.content, last.eval_count) == (True, "", 3)


def test_calls_go_round(client):
    first = client.chat("caller", HI, tools=[weather], think=True)
    assert (first.message.thinking, first.message.content.strip()) == ("hm", "Look:")
    calls = first.message.tool_calls
    assert [call.function.arguments for call in calls] == [{"city": "Köln"}] * 2
    results = [
        {
            "role": "tool",
            "tool_name": call.function.name,
            "content": weather(**call.function.arguments),
        }
        for call in calls
    ]
    again = client.chat("hello", [*HI, first.message, *results], tools=[weather])
    assert again.message.content == "Hello wörld"
    streamed = [*client.chat("caller", HI, tools=[weather], stream=True)]
    assert [part.message.thinking for part in streamed if part.message.thinking] == [
        "hm"
    ]
    assert len([part for part in streamed if part.message.tool_calls]) == 2


def test_a_prompt_is_completed(client):
    found = client.generate(
        "hello", "hi", system="brief", options={"num_predict": 2, "temperature": 0}
    )
    assert (found.response, found.done_reason) == ("Hello ", "length")
    *parts, last = client.generate("caller", "hi", stream=True)
    assert [part.thinking for part in parts if part.thinking] == ["hm"]
    assert (last.response, last.done) == ("", True)


def test_texts_are_embedded_in_both_forms(client):
    both = client.embed("hello", ["a", "b"]).embeddings
    assert len(both) == 2
    assert client.embed("hello", "a").embeddings[0] == both[0]
    assert client.embeddings("hello", "a").embedding == both[0]
    assert client.embed("hello", []).embeddings == []


def test_a_name_is_the_same_with_and_without_its_latest_tag(client):
    for name in ("hello", "hello:latest", "hi", "hi:latest"):
        assert client.chat(name, HI).message.content == "Hello wörld"
    for name in ("tagged", "tagged:latest"):
        assert client.chat(name, HI).message.content == "T"
        assert client.show(name).capabilities
    with pytest.raises(ollama.ResponseError, match=r'model "big"') as missing:
        client.chat("big", HI)
    assert missing.value.status_code == 404


def test_models_are_told(client):
    listed = {model.model: model for model in client.list().models}
    assert set(listed) == {*SCRIPTS, "hi"}
    assert listed["hello"].modified_at is not None
    assert {model.model for model in client.ps().models} == set(SCRIPTS)
    shown = client.show("hi")
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities)
    with pytest.raises(ollama.ResponseError, match="'big' not found") as missing:
        client.show("big")
    assert missing.value.status_code == 404


def test_what_is_not_served_is_refused_in_ollamas_form(client):
    for options, what in (({"mirostat": 1}, "options: mirostat"), ({"x": 1}, "x")):
        with pytest.raises(ollama.ResponseError, match=what) as refused:
            client.chat("hello", HI, options=options)
        assert refused.value.status_code == 400
    for manage, what, status in (
        (client.push, "inferd model", 403),
        (client.pull, "hf.co/OWNER", 404),
        (client.delete, "inferd bridge helper", 501),
    ):
        with pytest.raises(ollama.ResponseError, match=what) as denied:
            manage("hello")
        assert denied.value.status_code == status


def test_a_request_without_a_prompt_loads_its_model(client):
    loaded = client.generate("hello")
    assert (loaded.response, loaded.done, loaded.done_reason) == ("", True, "load")
    [only] = client.chat("hello", [], stream=True, keep_alive=0)
    assert (only.message.content, only.done_reason) == ("", "unload")


def test_leaving_a_stream_ends_the_request_in_the_daemon(daemon, client):
    stream = client.chat("endless", HI, stream=True, options={"num_predict": -1})
    assert next(stream).message.content == "x"
    stream.close()
    assert no_requests(daemon)


async def test_the_async_client_streams_calls_and_is_cancelled(daemon, bridge):
    async with ollama.AsyncClient(bridge.address) as client:
        parts = [
            part.message.content
            async for part in await client.chat("hello", HI, stream=True)
        ]
        assert "".join(parts) == "Hello wörld"
        first = (await client.chat("caller", HI, tools=[weather])).message
        results = [
            {"role": "tool", "tool_name": call.function.name, "content": "12 °C"}
            for call in first.tool_calls
        ]
        again = await client.chat("hello", [*HI, first, *results])
        assert (len(results), again.message.content) == (2, "Hello wörld")
        assert len((await client.embed("hello", ["a", "b"])).embeddings) == 2
        stream = await client.chat(
            "endless", HI, stream=True, options={"num_predict": -1}
        )
        with trio.CancelScope() as scope:
            async for part in stream:
                assert part.message.content == "x"
                scope.cancel()
        assert scope.cancelled_caught
    assert no_requests(daemon)


def test_a_stream_that_fails_ends_with_a_line_that_says_so(make_daemon):
    dying = mock(tokens=["a", "b", "c"], die_after_tokens=2, token_delay_ms=20)
    daemon = make_daemon({"backend": [dying]}).start()
    with bridge_to(daemon) as bridge, ollama.Client(bridge.address) as client:
        texts = []
        with pytest.raises(ollama.ResponseError):
            for part in client.chat("mock", HI, stream=True):
                texts.append(part.message.content)  # noqa: PERF401  # it raises
    assert texts[:1] == ["a"]


def test_streams_are_lines_and_a_probe_is_answered(bridge):
    with httpx.Client(base_url=bridge.address) as http:
        found = http.post("/api/chat", json={"model": "hello", "messages": HI})
        assert found.headers["content-type"] == "application/x-ndjson"
        lines = found.text.splitlines()
        assert [json.loads(line)["done"] for line in lines] == [False] * 3 + [True]
        assert http.head("/").status_code == 200
        assert http.get("/").text == "inferd is running"
        assert http.get("/api/version").json()["version"].count(".") == 2
        missing = http.get("/api/nothing")
        assert (missing.status_code, [*missing.json()]) == (404, ["error"])
        for path in ("/v1/moderations", "/v1/images/generations", "/v1/files"):
            other = http.post(path, json={})
            assert other.status_code == 404
            assert other.json()["error"]["code"] == "route_not_found"
