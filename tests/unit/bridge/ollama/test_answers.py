"""Answers, each line of which is one of the types of Ollama's client."""

import json
from typing import Any

import ollama
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from inferd.bridge.ollama.api import OLLAMA, LineStream
from inferd.bridge.ollama.chat import ask_chat
from inferd.bridge.ollama.failures import failure_body
from inferd.bridge.ollama.generate import ask_generate
from inferd.bridge.ollama.models import (
    list_models,
    list_running,
    show_model,
    tell_version,
)
from inferd.bridge.ollama.vectors import ask_embed, ask_embedding
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.responses import (
    Alternative,
    EmbeddingsFrame,
    EncodeUsage,
    Logprob,
    TextDelta,
    ThinkingDelta,
    Timing,
    ToolCall,
)
from tests.fakes.bridge_answers import ASKED, BLOCK, done, frame, streamed, whole

TIMING = Timing(
    queued_ms=1.5,
    prefill_ms=2,
    first_token_ms=3.5,
    decode_ms=4,
    total_ms=7.5,
    tokens_per_second=1,
    arrived_ns=0,
    started_ns=0,
    finished_ns=0,
)
FACTS = OfferedFacts(
    backend="chat",
    aliases=["fast"],
    state="ready",
    generate=True,
    tools=True,
    thinking=True,
    vision=True,
    n_ctx=4096,
    n_embd=64,
    model="Chat 1B",
    dialect="qwen3",
)


def chat(**fields: Any) -> Question:
    messages = [{"role": "user", "content": "hi"}]
    sent = {"model": "small", "messages": messages, **fields}
    return ask_chat(json.dumps(sent).encode(), ASKED)


def prompt(**fields: Any) -> Question:
    sent = {"model": "small", "prompt": "hi", **fields}
    return ask_generate(json.dumps(sent).encode(), ASKED)


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


# --- generated answers --------------------------------------------------------------


def test_a_chat_is_lines_and_the_last_has_the_counts():
    call = ToolCall("tc-0", "weather", {"city": "Köln"})
    thought, text, called, last = lines(
        streamed(
            chat(),
            frame(ThinkingDelta("hm")),
            frame(TextDelta("Look")),
            frame(call),
            done("tool_use", timing=TIMING),
        )
    )
    head = {"model": "small", "created_at": "1970-01-01T00:00:07Z"}
    assistant = {"role": "assistant", "content": ""}
    assert thought == {
        **head,
        "message": {**assistant, "thinking": "hm"},
        "done": False,
    }
    assert text["message"] == {"role": "assistant", "content": "Look"}
    function = {"index": 0, "name": "weather", "arguments": {"city": "Köln"}}
    assert called["message"] == {
        **assistant,
        "tool_calls": [{"id": "call_1_0", "function": function}],
    }
    assert last == {
        **head,
        "message": assistant,
        "done": True,
        "done_reason": "stop",
        "total_duration": 7_500_000,
        "load_duration": 1_500_000,
        "prompt_eval_count": 11,
        "prompt_eval_duration": 2_000_000,
        "eval_count": 5,
        "eval_duration": 4_000_000,
    }


@settings(max_examples=30)
@given(st.lists(BLOCK, max_size=5))
def test_any_answer_is_the_same_streamed_or_not(blocks):
    frames = [*map(frame, blocks), done()]
    parts = [ollama.ChatResponse(**each) for each in lines(streamed(chat(), *frames))]
    found = ollama.ChatResponse(**whole(chat(), *frames))
    for field in ("content", "thinking"):
        told = "".join(getattr(part.message, field) or "" for part in parts)
        assert (getattr(found.message, field) or "") == told
    calls = [call for part in parts for call in part.message.tool_calls or []]
    assert [*(found.message.tool_calls or [])] == calls
    assert [part.done for part in parts] == [False] * len(blocks) + [True]


def test_a_generated_text_is_a_response_with_its_reasoning():
    frames = [frame(ThinkingDelta("hm")), frame(TextDelta("Yes")), done("max_tokens")]
    found = ollama.GenerateResponse(**whole(prompt(), *frames))
    assert (found.thinking, found.response, found.done_reason) == (
        "hm",
        "Yes",
        "length",
    )
    thought, text, last = lines(streamed(prompt(), *frames))
    assert (thought["thinking"], text["response"], last["response"]) == (
        "hm",
        "Yes",
        "",
    )
    assert "message" not in last


