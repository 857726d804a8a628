"""A real daemon in front of another one: over its sockets, and through its bridge."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table
from tests.daemon.connection import blocks
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock
from tests.daemon.speech import SECOND, recording

pytestmark = pytest.mark.slow

V2: Final = "infer.v2.sock"
TOOL: Final = {
    "name": "add",
    "description": "",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
CALL: Final = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ABLE: Final = {"kind": "inferd", "tools": True, "thinking": True, "n_ctx": 4096}
FULL: Final = b'{"type":"error","id":"r","code":"queue_full","message":"full","retry_after_ms":70}\n'
BOTH: Final = ("sockets", "bridge")


def far(name: str, base_url: str, **settings: Any) -> Table:
    return {"name": name, "base_url": base_url, "model": "mock", **ABLE, **settings}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that asks another one in both ways."""
    path = tmp_path_factory.mktemp("b") / "b.sock"
    with daemons() as make:
        speaker = mock(
            tokens=["<think>\nHm.\n</think>\n\n", "Let ", "me see.", CALL], vision=True
        )
        heard = mock(tokens=["One ", "two."], transcribe=True) | {"name": "ear"}
        behind = make({"backend": [speaker, heard]}).start()
        with bridge_to(behind, "--listen", str(path)):
            urls = {"sockets": f"sockets:{behind.directory}", "bridge": f"unix:{path}"}
            backends = [far(name, url, vision=True) for name, url in urls.items()]
            ears = [
                far(f"{name}-ear", url, generate=False, transcribe=True)
                | {"model": "ear", "tools": False, "thinking": False}
                for name, url in urls.items()
            ]
            yield make({"backend": [*backends, *ears]}).start()


@pytest.mark.parametrize("name", BOTH)
def test_a_conversation_is_that_of_the_daemon_behind(front, name):
    picture = {"kind": "image", "id": "i", "width": 1, "height": 1, "bytes": "AAAA"}
    content = [{"type": "image", "attachment_id": "i"}, {"type": "text", "text": "?"}]
    with front.connect(V2) as client:
        *frames, done = client.ask(
            blocks(
                id="a",
                model=name,
                tools=[TOOL],
                thinking=True,
                max_tokens=50,
                seed=5,
                messages=[{"role": "user", "content": content}],
                attachments=[picture],
            )
        )
        [counted] = client.ask(blocks(id="b", model=name, max_tokens=0))
        *_, stopped = client.ask(blocks(id="c", model=name, stop=["me"]))
    said = [each["block"] for each in frames]
    assert "".join(b["delta"] for b in said if b["type"] == "thinking").strip() == "Hm."
    assert "".join(b["delta"] for b in said if b["type"] == "text") == "Let me see."
    [call] = [block for block in said if block["type"] == "tool_use"]
    assert (call["name"], call["input"]) == ("add", {"a": 1})
    assert (done["stop_reason"], done["seed"]) == ("tool_use", 5)
    assert done["usage"]["output_tokens"] == 4
    assert "is_estimate" not in done["usage"]
    assert "is_estimate" not in counted["usage"]
    assert stopped["stop_reason"] == "stop_sequence"


@pytest.mark.parametrize("name", BOTH)
def test_a_recording_is_transcribed_by_the_daemon_behind(front, name):
    with front.connect(V2) as client:
        client.send(recording(2 * SECOND, model=f"{name}-ear"))
        *frames, done = client.frames()
    assert "".join(each["block"]["delta"] for each in frames).strip() == "One two."
    assert [each["block"]["end_ms"] for each in frames] == [1000, 2000]
    assert done["transcription"]["audio_ms"] == 2000


@pytest.mark.parametrize("conversation", ["local", "remote"])
def test_daemons_that_ask_each_other_end_with_one_refusal(
    make_daemon: MakeDaemon, short_dir: Path, tmp_path: Path, conversation: str
):
    path = short_dir / "b.sock"
    asking = {"tools": False, "thinking": False, "conversation": conversation}
    first = make_daemon(
        {"backend": [far("a", f"unix:{path}", **asking) | {"model": "b"}]}
    )
    second = make_daemon(
        {
            "chats": {"database": str(tmp_path / "chats.db")},
            "backend": [far("b", f"sockets:{first.directory}") | {"model": "a"}],
        }
    ).start()
    with bridge_to(second, "--listen", str(path)):
        first.start()
        [refusal] = first.ask(model="a")
        assert "has passed the request on" in refusal["message"]
        if conversation == "local":
            assert refusal["code"] == "invalid_request"
            [refusal] = second.ask(model="b")
            assert refusal["code"] == "invalid_request"
        assert not [each for each in first.log_lines() if "suspended" in each["msg"]]


