"""The client that calls back, against a real daemon and over HTTP."""

import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest

from inferd.client.callback import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Config,
    InferenceClient,
    StructuredRequest,
    StructuredResponse,
    TranscriptionRequest,
    TranscriptionResponse,
)
from inferd.client.core.bridge_calls import wav_of
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, mock
from tests.fakes.remote_engine import DONE, HEAD, chunk, sends, serving

pytestmark = pytest.mark.slow

HI: Final = ChatRequest([ChatMessage("user", "hi")], temperature=0.0)
SCHEMA: Final = '{"type":"object","required":["n"]}'
SLOW: Final = {"tokens": ["word "] * 10_000, "token_delay_ms": 20}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with serving() as engine, daemons() as make:
        said = chunk('{"n": ') + chunk("3}") + chunk(reason="stop")
        engine.script = sends(HEAD + said + DONE)
        far = {"name": "json", "kind": "openai", "base_url": engine.url, "model": "m"}
        backends = [
            mock(tokens=["Hel", "lo"], transcribe=True, audio=True),
            {**far, "structure": True, "route_unnamed": True},
            mock(name="slow", **SLOW),
        ]
        yield make({"backend": backends}).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    with bridge_to(daemon) as bridge:
        yield bridge


@pytest.fixture(params=["sockets", "http"])
def client(
    request: pytest.FixtureRequest, daemon: DaemonProcess, bridge: BridgeProcess
) -> Iterator[InferenceClient]:
    place: dict[str, Any] = {"directory": daemon.directory}
    if request.param == "http":
        place = {"url": bridge.address}
    with InferenceClient(**place) as client:
        yield client


def until(client: InferenceClient, handle: int) -> None:
    while client.is_in_flight(handle):
        client.poll()
        threading.Event().wait(0.002)


def test_all_is_answered_over_sockets_and_over_http(client: InferenceClient):
    tokens: list[str] = []
    chats: list[ChatResponse] = []
    until(client, client.chat(HI, tokens.append, chats.append))
    assert tokens == ["Hel", "lo"]
    assert chats == [ChatResponse(full_response="Hello")]
    assert client.last_request_metrics().tokens_generated == 2
    client.configure(Config(model="json"))
    ends: list[StructuredResponse] = []
    wanted = StructuredRequest(HI.messages, "n", SCHEMA)
    until(client, client.complete(wanted, ends.append))
    assert [each.raw_json for each in ends] == ['{"n": 3}'], ends
    assert client.read_result() == {"n": 3}
    client.configure(Config())
    heard: list[TranscriptionResponse] = []
    second = bytes(4 * 16_000)
    for audio in (TranscriptionRequest(second, "f32"), wav_of(second)):
        if isinstance(audio, bytes):
            audio = TranscriptionRequest(audio, "wav")
        until(client, client.transcribe(audio, heard.append))
    told = [each.text.replace("\n", "") for each in heard]  # as whisper.cpp writes them
    assert told == ["Hello"] * 2, heard
    client.configure(Config(model="nobody"))
    until(client, client.chat(HI, tokens.append, chats.append))
    assert (chats[1].error, chats[1].error_code) == (True, "model_not_found")


def test_cancelling_is_told_and_ends_the_request(
    daemon: DaemonProcess, client: InferenceClient
):
    client.configure(Config(model="slow"))
    tokens: list[str] = []
    ends: list[ChatResponse] = []
    handle = client.chat(HI, tokens.append, ends.append)
    while not tokens:
        client.poll()
    client.cancel(handle)
    until(client, handle)
    assert ends[0].cancelled
    assert not ends[0].error
    assert ends[0].full_response.startswith("word ")
    assert daemon.logged(msg="v2_request_abandoned", backend="slow")


def test_who_is_not_there_who_is_silent_and_who_dies(make_daemon: MakeDaemon):
    ends: list[ChatResponse] = []
    places: list[dict[str, Any]] = [
        {"directory": "/nowhere"},
        {"url": "http://127.0.0.1:1"},
    ]
    for place in places:
        with InferenceClient(**place) as client:
            until(client, client.chat(HI, lambda _: None, ends.append))
    silent = mock(name="silent", prepare_delay_ms=600_000)
    daemon = make_daemon({"backend": [mock(**SLOW), silent]}).start()
    config = Config(model="silent", timeout_s=0.1)
    with InferenceClient(daemon.directory, config=config) as client:
        until(client, client.chat(HI, lambda _: None, ends.append))
        client.configure(Config(model="mock", request_timeout_s=0.05))
        until(client, client.chat(HI, lambda _: None, ends.append))
        client.configure(Config(model="mock"))
        tokens: list[str] = []
        handle = client.chat(HI, tokens.append, ends.append)
        while not tokens:
            client.poll()
        daemon.stop(signal.SIGKILL)
        until(client, handle)
    assert [each.error_message for each in ends] == [
        *("Connection refused", "Connection refused"),
        *("Request timed out", "Request timed out", "Stream interrupted"),
    ]
    assert ends[3].full_response.startswith("word ")
    assert ends[4].full_response.startswith("word ")