def test_tokens_have_their_log_probabilities_where_they_are_asked_for():
    token = Logprob(
        token="a",  # noqa: S106  # text
        id=1,
        bytes=[97],
        logprob=-0.5,
        top_logprobs=[
            Alternative(token="b", id=2, bytes=[98], logprob=-1.5),  # noqa: S106  # text
        ],
    )
    frames = [frame(TextDelta("a"), logprobs=[token]), done()]
    first, last = lines(streamed(chat(logprobs=True, top_logprobs=1), *frames))
    [told] = first["logprobs"]
    assert (told["token"], told["logprob"], told["bytes"]) == ("a", -0.5, [97])
    assert [each["token"] for each in told["top_logprobs"]] == ["b"]
    assert "logprobs" not in last
    assert whole(chat(logprobs=True), *frames)["logprobs"][0]["top_logprobs"] == []
    assert "logprobs" not in whole(chat(), *frames)


def test_a_load_is_an_answer_of_one_line():
    [loaded] = lines(streamed(chat(messages=[]), done("max_tokens")))
    assert (loaded["done"], loaded["done_reason"]) == (True, "load")
    assert "eval_count" not in loaded
    unloaded = whole(prompt(prompt="", keep_alive=0), done("max_tokens"))
    assert (unloaded["response"], unloaded["done_reason"]) == ("", "unload")


def test_a_silent_stream_is_kept_alive_by_what_no_reader_of_lines_sees():
    data = LineStream.keep_alive * 3 + streamed(chat(), frame(TextDelta("a")), done())
    assert [line["done"] for line in lines(data)] == [False, True]


def test_a_failure_is_an_error_and_in_a_stream_a_line():
    failure = BridgeError(Reason.CANCELLED, "it was cancelled")
    body = failure_body(failure)
    assert json.loads(body) == {"error": "it was cancelled"}
    assert LineStream().failure_event(failure) == body + b"\n"


# --- vectors and models -------------------------------------------------------------


def test_vectors_are_told_in_both_forms():
    vectors = EmbeddingsFrame(
        id="req_1",
        embeddings=Raw(b"[[1,0],[0,1]]"),
        dimensions=2,
        model="m",
        usage=EncodeUsage(4),
        backend="b",
    )
    question = ask_embed(b'{"model":"e","input":["a","b"]}', ASKED)
    assert whole(question, vectors) == {
        "model": "e",
        "embeddings": [[1, 0], [0, 1]],
        "prompt_eval_count": 4,
    }
    one = ask_embedding(b'{"model":"e","prompt":"a"}', ASKED)
    assert whole(one, vectors) == {"embedding": [1, 0]}
    nothing = ask_embed(b'{"model":"e","input":""}', ASKED)
    assert whole(nothing, vectors)["embeddings"] == []
    empty = ask_embedding(b'{"model":"e"}', ASKED)
    assert whole(empty, vectors) == {"embedding": []}


def test_models_are_told_as_far_as_the_daemon_tells_of_them():
    unread = OfferedFacts(backend="new", aliases=[], state="unloaded", is_unread=True)
    models = [
        OfferedModel("chat", ("generate", "embed"), FACTS),
        OfferedModel("fast", ("generate", "embed"), FACTS),
        OfferedModel("new", ("generate",), unread),
        OfferedModel("old", ("generate",)),
    ]
    listed = ollama.ListResponse(**json.loads(list_models(b"", models, 7)))
    assert [model.model for model in listed.models] == ["chat", "fast", "new", "old"]
    assert all(len(model.digest or "") == 64 for model in listed.models)
    [loaded] = ollama.ProcessResponse(**json.loads(list_running(b"", models, 7))).models
    assert (loaded.model, loaded.context_length) == ("chat", 4096)
    shown = json.loads(show_model(b'{"model":"fast:latest"}', models, 7))
    assert shown["capabilities"] == [
        *("completion", "tools", "thinking", "vision", "embedding"),
    ]
    assert shown["model_info"] == {
        "general.architecture": "qwen3",
        "general.name": "Chat 1B",
        "qwen3.context_length": 4096,
        "qwen3.embedding_length": 64,
    }
    assert ollama.ShowResponse(**shown)["details"]["family"] == "qwen3"
    assert json.loads(show_model(b'{"name":"new"}', models, 7))["capabilities"] == []
    assert json.loads(show_model(b'{"name":"old"}', models, 7))["capabilities"] == [
        "completion"
    ]
    assert [*json.loads(tell_version(b"", (), 7))] == ["version"]


def test_no_route_is_told_twice():
    routes = [(each.method, each.path) for each in OLLAMA.lookups]
    routes += [("POST", each.path) for each in OLLAMA.operations]
    assert len(routes) == len(set(routes))