def test_an_end_that_is_not_there_or_says_nothing_is_one_error(
    make_daemon: MakeDaemon, short_dir: Path
):
    lies = {
        b"": "ended in its middle",
        b'{"type": "frame", "id": "r", "block": {"type": "text", "delta": "a"}}\n': (
            "ended in its middle"
        ),
        b"no json\n": "not part of an answer",
        b"x" * 3000: "line of over 2048 bytes",
    }
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / V2))
        listener.listen()
        backend = far("a", f"sockets:{short_dir}", max_event_bytes=2048)
        gone = far("gone", f"sockets:{short_dir}/none")
        daemon = make_daemon({"backend": [backend, gone]}).start()
        for lie, reason in lies.items():
            with daemon.connect() as asker:
                asker.send(generate(model="a"))
                connection, _ = listener.accept()
                with connection:
                    request = json.loads(connection.makefile("rb").readline())
                    assert len(request["via"]) == 1
                    connection.sendall(lie)
                *_, error = asker.frames()
            assert error["code"] == "backend_unavailable"
            assert reason in error["message"]
            # one that is refused in order forgets the failures before it
            with daemon.connect() as asker:
                asker.send(generate(model="a"))
                connection, _ = listener.accept()
                with connection:
                    connection.makefile("rb").readline()
                    connection.sendall(FULL)
                *_, error = asker.frames()
            assert error["retry_after_ms"] == 70
        [error] = daemon.ask(model="gone")
        assert "No such file" in error["message"]


def test_a_bridge_keeps_the_conversation_and_is_sent_what_is_new(
    make_daemon: MakeDaemon, short_dir: Path, tmp_path: Path
):
    path = short_dir / "b.sock"
    chats = {"database": str(tmp_path / "chats.db")}
    endless = mock(name="endless", tokens=["a "] * 500, token_delay_ms=20)
    behind = make_daemon(
        {"backend": [mock(tokens=["Hi ", "you."]), endless]} | {"chats": chats}
    ).start()
    with bridge_to(behind, "--listen", str(path)):
        kept = {"kind": "inferd", "base_url": f"unix:{path}", "conversation": "remote"}
        backends = [
            {"name": f"far-{each}", "model": each, **kept}
            for each in ("mock", "endless")
        ]
        front = make_daemon({"backend": backends}).start()
        content: Any = [{"type": "text", "text": "Hello."}]
        said = [{"role": "user", "content": content}]
        texts: list[str] = []
        with front.connect(V2) as client:
            for number in range(2):
                *frames, done = client.ask(
                    blocks(id=str(number), model="far-mock", messages=said)
                )
                assert done["type"] == "done"
                texts.append("".join(each["block"]["delta"] for each in frames))
                answer = {"type": "text", "text": texts[-1]}
                said += [{"role": "assistant", "content": [answer]}, said[0]]
            said[1] = {"role": "assistant", "content": content}
            [refusal] = client.ask(blocks(id="x", model="far-mock", messages=said))
            client.send(blocks(id="y", model="far-endless", messages=said[:1]))
            client.frame()
        assert texts == ["Hi you.", "Hi you."]
        assert refusal["code"] == "invalid_request"
        assert "is not kept at the remote" in refusal["message"]
        [dropped, chat] = kept_chats(path)
        assert [each["content"] for each in chat["messages"]] == [
            "Hello.",
            "Hi you.",
        ] * 2
        assert dropped["messages"][-1]["state"] == "cancelled"


def kept_chats(path: Path) -> list[dict[str, Any]]:
    """Read the chats of a bridge, the latest first, when no answer is unfinished."""
    with httpx2.Client(
        transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://b"
    ) as http:
        while True:
            chats = http.get("/chats").json()["chats"]
            found = [http.get(f"/chats/{each['id']}").json() for each in chats]
            states = {m["state"] for each in found for m in each["messages"]}
            if not states & {"pending", "in_progress"}:
                return found
