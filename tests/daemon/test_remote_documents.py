"""Jobs of remotes that are answered by one document: vectors, scores, counts and transcripts.

A real bridge is asked as a server with OpenAI's API and as whisper.cpp's; llama-server's answers
were recorded (``tests/unit/worker/remote/openai/exchanges``).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table
from tests.daemon.connection import blocks
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock
from tests.daemon.speech import SECOND, V2, live, recording, said
from tests.fakes.remote_engine import RemoteEngine, sends, serving

pytestmark = pytest.mark.slow

EXCHANGES: Final = (
    Path(__file__).parents[1] / "unit" / "worker" / "remote" / "openai" / "exchanges"
)
WORDS: Final = (" One", " two", " three.")


def far(name: str, base_url: str, **settings: Any) -> Table:
    known = {"name": name, "kind": "openai", "base_url": base_url, "model": "mock"}
    return {**known, **settings}


def recorded(name: str) -> bytes:
    head, _, body = (EXCHANGES / f"{name}.answer").read_bytes().partition(b"\n\n")
    code, media_type = head.split()
    return b"HTTP/1.1 %b x\r\nContent-Type: %b\r\nConnection: close\r\n\r\n%b" % (
        *(code, media_type),
        body,
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    with serving() as engine:
        yield engine


@pytest.fixture(scope="module")
def front(
    engine: RemoteEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonProcess]:
    with daemons() as make:
        hears = mock(tokens=WORDS, transcribe=True, audio=True)
        behind = make({"backend": [hears]}).start()
        path = behind.scratch / "b.sock"
        there = f"unix:{path}"
        whisper = {"name": "whisper", "kind": "whisper-server", "base_url": there}
        vectors = {"generate": False, "embed": True, "rerank": True}
        backends = [
            far("vectors", there, **vectors),
            far("speech", there, generate=False, transcribe=True),
            whisper,
            far("llama", engine.url, **vectors, n_embd=4),
            far("chat", engine.url, logprobs=True, counting="llama-server"),
        ]
        with bridge_to(behind, "--listen", str(path)):
            yield make({"backend": backends}).start()


def ask(front: DaemonProcess, surface: str, **fields: Any) -> dict[str, Any]:
    with front.connect(f"infer.{surface}.sock") as client:
        [frame] = client.ask({"id": "a", **fields})
    return frame


def test_vectors_and_scores_of_a_bridge_are_those_of_the_daemon_behind_it(front):
    both = {"input": ["x", "y"], "model": "vectors"}
    whole, short = (
        ask(front, "embed", **both),
        ask(front, "embed", **both, dimensions=3),
    )
    for frame, length in ((whole, 8), (short, 3)):
        for vector in frame["embeddings"]:
            assert len(vector) == length
            assert sum(each * each for each in vector) == pytest.approx(1)
    documents = ["nothing", "red fox", "a red fox"]
    ranked = ask(front, "rerank", query="red fox", documents=documents, model="vectors")
    assert [each["index"] for each in ranked["results"]] == [1, 2, 0]
    refused = ask(front, "embed", **both, task="query")
    assert refused["code"] == "invalid_request"


def test_what_llama_server_answered_is_read(front, engine):
    engine.script = sends(recorded("embeddings"))
    frame = ask(front, "embed", input=["a", "b"], model="llama")
    assert (frame["dimensions"], frame["usage"]) == (4, {"input_tokens": 7})
    [more] = [ask(front, "embed", input=["a"], model="llama")]
    assert more["code"] == "backend_unavailable"
    assert "2 vectors, of 1 lengths, for 1 texts" in more["message"]
    engine.script = sends(recorded("rerank"))
    ranked = ask(front, "rerank", query="q", documents=["a", "b"], model="llama")
    assert [each["index"] for each in ranked["results"]] == [1, 0]
    assert ranked["results"][0]["score"] == pytest.approx(-9.877138, rel=1e-6)


def test_tokens_of_llama_server_are_counted_and_have_log_probabilities(front, engine):
    with front.connect(V2) as client:
        engine.script = sends(recorded("count"))
        [counted] = client.ask(blocks(id="b", model="chat", max_tokens=0))
        engine.script = sends(recorded("logprobs"))
        *frames, done = client.ask(
            blocks(id="a", model="chat", max_tokens=9, logprobs=1)
        )
    assert counted["usage"]["input_tokens"] == 33
    assert "".join(each["block"]["delta"] for each in frames) == "Hello! I's"
    tokens = [one for each in frames for one in each["logprobs"]]
    assert [(each["token"], each["id"]) for each in tokens] == [
        ("Hello", 19556),
        ("!", 17),
        (" I", 339),
        ("'s", 506),
    ]
    assert [len(each["top_logprobs"]) for each in tokens] == [1, 1, 1, 1]
    assert done["usage"]["input_tokens"] == 33


@pytest.mark.parametrize("backend", ["speech", "whisper"])
def test_a_recording_is_transcribed_elsewhere(front, backend):
    with front.connect(V2) as client:
        client.send(recording(3 * SECOND, model=backend))
        *frames, done = client.frames()
        assert said(frames) == "One two three."
        times = [(f["block"]["start_ms"], f["block"]["end_ms"]) for f in frames]
        assert times == [(0, 1000), (1000, 2000), (2000, 3000)]
        assert (done["stop_reason"], done["backend"]) == ("end_turn", backend)
        client.send(recording(3 * SECOND, model=backend, timestamps="word"))
        [refused] = client.frames()
        assert refused["code"] == "invalid_request"
        client.send(live(model=backend))
        refused = client.frame()
        assert refused["code"] == "invalid_request"
