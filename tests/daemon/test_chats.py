"""Chats through a real bridge and a real daemon, as Open-Assistant's clients use them."""

import json
import re
import signal
import subprocess
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from inferd.limits.bridge import MAX_PENDING_ANSWERS
from tests.daemon.bridge import BridgeProcess, bridge_to, command
from tests.daemon.configuration import mock, to_toml
from tests.daemon.fixtures import daemons
from tests.daemon.harness import PATIENCE_S, DaemonProcess, clean_environ
from tests.documents.pages import commands
from tests.media_files import png_file, wav_file

pytestmark = pytest.mark.slow

PNG = png_file()
WORDS = [f"word{number} " for number in range(40)]


ADDRESS = "http://127.0.0.1:8313"
COMMANDS = [line for line in commands("docs/chats.md") if line.startswith("curl ")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("chats")
    backends = [
        mock(name="short", tokens=["Hel", "lo"]),
        mock(name="eyes", tokens=["A cat."], vision=True, audio=True),
        mock(name="long", aliases=["chat"], tokens=["x "] * 100_000, token_delay_ms=20),
        mock(name="paced", tokens=WORDS, token_delay_ms=20),
    ]
    with daemons() as make:
        settings = {"database": str(folder / "chats.db")}
        tokens = {"tokens": str(folder / "tokens.json")}
        made = make({"backend": backends, "chats": settings, "bridge": tokens})
        yield made.start()


@pytest.fixture(scope="module")
def bridge(daemon) -> Iterator[BridgeProcess]:
    with bridge_to(daemon, "--development") as made:
        yield made


@pytest.fixture
def sign_in(bridge):
    """Make persons, whose connections are closed at the end."""
    with ExitStack() as stack:

        def made(name: str, at: BridgeProcess = bridge) -> Person:
            person = Person(at, name)
            stack.callback(person.http.close)
            return person

        yield made


class Person:
    """Who chats, signed in by a name."""

    def __init__(self, bridge: BridgeProcess, name: str) -> None:
        self.http = httpx2.Client(base_url=bridge.address, timeout=PATIENCE_S)
        tokens = self.http.get("/auth/callback/debug", params={"code": name}).json()
        token = tokens["access_token"]
        assert token["token_type"] == "bearer"
        self.http.headers["authorization"] = f"Bearer {token['access_token']}"

    def ask(self, method: str, path: str, fields: Any = None, status: int = 200) -> Any:
        reply = self.http.request(method, path, json=fields)
        assert reply.status_code == status, reply.text
        return reply.json() if reply.content else None

    def chat(self, **fields: Any) -> str:
        return str(self.ask("POST", "/chats", fields)["id"])

    def say(self, chat: str, text: str, model: str, parent: str | None = None) -> str:
        prompt = {"parent_id": parent, "content": text}
        sent = self.ask("POST", f"/chats/{chat}/prompter_message", prompt)
        asked = {
            "parent_id": sent["id"],
            "model_config_name": model,
            "sampling_parameters": {"top_p": 0.95, "top_k": 50, "temperature": 1.0},
        }
        answer = self.ask("POST", f"/chats/{chat}/assistant_message", asked)
        assert answer["state"] == "pending"
        return f"/chats/{chat}/messages/{answer['id']}"

    def events(
        self, answer: str, last: str = "", until: int = 10**6
    ) -> tuple[list[dict[str, Any]], str]:
        """Follow an answer, for so many tokens at most; give the events and the last id."""
        headers = {"last-event-id": last} if last else {}
        found: list[dict[str, Any]] = []
        with self.http.stream("GET", f"{answer}/events", headers=headers) as reply:
            if reply.status_code == 204:
                return [], last
            assert reply.headers["content-type"].startswith("text/event-stream")
            for line in reply.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    last = value
                if name == "data":
                    found.append(json.loads(value))
                    if len(tokens(found)) >= until:
                        return found, last
        return found, last


def tokens(events: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in events if each["event_type"] == "token"]


def test_a_chat_is_held_as_open_assistants_clients_hold_it(sign_in):
    ada = sign_in("ada")
    models = ada.ask("GET", "/configs/model_configs")
    names = [each["name"] for each in models]
    assert sorted(names) == ["chat", "eyes", "long", "paced", "short"]
    chat = ada.chat()
    answer = ada.say(chat, "Hi there", "short")
    events, last = ada.events(answer)
    assert events[-1]["event_type"] == "message"
    message = events[-1]["message"]
    assert (message["content"], message["state"]) == ("Hello", "complete")
    assert message["usage"]["output_tokens"] == 2
    assert last == "end"
    assert ada.events(answer) == ([], "")
    assert ada.ask("GET", answer) == message
    whole = ada.ask("GET", f"/chats/{chat}")
    assert (whole["title"], len(whole["messages"])) == ("Hi there", 2)
    both = ada.ask(
        "POST",
        f"/chats/{chat}/messages",
        {
            "parent_id": message["id"],
            "content": "More",
            "model_config_name": "short",
        },
    )
    second = f"/chats/{chat}/messages/{both['message_id']}"
    assert "".join(tokens(ada.events(second, "0-0-0")[0])) == "Hello"
    exported = ada.ask("GET", f"/chats/{chat}/export")
    copied = ada.ask("POST", "/chats/import", exported)
    copy = ada.ask("GET", f"/chats/{copied['id']}")
    texts = [each["content"] for each in copy["messages"]]
    assert texts == ["Hi there", "Hello", "More", "Hello"]
    page = ada.ask("GET", "/chats?limit=1")
    assert [each["id"] for each in page["chats"]] == [copied["id"]]
    rest = ada.ask("GET", f"/chats?after={page['next']}")
    assert [each["id"] for each in rest["chats"]] == [chat]
    changes = {"title": "Named", "hidden": True, "settings": {"context": "refuse"}}
    ada.ask("PUT", f"/chats/{chat}", changes)
    assert [each["id"] for each in ada.ask("GET", "/chats")["chats"]] == [copied["id"]]
    hits = ada.ask("GET", "/chats/search?q=hel")["hits"]
    assert len(hits) == 4
    text = ada.http.get(f"/chats/{chat}/export?format=markdown").text
    assert text.startswith("# Named\n")


def test_the_commands_of_the_document_hold_a_conversation(bridge):
    environ = clean_environ()
    ids = {"chats": "CHAT", "prompter_message": "PROMPT", "assistant_message": "ANSWER"}
    *asks, follows = [line.replace(ADDRESS, bridge.address) for line in COMMANDS]
    for line in asks:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            env=environ,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        [route] = [name for name in ids if f"/{name} " in line]
        environ[ids.pop(route)] = json.loads(done.stdout)["id"]
    assert not ids
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {follows}"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as following:
        assert following.stdout is not None
        while b'"token"' not in following.stdout.readline():
            assert following.poll() is None
        answer = f"{environ['CHAT']}/messages/{environ['ANSWER']}"
        httpx2.post(f"{bridge.address}/chats/{answer}/stop")
        rest = following.stdout.read().decode()
    [*_, last] = map(json.loads, re.findall("data: (.*)", rest))
    assert last["message"]["state"] == "cancelled"


def test_another_person_is_told_that_there_is_nothing(sign_in):
    ada, eve = sign_in("ada"), sign_in("eve")
    chat = ada.chat()
    answer = ada.say(chat, "secret", "short")
    ada.events(answer)
    for method, path, fields in (
        ("GET", f"/chats/{chat}", None),
        ("PUT", f"/chats/{chat}", {"title": "mine"}),
        ("DELETE", f"/chats/{chat}", None),
        ("GET", f"/chats/{chat}/export", None),
        ("GET", answer, None),
        ("GET", f"{answer}/events", None),
        ("POST", f"{answer}/stop", {}),
        ("POST", f"/chats/{chat}/prompter_message", {"content": "x"}),
    ):
        failure = eve.ask(method, path, fields, 404)
        assert failure["error"]["code"] == "chat_not_found"
    assert eve.ask("GET", "/chats/search?q=secret") == {"hits": []}
    assert eve.ask("GET", "/chats")["chats"] == []
    eve.http.headers.pop("authorization")
    assert eve.ask("GET", f"/chats/{chat}", None, 404)


def test_who_may_read_all_chats_reads_them_and_is_logged(sign_in, daemon, bridge):
    ada = sign_in("ada")
    chat = ada.chat(title="private")
    sent = {"content": "", "attachments": [{"data": b64encode(PNG).decode()}]}
    prompt = ada.ask("POST", f"/chats/{chat}/prompter_message", sent)
    file = f"chats/{chat}/attachments/{prompt['attachments'][0]['id']}"
    made = command(daemon, "token", "add", "auditor", "--scope", "chats")
    head = {"authorization": f"Bearer {made.stdout.strip()}"}
    with httpx2.Client(base_url=bridge.address, headers=head) as http:
        listed = http.get("/owners/debug:ada/chats").json()["chats"]
        assert chat in {each["id"] for each in listed}
        read = http.get(f"/owners/debug:ada/chats/{chat}")
        assert (read.status_code, read.json()["title"]) == (200, "private")
        shown = http.get(f"/owners/debug:ada/{file}")
        assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
        assert http.get(f"/owners/debug:ada/{file}0").status_code == 404
        assert http.get(f"/owners/bob/{file}").status_code == 404
        assert http.get(f"/owners/bob/chats/{chat}").status_code == 404
        assert http.get(f"/chats/{chat}").status_code == 403
    assert command(daemon, "token", "remove", "auditor").returncode == 0
    assert sign_in("eve").ask("GET", f"/owners/debug:ada/{file}", None, 403)
    [*_, line] = bridge.logged("chats.read")
    assert (line["principal"], line["owner"]) == ("auditor", "bob")


def test_an_answer_goes_on_without_readers_and_a_second_device_resumes_it(sign_in):
    ada, phone = sign_in("ada"), sign_in("ada")
    answer = ada.say(ada.chat(), "go on", "paced")
    first, last = ada.events(answer, until=3)
    rest, end = phone.events(answer, last)
    assert "".join(tokens(first) + tokens(rest)) == "".join(WORDS)
    assert end == "end"
    assert phone.ask("GET", answer)["state"] == "complete"


def test_stop_ends_an_answer_for_all_who_follow_it(sign_in):
    ada = sign_in("ada")
    answer = ada.say(ada.chat(), "forever", "long")
    seen, last = ada.events(answer, until=2)
    stopped = ada.ask("POST", f"{answer}/stop", {})
    assert stopped["state"] == "cancelled"
    assert stopped["content"].startswith("".join(tokens(seen)))
    rest, _ = ada.events(answer, last)
    assert rest[-1]["message"]["content"] == stopped["content"]
    assert ada.ask("POST", f"{answer}/stop", {}) == stopped
    stored = ada.ask("GET", answer)
    assert stored == stopped


def test_what_a_person_may_keep_waiting_is_bounded(sign_in):
    bob = sign_in("bob")
    chat = bob.chat()
    answers = [bob.say(bob.chat(), "go", "long") for _ in range(MAX_PENDING_ANSWERS)]
    prompt = bob.ask("POST", f"/chats/{chat}/prompter_message", {"content": "go"})
    asked = {"parent_id": prompt["id"], "model_config_name": "long"}
    refused = bob.ask("POST", f"/chats/{chat}/assistant_message", asked, 429)
    assert refused["error"]["code"] == "chat_limit"
    for answer in answers:
        bob.ask("POST", f"{answer}/stop", {})
    chat, answer = (answers[0].split("/")[2], answers[0])
    bob.ask("DELETE", f"/chats/{chat}")
    assert bob.ask("GET", answer, None, 404)
    unknown = {"content": "x", "temperature": 1}
    refused = bob.ask("POST", "/chats/none/prompter_message", unknown, 400)
    assert refused["error"]["code"] == "unknown_parameter"


def test_pictures_and_recordings_are_kept_shown_and_gone_with_their_chat(sign_in):
    ada = sign_in("ada")
    chat = ada.chat()
    files = [
        {"name": "é.png", "data": b64encode(PNG).decode()},
        {"name": "a.wav", "data": b64encode(wav_file()).decode()},
    ]
    fields = {"content": "", "attachments": files, "id": "a" * 32}
    prompt = ada.ask("POST", f"/chats/{chat}/prompter_message", fields)
    assert ada.ask("POST", f"/chats/{chat}/prompter_message", fields) == prompt
    picture, sound = prompt["attachments"]
    assert (picture["name"], picture["n_bytes"]) == ("é.png", len(PNG))
    assert (picture["media_type"], sound["media_type"]) == ("image/png", "audio/wav")
    file = f"/chats/{chat}/attachments/{picture['id']}"
    reply = ada.http.get(file)
    assert (reply.content, reply.headers["content-type"]) == (PNG, "image/png")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"].startswith("attachment;")
    assert sign_in("eve").ask("GET", file, None, 404)

    def last_event(model):
        asked = {"parent_id": prompt["id"], "model_config_name": model}
        made = ada.ask("POST", f"/chats/{chat}/assistant_message", asked)
        answer = f"/chats/{chat}/messages/{made['id']}"
        return ada.events(answer, "0-0-0")[0][-1]

    assert last_event("eyes")["message"]["content"] == "A cat."
    refused = last_event("short")
    assert refused["code"] == "unsupported_parameter"
    assert "no support for image attachments" in refused["error"]
    exported = ada.ask("GET", f"/chats/{chat}/export")
    copied = ada.ask("POST", "/chats/import", exported)["id"]
    [again, _] = ada.ask("GET", f"/chats/{copied}")["messages"][0]["attachments"]
    assert ada.http.get(f"/chats/{copied}/attachments/{again['id']}").content == PNG
    bare = ada.ask("GET", f"/chats/{chat}/export?attachments=false")
    assert "data" not in bare["messages"][0]["attachments"][0]
    ada.ask("DELETE", f"/chats/{chat}")
    assert ada.ask("GET", file, None, 404)["error"]["code"] == "chat_not_found"
    missing = f"/chats/{copied}/attachments/{picture['id']}"
    failure = ada.ask("GET", missing, None, 404)
    assert failure["error"]["code"] == "attachment_not_found"
    empty = ada.ask("POST", f"/chats/{copied}/prompter_message", {"content": ""}, 400)
    assert empty["error"]["param"] == "content"


def test_a_model_that_is_not_there_fails_the_answer_alone(sign_in):
    ada = sign_in("ada")
    answer = ada.say(ada.chat(), "hi", "absent")
    events, _ = ada.events(answer, "0-0-0")
    assert events[-1]["event_type"] == "error"
    assert events[-1]["code"] == "model_not_found"
    assert events[-1]["message"]["state"] == "aborted_by_worker"


def test_a_bridge_that_is_killed_marks_what_ran_and_keeps_its_text(
    daemon, sign_in, tmp_path
):
    config = tmp_path / "own.toml"
    own = tomllib.loads(daemon.config_file.read_text())
    own["chats"] = {"database": str(tmp_path / "own.db")}
    config.write_text(to_toml(own))
    options = ("--development", "--config", str(config))
    killed = BridgeProcess(daemon, *options)
    try:
        ada = sign_in("ada", killed)
        answer = ada.say(ada.chat(), "survive", "long")
        seen, _ = ada.events(answer, until=50)
    finally:
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
    with bridge_to(daemon, *options) as restarted:
        again = sign_in("ada", restarted)
        left = again.ask("GET", answer)
        assert left["state"] == "aborted_by_worker"
        assert "".join(tokens(seen)).startswith(left["content"])
        assert left["content"]
        events, _ = again.events(answer, "0-2-0")
        assert "x " + "".join(tokens(events)) == left["content"]
        assert events[-1]["code"] == "aborted_by_worker"


def test_nobody_signs_in_by_a_name_without_development(daemon):
    with bridge_to(daemon) as plain:
        reply = httpx2.get(f"{plain.address}/auth/callback/debug?code=ada")
        assert reply.status_code == 404
