"""The kind ``ollama`` against the types of Ollama's own package, and documented answers.

``CALL`` and ``LAST`` are answers of ``docs/api.md`` of ollama/ollama ("Chat request (with
tools)", commit 01e52d24; "Chat Request (Streaming)"), each as a line. The exchanges of the
golden conversations have the form of that document's, with other words and counts, and are held
to the types of the package ``ollama``. ``truncate`` and ``shift`` are those of ``ChatRequest`` in
``api/types.go`` (ollama/ollama#12519), which the package does not have yet.
Where errors were found: llama.cpp's sources (Ollama runs its server), nano-step/nano-brain#208,
and hosted models of Ollama, whose words occur in many projects.
"""

import base64
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, strategies as st
from ollama._types import ChatRequest, ChatResponse, EmbedRequest, Options

from inferd.backend.job import EmbedJob, ToolChoice
from inferd.config.kinds.ollama import OLLAMA, OllamaSettings
from inferd.ipc.worker import Embedded, Overflow
from inferd.wire.responses import Usage
from inferd.worker.backend import RefusedError
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.ollama.api import OLLAMA_API
from tests.unit.worker.remote.conversations import ADD, CONVERSATIONS, replay
from tests.unit.worker.remote.openai.jobs import job, sampling
from tests.unit.worker.remote.streams import (
    AGENT,
    FORCED,
    LOCAL,
    PICTURE,
    bodies,
    read,
    written,
)

EXCHANGES: Final = Path(__file__).parent / "exchanges"
CALL: Final = b"""{"model": "llama3.2", "created_at": "2024-07-22T20:33:28.123648Z", "message": {\
"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_current_weather", \
"arguments": {"format": "celsius", "location": "Paris, FR"}}}]}, "done_reason": "stop", \
"done": true, "total_duration": 885095291, "load_duration": 3753500, "prompt_eval_count": 122, \
"prompt_eval_duration": 328493000, "eval_count": 33, "eval_duration": 552222000}"""
LAST: Final = b"""{"model": "llama3.2", "created_at": "2023-08-04T19:22:45.499127Z", \
"done": true, "total_duration": 4883583458, "load_duration": 1334875, "prompt_eval_count": 26, \
"prompt_eval_duration": 342546000, "eval_count": 282, "eval_duration": 4535599000}"""


def settings(**fields: Any) -> OllamaSettings:
    able = {"tools": True, "thinking": True, "structure": True, "vision": True}
    given = {"name": "r", "base_url": "http://127.0.0.1:11434", "model": "qwen3"}
    return OllamaSettings(**{**given, **able, **fields})


def line(**message: object) -> bytes:
    return json.dumps({"model": "m", "message": message, "done": False}).encode()


def is_request(body: dict[str, Any]) -> bool:
    """Tell whether a body has nothing that the package's types have not."""
    known = {k: v for k, v in body.items() if k not in {"truncate", "shift"}}
    dumped = ChatRequest(**known).model_dump(exclude_none=True)
    return bool(
        dumped == known
        and Options(**body["options"]).model_dump(exclude_none=True) == body["options"]
    )


def test_every_golden_conversation_comes_to_the_same():
    for name, conversation in CONVERSATIONS.items():
        found = replay(OLLAMA_API, settings(), name, EXCHANGES)
        assert (name, found) == (name, conversation.outcome)


def test_the_golden_exchanges_have_the_form_of_the_vendors_types():
    for request, parts in bodies(EXCHANGES):
        assert is_request(json.loads(request)), request
        for part in parts:
            fields = ChatResponse.model_validate_json(part).model_dump(
                exclude_unset=True
            )
            assert fields.keys() == json.loads(part).keys()


def test_a_documented_call_comes_whole_and_its_line_ends_the_answer():
    asked = job(tools=(ADD,), max_tokens=200)
    [_, call, _], end = read(OLLAMA_API, settings(), [CALL], asked)
    assert msgspec.json.decode(call) == {
        "name": "get_current_weather",
        "arguments": {"format": "celsius", "location": "Paris, FR"},
    }
    assert (end.stop_reason, end.usage) == ("end", Usage(122, 33))


