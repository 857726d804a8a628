"""Answers that call tools of a real server, through a real bridge and daemon."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferd.config.tools import MAX_TOOL_ROUNDS
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tests.daemon.harness import eventually
from tests.daemon.test_chats import Person, tokens

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

PROGRAM = Path(__file__).parents[1] / "fakes/tool_server.py"


def calls(server: str) -> list[str]:
    call = json.dumps({"name": f"{server}__add", "arguments": {"a": 1, "b": 2}})
    return ["Let me see. ", f"<tool_call>{call}</tool_call>"]


def tool_server(name: str, what: str, **settings: object) -> dict[str, object]:
    command = [sys.executable, str(PROGRAM), what]
    return {
        "name": name,
        "command": command,
        "reads": [str(PROGRAM)],
        "start_s": 600,
        **settings,
    }


@pytest.fixture(scope="module")
def bridge(tmp_path_factory) -> Iterator[BridgeProcess]:
    folder = tmp_path_factory.mktemp("tools")
    servers = [
        tool_server("free", "honest", allowed=["*"]),
        tool_server("asks", "honest"),
        tool_server("lies", "lies", by_default=False),
    ]
    chats = {"database": str(folder / "chats.db"), "tool_servers": servers}
    backends = [mock(name=name, tokens=calls(name)) for name in ("free", "asks")]
    with daemons() as make:
        daemon = make({"backend": backends, "chats": chats}).start()
        with bridge_to(daemon, "--development") as made:
            yield made


@pytest.fixture
def ada(bridge: BridgeProcess) -> Iterator[Person]:
    person = Person(bridge, "ada")
    yield person
    person.http.close()


def test_an_answer_calls_an_allowed_tool_until_it_must_answer(ada):
    chat = ada.chat(settings={"tool_servers": ["free", "lies"]})
    answer = ada.say(chat, "One and two?", "free")
    events, last = ada.events(answer)
    told = [each["tool_call"] for each in events if each["event_type"] == "tool_call"]
    ended = [
        each["tool_call"] for each in events if each["event_type"] == "tool_result"
    ]
    assert len(told) >= len(ended) == MAX_TOOL_ROUNDS
    assert {(each["state"], each["result"]) for each in ended} == {("done", "sum 3")}
    message = events[-1]["message"]
    assert (message["state"], last) == ("complete", "end")
    assert message["content"].startswith("Let me see. Let me see. ")
    [note] = message["notes"]
    assert "the tool server lies: it sent a line that is no message" in note
    again, _ = ada.events(answer, "0-0-1-1")
    rest = [each["event_type"] for each in again]
    assert rest.count("tool_result") == MAX_TOOL_ROUNDS - 1
    more = ada.say(chat, "And now?", "free", message["id"])
    assert ada.events(more)[0][-1]["message"]["state"] == "complete"


def test_a_call_waits_for_its_user_and_for_nobody_else(bridge, ada):
    eve = Person(bridge, "eve")
    answer = ada.say(ada.chat(settings={"tool_servers": ["asks"]}), "Sum?", "asks")

    def waiting() -> list[dict[str, object]]:
        found = ada.ask("GET", answer)["tool_calls"]
        return [each for each in found if each.get("state") == "waiting"]

    assert eventually(lambda: bool(waiting()))
    [call] = waiting()
    path = f"{answer}/tool_calls/{call['id']}"
    eve.ask("POST", path, {"allow": True}, 404)
    assert ada.ask("POST", f"{answer}/tool_calls/none", {"allow": True}, 404)
    assert ada.ask("POST", path, {"allow": True})["state"] == "in_progress"
    ada.ask("POST", path, {"allow": False})  # the first word counts

    def first() -> dict[str, object]:
        found: dict[str, object] = ada.ask("GET", answer)["tool_calls"][0]
        return found

    assert eventually(lambda: first().get("result") == "sum 3")
    assert eventually(lambda: bool(waiting()))
    [second] = waiting()
    ada.ask("POST", f"{answer}/tool_calls/{second['id']}", {"allow": False})
    assert eventually(lambda: len(ada.ask("GET", answer)["tool_calls"]) > 2)
    denied = ada.ask("GET", answer)["tool_calls"][1]
    assert (denied["state"], denied["result"]) == (
        "denied",
        "The user did not allow this call.",
    )
    stopped = ada.ask("POST", f"{answer}/stop", {})
    assert stopped["state"] == "cancelled"
    ended = ada.ask("POST", path, {"allow": True}, 409)
    assert ended["error"]["code"] == "chat_conflict"
    assert tokens(ada.events(answer, "0-0-0")[0])
    eve.http.close()


def test_what_servers_offer_is_told(ada):
    listed = {each["name"]: each for each in ada.ask("GET", "/configs/tool_servers")}
    assert listed["free"]["tools"] == [
        {"name": "add", "description": "Add two numbers.", "is_allowed": True}
    ]
    assert not listed["asks"]["tools"][0]["is_allowed"]
    assert "no message of MCP" in listed["lies"]["error"]
