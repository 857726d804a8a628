"""The kind ``gemini`` against recorded answers; ``tests/model/test_google.py`` has its types.

``CALL`` and ``THINKING`` are recorded exchanges of pydantic/pydantic-ai, commit 111dda9b:
``test_google_streaming_tool_call_thought_signature.yaml`` and
``test_google_model_thinking_part_iter.yaml``, whose signatures and texts are cut, and of whose
events some are left out. ``COUNT`` is that of ``test_google_model_count_tokens.yaml``. The
exchanges of the golden conversations have the form of these, with other words and counts.
Where errors were found: gemini-cli#4231 and #5191, python-genai#1875, aider#3694 (both
``RetryInfo``), gemini-cli#10925 (a quota of a day), continue#10290 (a key), vercel/ai#5217 (an
overloaded server).
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, strategies as st

from inferd.backend.job import EmbedJob, Turn
from inferd.config.kinds.gemini import GEMINI, GeminiSettings
from inferd.ipc.worker import Embedded, Overflow
from inferd.resolve.embed import TASKS as PROTOCOL_TASKS
from inferd.wire.responses import Usage
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.gemini.api import GEMINI_API
from inferd.worker.remote.gemini.encode import TASKS
from inferd.worker.remote.generic_writer import CLOSE_THOUGHT, OPEN_THOUGHT
from tests.unit.worker.remote.conversations import ADD, CONVERSATIONS, replay
from tests.unit.worker.remote.openai.jobs import job, sampling
from tests.unit.worker.remote.streams import (
    AGENT,
    LOCAL,
    NAMED,
    read,
    split,
    written,
)

EXCHANGES: Final = Path(__file__).parent / "exchanges"
CALL: Final = (
    b'data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "get_country",'
    b'"args": {}},"thoughtSignature": "Et8ECtwEAXLI2nyCB1jKZUE4ZxdH07XhZlpU7X7tlcbNO8oQurN9"}],'
    b'"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 29,'
    b'"candidatesTokenCount": 10,"totalTokenCount": 149,"promptTokensDetails": '
    b'[{"modality": "TEXT","tokenCount": 29}],"thoughtsTokenCount": 110},"modelVersion": '
    b'"gemini-3-pro-preview","responseId": "SVV8aY6uBqe6qtsPmJbEuAM"}\r\n\r\n'
    b'data: {"candidates": [{"content": {"parts": [{"text": ""}],"role": "model"},'
    b'"finishReason": "STOP","index": 0}],"usageMetadata": {"promptTokenCount": 29,'
    b'"candidatesTokenCount": 10,"totalTokenCount": 149,"promptTokensDetails": '
    b'[{"modality": "TEXT","tokenCount": 29}],"thoughtsTokenCount": 110},"modelVersion": '
    b'"gemini-3-pro-preview","responseId": "SVV8aY6uBqe6qtsPmJbEuAM"}\r\n\r\n'
)
THINKING: Final = (
    b'data: {"candidates": [{"content": {"parts": [{"text": "**Defining the Goal**",'
    b'"thought": true}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 34,'
    b'"totalTokenCount": 104,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 34}],'
    b'"thoughtsTokenCount": 70},"modelVersion": "gemini-2.5-pro","responseId": '
    b'"2zR8aYTnEvahz7IPmq6EoQ0"}\r\n\r\n'
    b'data: {"candidates": [{"content": {"parts": [{"text": "Here is a step-by-step guide",'
    b'"thoughtSignature": "CiIBcsjafACy65Vwcm8qOq5jkTTLReoTQLfz"}],"role": "model"},'
    b'"index": 0}],"usageMetadata": {"promptTokenCount": 34,"candidatesTokenCount": 17,'
    b'"totalTokenCount": 810,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 34}],'
    b'"thoughtsTokenCount": 759},"modelVersion": "gemini-2.5-pro","responseId": '
    b'"2zR8aYTnEvahz7IPmq6EoQ0"}\r\n\r\n'
)
COUNT: Final = b"""{
  "totalTokens": 10,
  "promptTokensDetails": [
    {
      "modality": "TEXT",
      "tokenCount": 10
    }
  ]
}
"""


def settings(**fields: Any) -> GeminiSettings:
    able = {"tools": True, "thinking": True, "structure": True, "vision": True}
    address = "https://generativelanguage.googleapis.com"
    given = {"name": "r", "base_url": address, "model": "gemini-3-pro-preview"}
    return GeminiSettings(**{**given, **able, **fields})


def chunk(*parts: object, reason: str | None = None, **fields: object) -> bytes:
    content = {"parts": parts, "role": "model"}
    candidate = {"content": content, "finishReason": reason, "index": 0}
    return json.dumps({"candidates": [candidate], **fields}).encode()


def test_every_golden_conversation_comes_to_the_same():
    for name, conversation in CONVERSATIONS.items():
        found = replay(GEMINI_API, settings(), name, EXCHANGES)
        assert (name, found) == (name, conversation.outcome)


def test_a_recorded_call_has_the_counts_of_its_reasoning_with_those_of_the_answer():
    asked = job(tools=(ADD,), max_tokens=200)
    parts = split(AnswerForm.EVENTS, CALL)
    [_, call, _], end = read(GEMINI_API, settings(), parts, asked)
    assert msgspec.json.decode(call) == {"name": "get_country", "arguments": {}}
    assert (end.stop_reason, end.usage) == ("end", Usage(29, 120))


def test_recorded_reasoning_is_told_from_text_and_half_an_answer_is_none():
    parts = [*split(AnswerForm.EVENTS, THINKING)]
    asked = job(thinks=True, max_tokens=999)
    assert read(GEMINI_API, settings(), [*parts, chunk(reason="STOP")], asked)[0] == [
        *(OPEN_THOUGHT, b"**Defining the Goal**", CLOSE_THOUGHT),
        b"Here is a step-by-step guide",
    ]
    with pytest.raises(RemoteError, match="ended in its middle"):
        read(GEMINI_API, settings(), parts, asked)


def test_a_conversation_is_written_with_roles_results_and_placeholders():
    asked = msgspec.structs.replace(AGENT, tool_choice=NAMED)
    body: Any = written(GEMINI_API, settings(), asked)
    assert [each["role"] for each in body["contents"]] == [
        *("user", "model", "user", "model", "user", "user")
    ]
    first, second, third, _, results, _ = (each["parts"] for each in body["contents"])
    assert [[*part] for part in first] == [["text"], ["inlineData"], ["text"]]
    # an earlier call has the placeholder that Google documents, since no signature is kept
    assert second[1] == {
        "functionCall": {"name": "add", "args": {"a": 1}},
        "thoughtSignature": "skip_thought_signature_validator",
    }
    result = {"name": "add", "response": {"output": "2"}}
    assert third == [{"functionResponse": result}]
    assert [part["functionResponse"]["name"] for part in results] == ["take", "add"]
    assert body["systemInstruction"]["parts"] == [
        {"text": "Be brief."},
        {"text": "Be kind."},
    ]
    assert body["toolConfig"]["functionCallingConfig"] == {
        "mode": "ANY",
        "allowedFunctionNames": ["add"],
    }
    bare: Any = written(GEMINI_API, settings(skip_signatures=False), AGENT)
    assert "thoughtSignature" not in bare["contents"][1]["parts"][1]


def test_the_models_name_is_a_part_of_the_path_that_leads_nowhere_else():
    assert GEMINI_API.chat is not None
    for model, path in (
        ("gemini-x", "/models/gemini-x:streamGenerateContent?alt=sse"),
        ("tunedModels/x", "/tunedModels/x:streamGenerateContent?alt=sse"),
        ("a?b#c d", "/models/a%3Fb%23c%20d:streamGenerateContent?alt=sse"),
    ):
        found = GEMINI_API.chat.write(settings(model=model), job(), ())
        assert found.path == path


def test_reasoning_is_asked_for_as_it_is_configured():
    for configured, thinks, expected in (
        ({}, True, {"includeThoughts": True}),
        ({"thinking_budget": 9}, True, {"includeThoughts": True, "thinkingBudget": 9}),
        (
            {"thinking_level": "low"},
            True,
            {"includeThoughts": True, "thinkingLevel": "low"},
        ),
        ({}, False, None),
        ({"no_thinking": "budget"}, False, {"thinkingBudget": 0}),
        ({"no_thinking": "minimal"}, False, {"thinkingLevel": "minimal"}),
        ({"thinking": False}, False, None),
    ):
        body: Any = written(GEMINI_API, settings(**configured), job(thinks=thinks))
        assert body["generationConfig"].get("thinkingConfig") == expected


def test_a_seed_is_one_that_fits():
    for seed, expected in ((7, 7), (2**32 - 2, 2**31 - 2)):
        asked = job(sampling=sampling(seed=seed, seed_given=True))
        body: Any = written(GEMINI_API, settings(), asked)
        assert body["generationConfig"]["seed"] == expected


def test_tokens_are_counted_of_the_same_prompt_where_it_is_configured():
    counting = GEMINI_API.counting
    assert counting is not None
    assert counting.write(settings(), AGENT) is None
    plain = job(turns=AGENT.turns, tools=AGENT.tools)
    request = counting.write(settings(count_tokens=True), plain)
    assert request is not None
    assert request.path == "/models/gemini-3-pro-preview:countTokens"
    asked = json.loads(request.body)["generateContentRequest"]
    assert asked["model"] == "models/gemini-3-pro-preview"
    assert counting.read(COUNT) == 10


def test_what_the_api_cannot_do_is_refused_by_name():
    late = [Turn("user", "hi"), Turn("system", "Be brief.")]
    refused: dict[str, dict[str, Any]] = {
        **LOCAL,
        "min_p": {"sampling": sampling(min_p=0.1)},
        "repeat_penalty": {"sampling": sampling(repeat_penalty=1.1)},
        "messages: backend": {"turns": late},
        "messages: the result of a tool has images": {
            "turns": [*AGENT.turns[3:4], Turn("tool", "#", call_id="c")],
            "marker": "#",
        },
    }
    for beginning, asked in refused.items():
        with pytest.raises(RefusedError, match=f"^{beginning}"):
            written(GEMINI_API, settings(), job(**asked))


def error(code: int, message: str, *details: dict[str, object]) -> bytes:
    fault = {"code": code, "message": message, "status": "X", "details": details}
    return json.dumps({"error": fault}).encode()


RETRY: Final[dict[str, object]] = {
    "@type": "type.googleapis.com/google.rpc.RetryInfo",
    "retryDelay": "53.016342224s",
}
A_DAY: Final[dict[str, object]] = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [
        {
            "quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel",
        }
    ],
}
NO_KEY: Final[dict[str, object]] = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}


def test_errors_are_told_by_their_cause_with_a_status_and_as_an_event():
    errors = GEMINI_API.errors
    counted = (
        "The input token count (3475108) exceeds the maximum number of tokens allowed "
    )
    for text, expected in (
        (
            f"{counted}(1048576).",
            Overflow(prompt_tokens=3475108, answer_tokens=1, n_ctx=1048576),
        ),
        (
            "The input token count exceeds the maximum number of tokens allowed 9.",
            None,
        ),
    ):
        body = error(400, text)
        for found in (errors.of_status(400, {}, body, 0.0), errors.of_answer(body)):
            assert (found.overflow, found.by_request) == (expected, True)
    table = [
        (error(400, "API key not valid.", NO_KEY), "refuses the key", None),
        (error(403, "denied"), "refuses the key", None),
        (error(404, "models/x is not found"), "no such model.*models/x", None),
        (error(429, "Please retry in 53.01s.", RETRY), "rate limit", 53016),
        (error(429, "Quota exceeded", A_DAY), "quota", None),
        (error(503, "The model is overloaded."), "failed.*: The model is over", None),
        (b"[" + error(503, "The model is overloaded.") + b"]", "overloaded", None),
    ]
    for body, reason, after in table:
        code = 503 if body.startswith(b"[") else json.loads(body)["error"]["code"]
        for found in (errors.of_status(code, {}, body, 0.0), errors.of_answer(body)):
            assert (found.by_request, found.retry_after_ms) == (False, after)
            with pytest.raises(RemoteError, match=reason):
                raise found


LIES: Final = {
    b"{": "not part of an answer",
    b'"hello"': "not part of an answer",
    b'{"candidates": 3}': "not part of an answer",
    chunk({"text": 3}): "not part of an answer",
    chunk({"functionCall": {"name": "add", "args": "x"}}): "not part of an answer",
    b"[" * 100_000: "not part of an answer",
    b"\xff": "not part of an answer",
    b"{}": "ended in its middle",
    chunk(reason="MALFORMED_FUNCTION_CALL"): "the reason 'MALFORMED_FUNCTION_CALL'",
    chunk(reason="PROHIBITED_CONTENT"): "withholds the rest",
    b'{"promptFeedback": {"blockReason": "SAFETY"}}': r"refuses the prompt \(SAFETY\)",
    chunk({"functionCall": {"name": "add"}}): "was given none",
    chunk(modelVersion="other"): "another model, 'other'",
    error(500, "An internal error has occurred."): "failed: An internal error",
}


def test_what_is_no_answer_is_one_error_and_what_is_new_is_skipped():
    text = chunk({"text": "a"})
    for lie, reason in LIES.items():
        with pytest.raises(RemoteError, match=reason):
            read(GEMINI_API, settings(expect_model="m"), [text, lie], job())
    with pytest.raises(RemoteError, match="goes on after max_tokens"):
        read(GEMINI_API, settings(), [text] * 200, job())
    new = [
        b'{"hologram": 3}',
        chunk({"hologram": {}}, {"executableCode": {}}),
        chunk(reason="STOP"),
    ]
    pieces, end = read(GEMINI_API, settings(), [text, *new], job())
    assert (pieces, end.usage) == ([b"a"], Usage(3, 1, is_estimate=True))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_are_one_error(data):
    with suppress(RemoteError):
        read(GEMINI_API, settings(), [data], job())


def test_settings_that_do_not_go_together():
    for fields, key in (
        ({"thinking_level": "low", "thinking": False}, "thinking_level"),
        ({"thinking_level": "low", "thinking_budget": 9}, "thinking_level"),
        ({"generate": False}, "generate"),
        ({"n_embd": 9}, "n_embd"),
    ):
        found = GEMINI.contradiction(settings(**fields))
        assert found is not None
        assert found.key == key
    assert GEMINI.contradiction(settings(generate=False, embed=True)) is None


VECTORS: Final = (
    b'{"embeddings": [{"values": [0.1, 0.2]}, {"values": [0.1, 0.2]}], '
    b'"usageMetadata": {"promptTokenCount": 8, "trafficType": "ON_DEMAND"}}'
)
"""As in ``google/genai/tests/models/test_embed_content.py`` of the package ``google-genai``."""


def test_documented_vectors_are_those_of_the_texts():
    embed = GEMINI_API.embed
    assert embed is not None
    asked = EmbedJob(texts=["a", "b"], dimensions=1, task="similarity")
    request = embed.write(settings(model="gemini-embedding-001"), asked, b"")
    assert request.path == "/models/gemini-embedding-001:batchEmbedContents"
    assert json.loads(request.body)["requests"][1] == {
        "model": "models/gemini-embedding-001",
        "content": {"parts": [{"text": "b"}]},
        "taskType": "SEMANTIC_SIMILARITY",
    }
    [message] = embed.read(settings(), 5, asked, VECTORS)
    assert isinstance(message, Embedded)
    assert (message.embeddings, message.n_tokens) == (b"[[1.0],[1.0]]", 8)
    assert TASKS.keys() == set(PROTOCOL_TASKS)
    for body, reason in (
        (b"{", "not part of an answer"),
        (b'{"embeddings": [{"values": [1.0]}]}', "sent 1 vectors"),
        (b'{"embeddings": [{}, {}]}', "sent 2 vectors"),
    ):
        with pytest.raises(RemoteError, match=reason):
            embed.read(settings(), 5, asked, body)
    for job_, reason in (
        (EmbedJob(texts=["a"] * 101, dimensions=None, task=None), "^input: .* 101"),
        (EmbedJob(tokens=[[1]], dimensions=None, task=None), "^tokens"),
    ):
        with pytest.raises(RefusedError, match=reason):
            embed.write(settings(), job_, b"")