def test_an_answer_of_an_old_server_ends_without_a_reason():
    pieces, end = read(OLLAMA_API, settings(), [line(content="a"), LAST], job())
    assert (pieces, end.stop_reason, end.usage) == ([b"a"], "end", Usage(26, 282))


def test_a_conversation_is_written_as_the_vendors_types_have_it():
    body: dict[str, Any] = written(
        OLLAMA_API, settings(n_ctx=8192, keep_alive="10m"), AGENT
    )
    picture = base64.b64encode(PICTURE).decode()
    messages = body["messages"]
    assert (messages[2]["content"], messages[2]["images"]) == (
        "What is in ?",
        [picture],
    )
    # a result names the function of its call
    assert [each["tool_name"] for each in messages if each["role"] == "tool"] == [
        *("add", "take", "add")
    ]
    assert messages[5]["tool_calls"][0] == {
        "function": {"name": "add", "arguments": {}}
    }
    assert (body["options"]["num_ctx"], body["keep_alive"]) == (8192, "10m")
    del messages[2]["images"]  # whose type there is a class with its own checks
    assert is_request(body)


def test_reasoning_is_switched_by_levels_where_there_are_some():
    for configured, thinks, expected in (
        ({}, True, True),
        ({}, False, False),
        ({"think_level": "low"}, True, "low"),
        ({"think_level": "low"}, False, False),
        ({"thinking": False}, False, None),
    ):
        body = written(OLLAMA_API, settings(**configured), job(thinks=thinks))
        assert body.get("think") == expected


def test_tools_that_are_not_to_be_called_are_not_sent():
    asked = job(tools=(ADD,), tool_choice=ToolChoice("none"))
    assert "tools" not in written(OLLAMA_API, settings(), asked)


def test_what_the_api_cannot_do_is_refused_by_name():
    refused: dict[str, dict[str, Any]] = {
        **LOCAL,
        "tool_choice": {"tools": (ADD,), "tool_choice": FORCED},
    }
    for beginning, asked in refused.items():
        with pytest.raises(RefusedError, match=f"^{beginning}"):
            written(OLLAMA_API, settings(), job(**asked))
    seeded = job(sampling=sampling(seed_given=True, repeat_penalty=1.1))
    assert is_request(written(OLLAMA_API, settings(), seeded))


TOO_LONG: Final = {
    "request (6020 tokens) exceeds the available context size (4096 tokens), try increasing "
    "it": Overflow(prompt_tokens=6020, answer_tokens=1, n_ctx=4096),
    "the prompt has 300 tokens and the context 256: 45 too many": Overflow(
        prompt_tokens=300, answer_tokens=1, n_ctx=256
    ),
    # without the numbers it is the request's fault all the same
    "the input length exceeds the context length": None,
    "prompt too long; exceeded max context length by 17 tokens": None,
}


def test_errors_are_told_by_their_cause_with_a_status_and_as_a_line():
    errors = OLLAMA_API.errors
    for text, expected in TOO_LONG.items():
        body = json.dumps({"error": text}).encode()
        for found in (errors.of_status(500, {}, body, 0.0), errors.of_answer(body)):
            assert (found.overflow, found.by_request) == (expected, True)
    table = [
        (400, '"qwen3" does not support thinking', "refuses it: .*thinking", True),
        (401, "unauthorized", "refuses the key", False),
        (404, 'model "x" not found, try pulling it first', "no such model.*x", False),
        (503, "server busy, please try again", "failed .*busy", False),
    ]
    for status, text, reason, by_request in table:
        body = json.dumps({"error": text}).encode()
        failure = errors.of_status(status, {}, body, 0.0)
        assert failure.by_request is by_request
        with pytest.raises(RemoteError, match=reason):
            raise failure
    assert errors.of_status(500, {}, b"<html>", 0.0).overflow is None


