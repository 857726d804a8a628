"""Conversations that a bridge keeps, in both directions and without I/O."""

from typing import Any

import msgspec
import pytest

from inferd.backend.job import GenerateJob, Turn
from inferd.config.kinds.inferd import InferdSettings
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.inferd.api import api_of
from inferd.worker.remote.kept_chats.places import ChatPlace, ChatPlaces
from tests.cases import each_case
from tests.unit.worker.remote.openai.jobs import TOOL, job, sampling
from tests.unit.worker.remote.streams import LOCAL

CHAT = "c" * 32
SETTINGS = InferdSettings(
    name="r", base_url="http://b:1", model="m", conversation="remote"
)
FIRST = [Turn("system", "Be brief."), Turn("user", "Hello.")]


def sent(request: RemoteRequest, *answers: Any) -> list[tuple[str, Any]]:
    """Follow the requests of an answer; return their paths and bodies."""
    found = [(request.path, request.body and msgspec.json.decode(request.body))]
    for answer in answers:
        assert request.then is not None
        request = request.then(msgspec.json.encode(answer))
        found.append((request.path, request.body and msgspec.json.decode(request.body)))
    assert request.then is None
    return found


def event(kind: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"event_type": kind, **fields})


def done(**fields: Any) -> bytes:
    message = {"id": "a" * 32, "chat_id": CHAT, "state": "complete"} | fields
    return event("message", message=message)


def test_the_bridge_is_sent_the_new_message_alone_and_the_answer_is_found_again():
    api = api_of(SETTINGS)
    assert api.chat is not None
    first = job(turns=FIRST, max_tokens=9, sampling=sampling(temperature=0.5))
    calls = sent(api.chat.write(SETTINGS, first, ()), {"id": CHAT}, {}, {})
    (begin, chat), (say, prompt), (ask, answer), (follow, nothing) = calls
    assert (begin, chat) == ("/chats", {"settings": {"system_prompt": "Be brief."}})
    assert say == f"/chats/{CHAT}/prompter_message"
    assert prompt == {"id": prompt["id"], "content": "Hello."}
    assert ask == f"/chats/{CHAT}/assistant_message"
    assert answer["parent_id"] == prompt["id"]
    assert answer["sampling_parameters"]["max_new_tokens"] == 9
    assert answer["sampling_parameters"]["temperature"] == 0.5
    assert (follow, nothing) == (f"/chats/{CHAT}/messages/{answer['id']}/events", b"")

    reader = api.chat.make_reader(SETTINGS, 1, first, 7)
    events = [event("pending"), event("token", text="Hi "), event("token", text="you.")]
    usage = {"input_tokens": 5, "output_tokens": 2}
    for each in [*events, done(finish_reason="max_tokens", usage=usage)]:
        reader.read(each)
    assert reader.is_over
    _, ended = reader.finish()
    assert (ended.stop_reason, ended.usage.prompt_tokens) == ("length", 5)

    second = [*FIRST, Turn("assistant", "Hi you."), Turn("user", "And?")]
    again = sent(api.chat.write(SETTINGS, job(turns=second), ()), {}, {})
    assert again[0][1]["parent_id"] == "a" * 32
    assert again[0][1]["content"] == "And?"
    other = [*FIRST, Turn("assistant", "Never said."), Turn("user", "And?")]
    for unknown in (job(turns=other), job(turns=second, owner=7)):
        with pytest.raises(RefusedError, match="is not kept at the remote"):
            api.chat.write(SETTINGS, unknown, ())


def test_an_answer_that_nobody_waits_for_is_stopped_there():
    api = api_of(SETTINGS)
    assert api.chat is not None
    request = api.chat.write(SETTINGS, job(turns=FIRST), ())
    while request.then is not None:
        assert request.when_dropped is None
        request = request.then(msgspec.json.encode({"id": CHAT}))
    stop = request.when_dropped
    assert stop is not None
    assert stop.path == request.path.replace("/events", "/stop")


@each_case(
    ("field", "given"),
    [
        ("logprobs", LOCAL["logprobs"]),
        ("tools", {"tools": (TOOL,)}),
        ("seed", {"sampling": sampling(seed=1, seed_given=True)}),
        ("messages: the last", {"turns": [Turn("assistant", "So")]}),
    ],
)
def test_what_chats_do_not_take_is_refused(field, given):
    api = api_of(SETTINGS)
    assert api.chat is not None
    asked: GenerateJob = job(**{"turns": FIRST, **given})
    with pytest.raises(RefusedError, match=field):
        api.chat.write(SETTINGS, asked, ())


@each_case(
    ("data", "text"),
    [
        (
            event("error", error="gone", code="internal_error"),
            "the remote failed: gone",
        ),
        (
            event("error", error="no", code="content_refused"),
            "the remote refuses it: no",
        ),
        (done(state="cancelled"), "the remote's answer is cancelled"),
        (b"[]", "not part of an answer"),
    ],
)
def test_an_answer_that_is_not_complete_is_an_error(data, text):
    api = api_of(SETTINGS)
    assert api.chat is not None
    reader = api.chat.make_reader(SETTINGS, 1, job(turns=FIRST), 7)
    with pytest.raises(RemoteError, match=text):
        reader.read(data)
    with pytest.raises(RemoteError, match="ended in its middle"):
        reader.finish()


def test_the_id_of_a_chat_is_no_path():
    api = api_of(SETTINGS)
    assert api.chat is not None
    request = api.chat.write(SETTINGS, job(turns=FIRST), ())
    assert request.then is not None
    with pytest.raises(RemoteError):
        request.then(b'{"id": "../../admin"}')


def test_the_answers_of_the_longest_ago_are_forgotten():
    places = ChatPlaces(2)
    asked = [[Turn("user", str(number))] for number in range(3)]
    for number, turns in enumerate(asked):
        places.add(1, turns, ChatPlace(CHAT, str(number)))
        places.find(1, asked[0])
    found = [places.find(1, turns) for turns in asked]
    assert [place and place.message_id for place in found] == ["0", None, "2"]


def test_who_has_many_makes_no_other_forgotten():
    places, turns = ChatPlaces(2), [Turn("user", "Hello.")]
    places.add(1, turns, ChatPlace(CHAT, "0"))
    for number in range(9):
        places.add(2, [Turn("user", str(number))], ChatPlace(CHAT, "1"))
    assert places.find(1, turns) is not None