LIES: Final = {
    b"{": "not part of an answer",
    b'"hello"': "not part of an answer",
    b"{}": "not part of an answer",
    b'{"message": {"content": 3}}': "not part of an answer",
    b'{"message": {"tool_calls": [{"function": {"name": "add", "arguments": "x"}}]}}': (
        "not part of an answer"
    ),
    b"[" * 100_000: "not part of an answer",
    b"\xff": "not part of an answer",
    b'{"error": "an error was encountered while running the model"}': "failed: an error",
    line(content="b"): "ended in its middle",
    b'{"done": true, "done_reason": "load"}': "the reason 'load'",
    line(tool_calls=[{"function": {"name": "add"}}]): "was given none",
    b'{"model": "other", "message": {}}': "another model, 'other'",
}


def test_what_is_no_answer_is_one_error_and_what_is_new_is_skipped():
    for lie, reason in LIES.items():
        with pytest.raises(RemoteError, match=reason):
            read(
                OLLAMA_API, settings(expect_model="m"), [line(content="a"), lie], job()
            )
    with pytest.raises(RemoteError, match="goes on after max_tokens"):
        read(OLLAMA_API, settings(), [line(content="a")] * 200, job())
    new = line(content="a", hologram=[1]), b'{"done": true, "hologram": {}}'
    pieces, end = read(OLLAMA_API, settings(), new, job())
    assert (pieces, end.usage) == ([b"a"], Usage(3, 1, is_estimate=True))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_are_one_error(data):
    with suppress(RemoteError):
        read(OLLAMA_API, settings(), [data], job())


def test_settings_that_do_not_go_together():
    for fields, key in (
        ({"think_level": "low", "thinking": False}, "think_level"),
        ({"generate": False}, "generate"),
        ({"n_embd": 9}, "n_embd"),
    ):
        found = OLLAMA.contradiction(settings(**fields))
        assert found is not None
        assert found.key == key
    assert OLLAMA.contradiction(settings(generate=False, embed=True)) is None


VECTORS: Final = b"""{"model": "all-minilm", "embeddings": [[0.010071029, -0.0017594862, \
0.05007221], [-0.0098027075, 0.06042469, 0.025257962]], "total_duration": 14143917, \
"load_duration": 1019500, "prompt_eval_count": 8}"""
"""``docs/api.md``, "Request (Multiple input)", of whose vectors the first three numbers."""


def test_documented_vectors_are_those_of_the_texts():
    embed = OLLAMA_API.embed
    assert embed is not None
    asked = EmbedJob(texts=["a", "b"], dimensions=2, task=None)
    request = embed.write(settings(n_ctx=512), asked, b"")
    sent = json.loads(request.body)
    known = EmbedRequest(**sent).model_dump(exclude_none=True)
    assert (request.path, known, sent["truncate"]) == ("/api/embed", sent, False)
    [message] = embed.read(settings(), 5, asked, VECTORS)
    assert isinstance(message, Embedded)
    assert (message.dimensions, message.n_tokens, message.is_last) == (2, 8, True)
    for vector in json.loads(message.embeddings):
        assert math.hypot(*vector) == pytest.approx(1)
    for body, reason in (
        (b"{", "not part of an answer"),
        (b'{"embeddings": [[1.0]]}', "sent 1 vectors"),
        (b'{"embeddings": [[1.0], [1.0, 2.0]]}', "of 2 lengths"),
        (b'{"error": "the input length exceeds the context length"}', "refuses it"),
    ):
        with pytest.raises(RemoteError, match=reason):
            embed.read(settings(), 5, asked, body)
    for job_, reason in (
        (EmbedJob(texts=["a"], dimensions=None, task="clustering"), "^task"),
        (EmbedJob(tokens=[[1]], dimensions=None, task=None), "^tokens"),
    ):
        with pytest.raises(RefusedError, match=reason):
            embed.write(settings(), job_, b"")


def test_the_reasons_of_an_end_are_the_daemons_and_the_last_line_is_known():
    reasons = {"stop": "end", "length": "length", "tool_calls": "end"}
    for reason, expected in reasons.items():
        part = json.dumps({"done": True, "done_reason": reason}).encode()
        assert read(OLLAMA_API, settings(), [part], job())[1].stop_reason == expected
    assert OLLAMA_API.chat is not None
    reader = OLLAMA_API.chat.make_reader(settings(), 5, job(), 3)
    for part, is_over in ((line(content="a"), False), (LAST, True)):
        reader.read(part)
        assert reader.is_over is is_over
